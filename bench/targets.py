"""The proxies that are measured: how each one is started, in its best honest configuration.

A target is a function (folder, port, upstream ports) -> argv. To add one, write it and give it a row
in TARGETS. All relay without buffering, keep connections to the upstream, and use one thread.
"""

import os
import resource
import shutil
import socket
from pathlib import Path

# Debian keeps proxies where the PATH of an ordinary user does not reach.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
ROOT = Path(__file__).resolve().parent.parent
MAX_STREAMS = 12000

NGINX_CONF = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log error;
events {{ worker_connections {connections}; multi_accept on; }}
http {{
    access_log {access_log};
    tcp_nodelay on;
    keepalive_requests 100000000;
    client_max_body_size 64m;
    client_body_buffer_size 256k;
    client_body_temp_path {folder}/client_body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream engines {{
        {servers}
        keepalive 4096;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://engines;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""

HAPROXY_CONF = """
global
    nbthread 1
    maxconn {max_streams}
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 600s
    timeout server 600s
frontend clients
    bind 127.0.0.1:{port} backlog 4096
    default_backend engines
backend engines
    balance roundrobin
{servers}
"""


def find(program):
    """Path of an installed program, or None."""
    return shutil.which(program, path=SEARCH_PATH)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _nginx(folder, port, upstreams, access_log):
    conf = folder / "nginx.conf"
    conf.write_text(NGINX_CONF.format(
        folder=folder, port=port, access_log=access_log, connections=2 * MAX_STREAMS,
        servers=" ".join(f"server 127.0.0.1:{upstream};" for upstream in upstreams)))
    return [find("nginx"), "-p", folder, "-c", conf]


def nginx(folder, port, upstreams):
    return _nginx(folder, port, upstreams, "off")


def nginx_log(folder, port, upstreams):
    """nginx with its access log, one write per request, as it is by default."""
    return _nginx(folder, port, upstreams, folder / "access.log")


def haproxy(folder, port, upstreams):
    conf = folder / "haproxy.cfg"
    servers = (f"    server s{i} 127.0.0.1:{upstream} check inter 10s pool-max-conn -1"
               for i, upstream in enumerate(upstreams))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    conf.write_text(HAPROXY_CONF.format(
        port=port, max_streams=min(MAX_STREAMS, hard // 2 - 100), servers="\n".join(servers)))
    return [find("haproxy"), "-db", "-f", conf]


def weir_at(binary):
    """weir with what it has on by default (metrics, routing, health checks) and an access log."""

    def weir(folder, port, upstreams):
        backends = ",".join(f"http://127.0.0.1:{upstream}" for upstream in upstreams)
        return [binary, "serve", "--listen", f"127.0.0.1:{port}", "--admin-listen",
                f"127.0.0.1:{free_port()}", "--backends", backends, "--workers", "1",
                "--access-log", folder / "access.log"]

    return weir


TARGETS = {"nginx": nginx, "nginx_log": nginx_log, "haproxy": haproxy}
DEFAULT_BINARY = Path(os.environ.get("WEIR_BINARY", ROOT / "build" / "weir"))


def find_target(name):
    """The function of a target: a row of TARGETS, "weir", or "weir@PATH" for another build of it."""
    if name == "weir":
        return weir_at(DEFAULT_BINARY)
    if name.startswith("weir@"):
        return weir_at(Path(name.removeprefix("weir@")).resolve())
    return TARGETS.get(name)


def missing_programs(names):
    """What has to be installed or built before `names` can be measured: sentences for people."""
    missing = [name for name in ("nginx", "haproxy")
               if any(target.startswith(name) for target in names) and not find(name)]
    sentences = []
    if missing:
        sentences.append(f"{' and '.join(missing)} not found; install with: tools/deps.sh bench")
    for name in names:
        binary = DEFAULT_BINARY if name == "weir" else Path(name.partition("@")[2])
        if name.partition("@")[0] == "weir" and not os.access(binary, os.X_OK):
            sentences.append(f"{name}: no program at {binary}; build it with: make")
    return sentences
