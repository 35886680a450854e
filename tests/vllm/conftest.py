"""Fixtures. vLLM takes a minute to start, so engines are shared as widely as their tests allow."""
import shutil

import anthropic
import openai
import pytest

from harness.weir import Weir
from vllm_engine import Vllm

SDK = {"api_key": "sk-x", "max_retries": 0, "timeout": 300}


class Workshop:
    """Makes engines and weirs, and takes them all down: weirs first, and in order."""

    def __init__(self):
        self.engines, self.weirs = [], []

    def engines_with(self, *arguments, count=1):
        """`count` vLLMs, all starting at once; ready."""
        started = [Vllm(*arguments) for _ in range(count)]
        self.engines += started
        for engine in started:
            engine.wait_until_ready()
        return started

    def weir(self, *args, **kwargs):
        weir = Weir(*args, **kwargs)
        self.weirs.append(weir)
        return weir

    def close(self):
        problems = []
        for weir in self.weirs:
            try:
                status = weir.stop()
                assert status == 0, f"weir ended with {status}:\n{weir.stderr[-3000:]}"
                weir.assert_no_reports()
                shutil.rmtree(weir.folder, ignore_errors=True)
            except AssertionError as e:
                problems.append(str(e))
        for engine in self.engines:
            engine.stop()
        assert not problems, "\n".join(problems)


@pytest.fixture(scope="session")
def session_workshop():
    workshop = Workshop()
    yield workshop
    workshop.close()


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop()
    yield workshop
    workshop.close()


@pytest.fixture(scope="session")
def plain(session_workshop):
    """A vLLM as serve.sh starts it. Tests load it but never harm it."""
    (engine,) = session_workshop.engines_with()
    return engine


@pytest.fixture
def openai_client(weir):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{weir.port}/v1", **SDK) as c:
        yield c


@pytest.fixture
def anthropic_client(weir):
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{weir.port}", **SDK) as c:
        yield c


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what its weir said."""
    report = yield
    weir = item.funcargs.get("weir")
    if report.failed and weir and weir.stderr_file.exists():
        report.sections.append(("stderr of weir", weir.stderr[-6000:]))
    return report
