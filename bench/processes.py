"""Child processes that cannot outlive the benchmark: each is ended by its own pid, however it ends."""

import ctypes
import os
import resource
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
PRIORITY = -10  # other work on the machine then disturbs less; without the right to it, no change
_libc = ctypes.CDLL(None, use_errno=True)


def _prepare_child():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    except PermissionError:
        pass
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def family(pid):
    """pid and its descendants."""
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


class Children:
    """Starts processes, each on one core; ends all of them on leaving the `with` block."""

    def __init__(self, folder, realtime=False):
        self.folder = folder
        self.realtime = realtime
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in list(self.running):
            self.stop(process)

    def _prefix(self, core):
        scheduler = ["chrt", "-r", "10"] if self.realtime else []
        return ["taskset", "-c", str(core), *scheduler]

    def run(self, argv, core, limit_s):
        """Runs one to its end, at most `limit_s`; its output is captured."""
        return subprocess.run([*self._prefix(core), *map(str, argv)], capture_output=True, text=True,
                              timeout=limit_s, check=False, preexec_fn=_prepare_child)

    def start(self, name, argv, core, stdout=None):
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [*self._prefix(core), *map(str, argv)], stdin=subprocess.DEVNULL,
                stdout=stdout or log, stderr=log, preexec_fn=_prepare_child,
                start_new_session=True)  # Ctrl-C is for the benchmark; it ends its children
        self.running.append(process)
        return process

    def stop(self, process, sig=signal.SIGTERM):
        members = family(process.pid)
        _signal([process.pid], sig)
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            _signal(members, signal.SIGKILL)
            process.wait()
        self._end_orphans(members[1:])
        self.running.remove(process)

    @staticmethod
    def _end_orphans(members):
        """A worker whose master is gone has had its signal; it gets a second before the last one."""
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline and any(map(_is_alive, members)):
            time.sleep(0.02)
        _signal(filter(_is_alive, members), signal.SIGKILL)


def _is_alive(pid):
    return os.path.exists(f"/proc/{pid}")


def _signal(pids, sig):
    for pid in pids:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass
