"""Fixtures. Start-ups are shared by module: a module sets SITE (see `site`) and its tests use one weir."""
import shutil

import pytest

from harness import client
from harness import weir as weir_module
from harness.upstream import Upstream
from harness.weir import Weir, model


class Site:
    """One weir before some scripted upstreams."""

    def __init__(self, weir, upstreams):
        self.weir, self.upstreams = weir, upstreams
        self.up = upstreams[0]

    @property
    def port(self):
        return self.weir.port

    def clear(self):
        for u in self.upstreams:
            u.clear()

    def requests(self):
        """Of all upstreams together."""
        return [r for u in self.upstreams for r in u.requests]


class Workshop:
    """Makes upstreams, weirs and sites, and takes them all down, in the reverse order."""

    def __init__(self):
        self.weirs, self.upstreams = [], []

    def upstream(self, *args, **kwargs):
        u = Upstream(*args, **kwargs)
        self.upstreams.append(u)
        return u

    def weir(self, *args, **kwargs):
        w = Weir(*args, **kwargs)
        self.weirs.append(w)
        return w

    def site(self, count=1, settings=None, kind="vllm", **model_members):
        ups = [self.upstream(kind=kind) for _ in range(count)]
        engine = model_members.pop("engine", kind)
        settings = weir_module.merge({"models": [model(*ups, engine=engine, **model_members)]}, settings)
        site = Site(self.weir(settings), ups)
        site.weir.wait_for_replicas(ups)
        return site

    def close(self, failed=False):
        problems = []
        for w in self.weirs:
            try:
                was_alive = w.is_alive
                status = w.stop()
                assert status == 0 or not was_alive, f"ended with {status}:\n{w.stderr[-3000:]}"
                w.assert_no_reports()
                shutil.rmtree(w.folder, ignore_errors=True)
            except AssertionError as e:
                problems.append(str(e))
        for u in self.upstreams:
            u.stop()
        assert not problems, "\n".join(problems)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what its weir said."""
    report = yield
    if report.failed:
        shown = {}
        for value in item.funcargs.values():
            for weir in [getattr(value, "weir", None), *getattr(value, "weirs", [])]:
                if isinstance(weir, Weir):
                    shown[weir.pid] = weir
        for pid, weir in shown.items():
            if weir.stderr_file.exists():
                report.sections.append((f"stderr of weir {pid}", weir.stderr[-4000:]))
    return report


@pytest.fixture(scope="module")
def shared_workshop():
    w = Workshop()
    yield w
    w.close()


@pytest.fixture
def workshop():
    """For what a test starts for itself. All weirs must be sound at the end."""
    w = Workshop()
    yield w
    client.close_all()
    try:
        for weir in w.weirs:
            weir.assert_sound()
    finally:
        w.close()


@pytest.fixture(scope="module")
def shared_site(request, shared_workshop):
    """From the module's SITE: keyword arguments of Workshop.site()."""
    return shared_workshop.site(**getattr(request.module, "SITE", {}))


@pytest.fixture
def site(shared_site):
    """The module's weir with its upstreams as new; sound again after the test."""
    shared_site.clear()
    assert shared_site.weir.is_alive, "weir did not survive an earlier test of this module"
    yield shared_site
    client.close_all()
    shared_site.clear()
    shared_site.weir.assert_sound()
