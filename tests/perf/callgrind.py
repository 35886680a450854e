"""weir under callgrind: counts the instructions that its worker thread spends in user space."""

import re
import socket
import subprocess


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Weir:
    """A running weir whose instructions are counted phase by phase. The dumps stay in `folder`."""

    def __init__(self, binary, backends, folder):
        self.port = _free_port()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("phases*"):
            old.unlink()
        self.dumps = 0
        self.worker = None  # number of its thread, once found
        self.log = open(folder / "weir.log", "wb")
        self.process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", "--separate-threads=yes",
             "--compress-strings=no", "--compress-pos=no",
             f"--callgrind-out-file={folder / 'phases'}", binary, "serve",
             "--listen", f"127.0.0.1:{self.port}", "--admin-listen", f"127.0.0.1:{_free_port()}",
             "--backends", ",".join(f"http://127.0.0.1:{port}" for port in backends),
             "--workers", "1", "--access-log", folder / "access.log"],
            stdout=self.log, stderr=self.log)

    def is_alive(self):
        return self.process.poll() is None

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def find_worker(self, work):
        """Tells the worker from the threads that probe and log: it is the one busy with work()."""
        counts = self._count_threads(work)
        self.worker = max(counts, key=counts.get)

    def count(self, work):
        """Instructions of the worker while work() runs, and where the profile lies."""
        counts = self._count_threads(work)
        return counts[self.worker], self.folder / f"phases.{self.dumps}-{self.worker}"

    def _count_threads(self, work):
        self._dump()
        work()
        self._dump()
        return {path.name.partition("-")[2]: self._total(path)
                for path in self.folder.glob(f"phases.{self.dumps}-*")}

    def _dump(self):
        """Writes what was counted since the last dump, a file per thread, and starts from zero."""
        done = subprocess.run(["callgrind_control", "--dump", str(self.process.pid)],
                              capture_output=True, text=True, timeout=60, check=False)
        self.dumps += 1
        assert any(self.folder.glob(f"phases.{self.dumps}-*")), (
            f"callgrind_control made no dump (it needs ptrace): {done.stdout} {done.stderr}")

    @staticmethod
    def _total(path):
        return int(re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE)[1])
