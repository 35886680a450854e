"""`weir check`: every mistake with file, line, column, caret and remedy; defaults that can be printed."""
import os
import re
import subprocess

import pytest
import yaml

from harness.weir import BINARY

GOOD = """\
listen: 127.0.0.1:8080
models:
  - name: m
    aliases: [fast]
    slo: {ttft: 500ms, tpot: 50ms}
    pools:
      - name: p
        engine: vllm
        replicas: [http://127.0.0.1:8000]
"""


def check(tmp_path, text, *arguments, name="weir.yaml", environment=None):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return subprocess.run([BINARY, "check", *arguments, str(path)], capture_output=True, text=True, timeout=30,
                          env={**os.environ, **(environment or {})})


def said(run):
    return run.stdout + run.stderr


def test_a_good_file_is_ok(tmp_path):
    run = check(tmp_path, GOOD)
    assert run.returncode == 0, said(run)


MISTAKES = {
    # name: (old, new, line, words that the report has)
    "unknown option": ("listen:", "lisen:", 1, ["lisen", "listen"]),
    "unknown member": ("    aliases:", "    alias:", 4, ["alias", "aliases"]),
    "unknown engine": ("engine: vllm", "engine: vlm", 8, ["vlm", "vllm"]),
    "bad url": ("http://127.0.0.1:8000", "htp://127.0.0.1:8000", 9, ["htp://127.0.0.1:8000", "http"]),
    "bad duration": ("500ms", "500", 5, ["500"]),
    "bad unit": ("500ms", "500 parsecs", 5, ["500 parsecs"]),
    "bad address": ("127.0.0.1:8080", "127.0.0.1:99999", 1, ["99999"]),
    "list for a word": ("name: m", "name: [m]", 3, ["name"]),
    "word for a list": ("replicas: [http://127.0.0.1:8000]", "replicas: {a: b}", 9, ["replicas"]),
    "unknown policy": ("engine: vllm", "routing: {policy: least-laod}\n        engine: vllm", 8, ["least-laod", "least-load"]),
    "https engine": ("http://127.0.0.1:8000", "https://127.0.0.1:8000", 9, ["https"]),
    "user in url": ("http://127.0.0.1:8000", "http://u:pw@127.0.0.1:8000", 9, ["http"]),
    "duplicate key": ("engine: vllm", "engine: vllm\n        engine: sglang", 9, ["engine"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_its_place_caret_and_remedy(tmp_path, name):
    old, new, line, words = MISTAKES[name]
    run = check(tmp_path, GOOD.replace(old, new, 1))
    assert run.returncode == 1, said(run)
    report = said(run)
    place = re.search(r"weir\.yaml:(\d+):(\d+)", report)
    assert place and int(place.group(1)) == line, report
    assert "^" in report
    for word in words:
        assert word in report, report


def test_all_mistakes_are_reported_at_once(tmp_path):
    text = GOOD.replace("listen:", "lisen:").replace("engine: vllm", "engine: vlm").replace("500ms", "soon")
    report = said(check(tmp_path, text))
    lines = {int(n) for n in re.findall(r"weir\.yaml:(\d+):\d+", report)}
    assert {1, 5, 8} <= lines, report


@pytest.mark.parametrize("text", ["", "# only a comment\n", "models: []\n", "listen: 127.0.0.1:1\n"])
def test_nothing_to_serve_is_a_mistake(tmp_path, text):
    run = check(tmp_path, text)
    assert run.returncode == 1 and "models" in said(run)


@pytest.mark.parametrize("text", ["models: [", "models:\n\t- name: m", "a: b: c", "- 1\n- 2", "just words", "models: *nope",
                                  b"\xff\xfe\x00", b"a: \x00", "? [a]: b", "&a [*a]", "<<: {a: b}", "models: !!python/object:x {}"])
def test_broken_yaml_is_said_with_its_place(tmp_path, text):
    run = check(tmp_path, text)
    assert run.returncode == 1 and "weir.yaml" in said(run)
    assert run.returncode >= 0, "no crash"


def test_yaml_bombs_are_survived(tmp_path):
    laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12))
    for text in (laughs, "models: " + "[" * 50_000, "models: " + "{a: " * 20_000, "x: " + "y" * (3 << 20)):
        run = check(tmp_path, text)
        assert run.returncode == 1, said(run)[:500]
        assert len(said(run)) < 200_000


def test_names_that_clash_are_a_mistake(tmp_path):
    extra = "  - name: fast\n    pools: [{name: p, engine: vllm, replicas: [http://127.0.0.1:1]}]\n"
    report = said(check(tmp_path, GOOD + extra))
    assert "fast" in report and "weir.yaml:10" in report


def test_model_without_replicas_is_a_mistake(tmp_path):
    run = check(tmp_path, "models:\n  - name: m\n    pools: [{name: p, engine: vllm}]\n")
    assert run.returncode == 1 and "replicas" in said(run)


def test_several_files_and_missing_ones(tmp_path):
    run = subprocess.run([BINARY, "check", str(tmp_path / "none.yaml")], capture_output=True, text=True, timeout=30)
    assert run.returncode == 1 and "none.yaml" in said(run) and "No such file" in said(run)


def test_secrets_are_not_shown(tmp_path):
    (tmp_path / "key").write_text("top-secret-key\n")
    text = GOOD.replace("engine: vllm", f"engine: vllm\n        api_key_file: {tmp_path / 'key'}\n        enigne: x")
    report = said(check(tmp_path, text))
    assert "top-secret-key" not in report and "enigne" in report


@pytest.mark.parametrize("what", ["policies", "options", "engines"])
def test_tables_can_be_listed(what):
    run = subprocess.run([BINARY, "check", "--list", what], capture_output=True, text=True, timeout=30)
    assert run.returncode == 0, run.stderr
    expected = {"policies": ["round-robin", "least-load", "power-of-two", "session-affinity"],
                "options": ["limits.body", "timeouts.first_byte"],
                "engines": ["vllm", "sglang", "trtllm", "llamacpp", "openai"]}[what]
    for word in expected:
        assert word in run.stdout


def test_defaults_are_a_file_that_checks_itself(tmp_path):
    run = subprocess.run([BINARY, "check", "--defaults"], capture_output=True, text=True, timeout=30)
    assert run.returncode == 0 and "first_byte" in run.stdout
    values = yaml.safe_load(run.stdout)
    assert isinstance(values, dict) and values["timeouts"]["connect"]
    values["models"] = yaml.safe_load(GOOD)["models"]
    values.pop("backends", None)
    assert check(tmp_path, yaml.safe_dump(values)).returncode == 0
