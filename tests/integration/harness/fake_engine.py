"""A tiny engine as a process of its own, for the launcher: standard library only.

    fake_engine.py PORT [NAME=VALUE]...

ready_after=N    answers 503 to the first N health checks
notes=DIR        writes a file per start: DIR/PORT.PID
child=1          has a child that leaves the process group and outlives a simple kill
deaf=1           does not react to SIGTERM
die=STATUS       exits at once
hold=1           a streamed answer goes on until DIR/go exists
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

port = int(sys.argv[1])
options = dict(a.split("=", 1) for a in sys.argv[2:])
notes = pathlib.Path(options["notes"]) if "notes" in options else None
checks = 0


def note(text=""):
    if notes:
        (notes / f"{port}.{os.getpid()}").write_text(text)


def respond(c, status, body):
    c.sendall(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))


def stream(c):
    def chunk(text):
        data = b"data: " + text + b"\n\n"
        c.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def delta(d, finish=None):
        chunk(json.dumps({"id": str(os.getpid()), "object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": d, "finish_reason": finish}]}).encode())
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    delta({"role": "assistant", "content": ""})
    delta({"content": "begun "})
    while "hold" in options and not (notes / "go").exists():
        time.sleep(0.02)
    delta({"content": "ended"})
    delta({}, "stop")
    chunk(b"[DONE]")
    c.sendall(b"0\r\n\r\n")


def serve(c):
    global checks
    buffer = b""
    try:
        while True:
            while b"\r\n\r\n" not in buffer:
                data = c.recv(65536)
                if not data:
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
            while len(buffer) < length:
                buffer += c.recv(65536)
            body, buffer = buffer[:length], buffer[length:]
            path = head.split(b" ")[1]
            if path == b"/health":
                checks += 1
                respond(c, 503 if checks <= int(options.get("ready_after", 0)) else 200, b"{}")
            elif path == b"/v1/models":
                respond(c, 200, b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm"}]}')
            elif head.startswith(b"POST") and json.loads(body).get("stream"):
                stream(c)
            elif head.startswith(b"POST"):
                respond(c, 200, json.dumps({"pid": os.getpid(), "port": port, "argv": sys.argv[1:], "model": json.loads(body)["model"],
                                            "environment": os.environ.get("FAKE_VALUE")}).encode())
            else:
                respond(c, 404, b"{}")
    except OSError:
        pass
    finally:
        c.close()


note(" ".join(sys.argv[1:]))
if "die" in options:
    sys.exit(int(options["die"]))
if "deaf" in options:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "child" in options:
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    if notes:
        (notes / f"child.{child.pid}").write_text("")
print(f"fake engine on {port}", flush=True)
listener = socket.create_server(("127.0.0.1", port), backlog=128)
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
