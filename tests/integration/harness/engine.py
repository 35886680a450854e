"""Real engines: llama.cpp's server with a small real model, out of packages (tools/deps.sh engines)."""
import os
import pathlib
import signal
import subprocess
import tempfile

from .ports import free_port
from .weir import REPO
from .wait import eventually
from . import client

PYTHON = REPO / "build" / "engines" / "bin" / "python"
SCRIPT = REPO / "tools" / "engine_llamacpp.py"
MODEL = "smollm2"


def command(port, *extra, slots=4):
    """What starts one engine; `port` may be a placeholder of the launcher."""
    for path in (PYTHON, SCRIPT):
        assert path.exists(), f"{path} is missing; run: tools/deps.sh engines"
    return [str(PYTHON), str(SCRIPT), "--port", str(port), "--slots", str(slots), "--ctx", "8192", "--alias", MODEL, *extra]


class Engine:
    """One llama.cpp process on a port that stays its own across restarts."""

    def __init__(self, *extra, slots=4):
        self.extra, self.slots, self.port, self.process = extra, slots, free_port(), None
        self.log = pathlib.Path(tempfile.mkstemp(prefix="weir-engine-")[1])
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command(self.port, *self.extra, slots=self.slots), stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        return self

    @property
    def is_ready(self):
        assert self.process.poll() is None, f"the engine ended: {self.log.read_text(errors='replace')[-2000:]}"
        try:
            return client.get(self.port, "/health", timeout=5).status == 200
        except (OSError, AssertionError):
            return False

    def wait_until_ready(self):
        eventually(lambda: self.is_ready, "the engine is ready", timeout=90, every=0.1)
        return self

    def running(self):
        """Requests that it computes now, by its own word."""
        for line in client.get(self.port, "/metrics").body.decode().splitlines():
            if line.startswith("llamacpp:requests_processing "):
                return int(float(line.split()[1]))
        raise AssertionError("the engine does not say what it computes")

    def kill(self, number=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(30)

    def stop(self):
        self.kill()
        os.unlink(self.log)
