"""One line per request, with what operators ask for."""
import json
import os
import re
import signal

from harness import client, replies
from harness import upstream as u
from harness.client import ask, chat, get, messages
from harness.replies import DONE, FINISH, ROLE, word
from harness.wait import eventually
from harness.weir import merge

SITE = {"slo": {"ttft": "10s", "tpot": "10s"}}

FIELDS = {"time", "id", "client", "surface", "model", "pool", "replica", "tries", "status", "outcome", "reason", "stream",
          "good", "late", "bytes_in", "bytes_out", "tokens_in", "tokens_out", "tokens_cached", "usage_known", "duration_ms",
          "ttft_ms", "tpot_ms", "longest_gap_ms", "queue_ms"}


def line_of(site, response):
    return site.weir.access_of(response.header("x-request-id"))


def test_a_good_stream(site):
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 8}}
    site.up.next(u.stream(ROLE, *map(word, "abcd"), FINISH, replies.usage_chunk(usage), DONE))
    response = chat(site.port, stream=True)
    line = line_of(site, response)
    assert set(line) == FIELDS
    assert (line["surface"], line["model"], line["pool"], line["replica"]) == ("chat", "m", "p", site.up.url)
    assert (line["status"], line["outcome"], line["reason"], line["tries"]) == (200, "ok", "ok", 1)
    assert (line["tokens_in"], line["tokens_out"], line["tokens_cached"], line["usage_known"]) == (9, 4, 8, True)
    assert line["stream"] is True and line["good"] is True and not line["late"]
    assert 0 <= line["ttft_ms"] <= line["duration_ms"] and line["tpot_ms"] >= 0 and line["queue_ms"] >= 0
    assert line["bytes_out"] >= len(response.body) * 0.9
    assert re.match(r"^127\.0\.0\.1(:\d+)?$", line["client"])
    assert re.match(r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$", line["time"])


def test_a_whole_answer(site):
    line = line_of(site, chat(site.port))
    assert (line["stream"], line["status"], line["outcome"]) == (False, 200, "ok")
    assert (line["tokens_in"], line["tokens_out"], line["tokens_cached"]) == (5, 2, 3)
    assert line["tpot_ms"] is None


def test_an_engines_refusal(site):
    site.up.next(u.answer(400, replies.openai_error("no")))
    line = line_of(site, chat(site.port))
    assert (line["status"], line["outcome"], line["good"]) == (400, "client_fault", None)
    assert line["replica"] == site.up.url and line["reason"]


def test_weirs_own_refusals(site):
    for response, status, reason in ((chat(site.port, model="nope"), 404, "unknown_model"),
                                     (ask(site.port, "/v1/chat/completions", b"{"), 400, "bad_json"),
                                     (get(site.port, "/nonsense"), 404, "unknown_path")):
        line = line_of(site, response)
        assert (line["status"], line["reason"], line["tries"], line["replica"]) == (status, reason, 0, None) or (
            line["replica"] in ("", None) and line["status"] == status and line["reason"] == reason)
        assert line["outcome"] == "client_fault"


def test_context_overflow_has_its_reason(site):
    site.up.next(u.answer(400, replies.VLLM_OVERFLOW))
    line = line_of(site, chat(site.port))
    assert (line["status"], line["reason"], line["outcome"]) == (400, "context_length", "client_fault")


def test_a_truncated_stream(site):
    site.up.next(u.stream(ROLE, word("a"), end=b"", then="fin"))
    line = line_of(site, chat(site.port, stream=True))
    assert (line["status"], line["outcome"], line["good"], line["reason"]) == (200, "failed", False, "upstream")


def test_messages(site):
    line = line_of(site, messages(site.port, stream=True))
    assert (line["surface"], line["tokens_in"], line["tokens_out"]) == ("messages", 5, 2)


def test_other_surfaces(site):
    line = line_of(site, ask(site.port, "/v1/embeddings", {"model": "m", "input": "x"}))
    assert line["surface"] == "embeddings" and line["good"] is None


def test_hostile_names_cannot_forge_lines(site):
    nasty = 'x","status":200}\n{"id":"forged\r\n\u2028' + "y" * 1000
    response = ask(site.port, "/v1/chat/completions", json.dumps({"model": nasty}).encode())
    line = line_of(site, response)
    assert line["status"] in (400, 404) and len(line["model"] or "") <= 64
    assert not any(r["id"] == "forged" for r in site.weir.access)
    site.up.next(u.answer(400, b'{"error":{"message":"\\n{\\"id\\":\\"forged\\"}"}}'))
    chat(site.port)
    get(site.port, '/x","y":"%0a{')
    assert all(set(r) == FIELDS for r in site.weir.access)


def test_prompts_and_answers_are_not_logged(site):
    site.up.next(u.answer(200, replies.chat_json("the-secret-answer")))
    line_of(site, chat(site.port, text="the-secret-prompt", headers=[("Authorization", "Bearer the-secret-key")]))
    everything = site.weir.stderr + site.weir.stdout + "\n".join(site.weir.access_lines)
    assert "the-secret" not in everything


def test_each_request_has_exactly_one_line(site):
    ids = [f"one-{i}" for i in range(50)]
    with client.Connection(site.port) as c:
        for i in ids:
            c.send(client.request_bytes("/v1/chat/completions", client.chat_body(stream=i.endswith("7")),
                                        headers=[("x-request-id", i)]))
            c.read_response()
    for i in ids:
        site.weir.access_of(i)


def test_text_format(workshop):
    site = workshop.site(settings={"access_log": {"format": "text"}})
    chat(site.port, headers=[("x-request-id", "abc")])
    eventually(lambda: "id=abc" in "\n".join(site.weir.access_lines), "a line")
    (line,) = [line for line in site.weir.access_lines if "id=abc" in line]
    assert "id=abc" in line and "model=m" in line and "status=200" in line


def test_standard_output(workshop):
    site = workshop.site(settings={"access_log": {"path": "-"}})
    chat(site.port, headers=[("x-request-id", "abc")])
    eventually(lambda: '"id":"abc"' in site.weir.stdout, "a line on standard output")


def test_rotation(workshop):
    site = workshop.site()
    first = chat(site.port)
    site.weir.access_of(first.header("x-request-id"))
    os.rename(site.weir.access_file, site.weir.access_file.with_suffix(".1"))
    site.weir.signal(signal.SIGUSR1)
    eventually(site.weir.access_file.exists, "the file is opened anew")
    second = chat(site.port)
    site.weir.access_of(second.header("x-request-id"))
    assert len(site.weir.access) == 1


def test_full_disk_is_said_and_serving_goes_on(workshop):
    site = workshop.site(settings={"access_log": {"path": "/dev/full"}})
    assert chat(site.port).status == 200
    eventually(lambda: re.search("/dev/full: No space left", site.weir.stderr), "said")
    many = client.request_bytes("/v1/models", method="GET", headers=[("x-request-id", "i" * 60)]) * 100

    def lost_some():
        """Lines are held in memory for a while, so it takes some thousands."""
        with client.Connection(site.port) as c:
            c.send(many)
            for _ in range(100):
                assert c.read_response().status == 200
        return site.weir.metrics().value("weir_access_log_lost_lines_total") > 0
    eventually(lost_some, "lost lines are counted", timeout=60)
    assert chat(site.port).status == 200


def test_unwritable_path_is_refused_at_start(workshop):
    weir = workshop.weir(merge({"access_log": {"path": "/nonexistent/folder/log"}},
                               {"models": [{"name": "m", "pools": [{"replicas": ["http://127.0.0.1:1"]}]}]}), wait=False)
    assert weir.wait_for_end() == 1
    assert "/nonexistent/folder/log" in weir.stderr and "No such file" in weir.stderr
