"""A real vLLM as a process, out of build/vllm (tools/vllm/setup.sh)."""
import ctypes
import os
import pathlib
import signal
import subprocess
import tempfile

from prometheus_client.parser import text_string_to_metric_families

from harness import client
from harness.ports import free_port
from harness.wait import eventually
from harness.weir import REPO

FOLDER = REPO / "build" / "vllm"
SERVE = REPO / "tools" / "vllm" / "serve.sh"
MODEL = "smollm2"
VERSION = "0.32.0"
CONTEXT = 1024  # serve.sh's --max-model-len
START_S = 600  # half a minute on a quiet machine; a bound against hanging, never a claim about speed

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _end_with_parent():
    """An engine holds gigabytes: it must not outlive a test run that was killed."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Vllm:
    """One vLLM and its processes: the API server that was started, the engine, its worker."""

    def __init__(self, *arguments):
        assert (FOLDER / "env.sh").exists(), f"no vLLM in {FOLDER}; run: tools/vllm/setup.sh"
        self.port = free_port()
        self.log_file = pathlib.Path(tempfile.mkstemp(prefix="weir-vllm-")[1])
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen([str(SERVE), str(FOLDER), str(self.port), *arguments],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=_end_with_parent)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self):
        return self.log_file.read_text(errors="replace")

    @property
    def is_alive(self):
        return self.process.poll() is None

    @property
    def is_ready(self):
        assert self.is_alive, f"vLLM ended with {self.process.returncode}:\n{self.log[-4000:]}"
        try:
            return client.get(self.port, "/health", timeout=5).status == 200
        except (OSError, AssertionError):
            return False

    def wait_until_ready(self):
        eventually(lambda: self.is_ready, lambda: f"vLLM is ready:\n{self.log[-4000:]}", timeout=START_S, every=0.5)

    def samples(self, name):
        page = client.get(self.port, "/metrics", timeout=60).body.decode()
        return [s for family in text_string_to_metric_families(page) for s in family.samples if s.name == f"vllm:{name}"]

    def figure(self, name):
        """A number of its own metrics page, summed over its labels."""
        return sum(s.value for s in self.samples(name))

    def running(self):
        """Requests that it computes or holds, by its own word."""
        return self.figure("num_requests_running") + self.figure("num_requests_waiting")

    def kv_tokens(self):
        (sample,) = self.samples("cache_config_info")
        return int(sample.labels["num_gpu_blocks"]) * int(sample.labels["block_size"])

    def processes(self):
        """Pid -> command line, of this process and all below it."""
        found, level = {}, [self.process.pid]
        while level:
            below = []
            for pid in level:
                try:
                    found[pid] = open(f"/proc/{pid}/cmdline").read().replace("\0", " ")
                    for task in os.listdir(f"/proc/{pid}/task"):
                        below += map(int, open(f"/proc/{pid}/task/{task}/children").read().split())
                except OSError:
                    continue
            level = below
        return found

    def kill_engine(self):
        """Ends the engine as running out of memory does; the API server stays, for now."""
        (pid,) = [pid for pid, command in self.processes().items() if "EngineCore" in command]
        os.kill(pid, signal.SIGKILL)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        """Ends all its processes."""
        pids = self.processes()
        if self.is_alive:
            self.process.kill()
        self.process.wait(30)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.log_file.unlink(missing_ok=True)
