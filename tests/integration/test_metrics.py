"""The metrics page: readable by Prometheus, and its figures are those of the traffic that was sent."""
import re

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, ask, chat, chat_body, get, messages, request_bytes
from harness.replies import DONE, FINISH, ROLE, word
from harness.wait import eventually
from harness.weir import model



@pytest.fixture(scope="module")
def shared_site(shared_workshop):
    from conftest import Site
    ups = [shared_workshop.upstream(), shared_workshop.upstream(kind="llamacpp")]
    models = [model(ups[0], name="m", slo={"ttft": "10s", "tpot": "10s"}),
              model(ups[0], name="hurried", slo={"ttft": "1ms", "tpot": "10s"}),
              model(ups[1], name="llama", engine="llamacpp"), model(ups[0], name="free")]
    return Site(shared_workshop.weir({"models": models, "workers": 2}), ups)


def change(site, do, settled):
    """The page before and after `do`, once `settled(before, after)`."""
    before = site.weir.metrics()
    do()
    eventually(lambda: settled(before, site.weir.metrics()), "the figures follow the traffic")
    return before, site.weir.metrics()


def test_page_is_the_text_format_and_every_family_has_help_and_type(site):
    chat(site.port, stream=True)
    response = get(site.weir.admin, "/metrics")
    assert response.header("content-type").startswith("text/plain; version=0.0.4")
    page = response.body.decode()
    families = re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M)
    assert len(families) == len(set(families)) and {t for _, t in families} <= {"counter", "gauge", "histogram"}
    assert {n for n, _ in families} == set(re.findall(r"^# HELP (\S+) \S", page, re.M))
    for family in site.weir.metrics().families:
        assert family.documentation, family.name
        samples = [(s.name, tuple(sorted(s.labels.items()))) for s in family.samples]
        assert len(samples) == len(set(samples)), f"a series twice in {family.name}"


def test_counts_by_outcome(site):
    def traffic():
        for _ in range(4):
            assert chat(site.port).status == 200
        for _ in range(3):
            site.up.next(u.answer(400, {}))
            chat(site.port)
        site.up.next(u.answer(500, {}))
        chat(site.port)
        for _ in range(2):
            site.up.next(u.stream(ROLE, word("a"), end=b"", then="fin"))
            chat(site.port, stream=True)
        for _ in range(2):
            site.up.next(u.silent)
            count = len(site.up.requests)
            with Connection(site.port) as c:
                c.send(request_bytes("/v1/chat/completions", chat_body()))
                site.up.wait_for_requests(count + 1)

    def value(page, outcome):
        return page.value("weir_requests_total", model="m", outcome=outcome)
    before, after = change(site, traffic, lambda b, a: value(a, "abandoned") >= value(b, "abandoned") + 2)
    moved = {o: value(after, o) - value(before, o) for o in ("ok", "client_fault", "failed", "abandoned", "shed")}
    assert moved == {"ok": 4, "client_fault": 3, "failed": 3, "abandoned": 2, "shed": 0}
    offered = after.value("weir_offered_requests_total", model="m") - before.value("weir_offered_requests_total", model="m")
    assert offered == 7, "client faults and the abandoned are not offered"


def test_tokens_and_bytes(site):
    body = replies.dumps(chat_body(stream=True))

    def traffic():
        for _ in range(5):
            assert ask(site.port, "/v1/chat/completions", body).status == 200

    def of(page, name, **labels):
        return page.value(name, model="m", **labels)
    before, after = change(site, traffic, lambda b, a: of(a, "weir_requests_total") >= of(b, "weir_requests_total") + 5)
    for direction, each in (("in", 5), ("out", 2), ("cached", 3)):
        assert of(after, "weir_tokens_total", direction=direction) - of(before, "weir_tokens_total", direction=direction) == 5 * each
    assert of(after, "weir_request_bytes_total") - of(before, "weir_request_bytes_total") == 5 * len(body)
    shown = len(b"".join(replies.chat_events(usage=False)))
    assert of(after, "weir_response_bytes_total") - of(before, "weir_response_bytes_total") == pytest.approx(5 * shown, rel=0.2)


def test_goodput_counts_what_kept_its_promise(site):
    def slow_first_token(x):
        x.send(replies.stream_head() + replies.chunk(ROLE))
        x.peer_left(0.05)
        x.send(b"".join(map(replies.chunk, (word("a"), word("b"), FINISH, DONE))) + replies.LAST_CHUNK)

    def traffic():
        for name in ("m", "hurried"):
            for _ in range(3):
                site.up.next(slow_first_token)
                assert chat(site.port, model=name, stream=True).is_complete

    def good(page, name):
        return page.value("weir_good_requests_total", model=name)

    def offered(page, name):
        return page.value("weir_offered_requests_total", model=name)
    before, after = change(site, traffic, lambda b, a: offered(a, "hurried") >= offered(b, "hurried") + 3)
    assert good(after, "m") - good(before, "m") == 3
    assert good(after, "hurried") - good(before, "hurried") == 0
    assert (after.value("weir_late_requests_total", model="hurried", promise="ttft")
            - before.value("weir_late_requests_total", model="hurried", promise="ttft")) == 3
    eventually(lambda: site.weir.metrics().find("weir_slo_attainment_ratio", model="hurried")
               and all(s.value < 1 for s in site.weir.metrics().find("weir_slo_attainment_ratio", model="hurried")),
               "attainment of a broken promise is below 1")
    assert after.value("weir_slo_ttft_seconds", model="m") == 10
    assert not after.find("weir_slo_ttft_seconds", model="free")


@pytest.mark.parametrize("name", ["weir_time_to_first_token_seconds", "weir_inter_token_latency_seconds",
                                  "weir_request_duration_seconds", "weir_queue_time_seconds",
                                  "gen_ai_server_request_duration_seconds", "gen_ai_server_time_to_first_token_seconds",
                                  "gen_ai_server_time_per_output_token_seconds"])
def test_histograms_add_up(site, name):
    for _ in range(3):
        site.up.next(u.stream(ROLE, *[word(f"w{i}") for i in range(5)], FINISH, replies.usage_chunk(
            {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}), DONE))
        chat(site.port, stream=True)
    eventually(lambda: site.weir.metrics().value(name + "_count") >= 3, f"{name} has observations")
    page = site.weir.metrics()
    series = {}
    for s in page.find(name + "_bucket"):
        key = tuple(sorted((k, v) for k, v in s.labels.items() if k != "le"))
        series.setdefault(key, []).append((float(s.labels["le"]), s.value))
    assert series
    for key, buckets in series.items():
        bounds, counts = zip(*buckets)
        assert list(bounds) == sorted(bounds) and bounds[-1] == float("inf")
        assert list(counts) == sorted(counts)
        for end, test in (("_count", lambda v: v == counts[-1]), ("_sum", lambda v: v >= 0)):
            (sample,) = [s for s in page.find(name + end) if s.labels == dict(key)]
            assert test(sample.value), (key, end, sample.value)


def test_open_telemetry_names_have_their_attributes(site):
    chat(site.port, stream=True)
    eventually(lambda: site.weir.metrics().find("gen_ai_server_request_duration_seconds_count"), "the series exists")
    (sample, *_) = site.weir.metrics().find("gen_ai_server_request_duration_seconds_count")
    assert {"gen_ai_operation_name", "gen_ai_provider_name"} <= set(sample.labels), sample.labels
    bounds = {float(s.labels["le"]) for s in site.weir.metrics().find("gen_ai_server_request_duration_seconds_bucket")}
    assert bounds == {0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, float("inf")}


def test_replica_states_and_what_engines_report(site):
    vllm, llama = site.upstreams
    label = '{engine="0",model_name="engine-side"}'
    vllm.metrics = (f"vllm:num_requests_running{label} 7\nvllm:num_requests_waiting{label} 3\n"
                    f"vllm:kv_cache_usage_perc{label} 0.5\nvllm:prefix_cache_queries_total{label} 200\n"
                    f"vllm:prefix_cache_hits_total{label} 50\nvllm:num_preemptions_total{label} 4\n").encode()
    llama.metrics = b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n"

    def of(name, model_name):
        return [s.value for s in site.weir.metrics().find(name, model=model_name)]
    eventually(lambda: of("weir_replica_reported_running", "m") == [7.0], "running as the engine says")
    assert of("weir_replica_reported_waiting", "m") == [3.0]
    assert of("weir_replica_kv_used_ratio", "m") == [0.5]
    assert of("weir_replica_prefix_hit_ratio", "m") == [0.25]
    assert of("weir_replica_preemptions_total", "m") == [4.0]
    eventually(lambda: of("weir_replica_reported_running", "llama") == [2.0], "running as llama.cpp says")
    states = {s.labels["state"]: s.value for s in site.weir.metrics().find("weir_replica_state", model="m")}
    assert states["ready"] == 1 and sum(states.values()) == 1


@pytest.mark.parametrize("page", [b"", b"\x00\xff binary", b"vllm:num_requests_running NaN\n" * 3, b"x" * (5 << 20),
                                  b'vllm:num_requests_running{a="\n', b"vllm:num_requests_running 1e999\n",
                                  b"vllm:num_requests_running -5\nvllm:kv_cache_usage_perc 7e300\n"])
def test_garbage_on_an_engines_metrics_page_does_no_harm(site, page):
    site.up.metrics = page
    count = len(site.up.probes)
    eventually(lambda: len([p for p in site.up.probes[count:] if p.path == "/metrics"]) >= 2, "it was scraped")
    assert chat(site.port).status == 200
    assert "nan" not in site.weir.metrics_text().lower()


def test_cardinality_is_bounded_by_the_configuration(site):
    before = len(site.weir.metrics().samples)
    for i in range(200):
        chat(site.port, model=f"unknown-{i}", headers=[("x-request-id", f"id-{i}"), ("x-session-id", f"s-{i}")])
        get(site.port, f"/nonsense/{i}")
    after = site.weir.metrics()
    assert len(after.samples) <= before + 50
    assert "unknown-" not in site.weir.metrics_text() and "nonsense" not in site.weir.metrics_text()
    assert after.value("weir_refused_requests_total") >= 400


def test_each_refusal_counts_once(site):
    def by_reason(page):
        return {s.labels["reason"]: s.value for s in page.find("weir_refused_requests_total")}

    def traffic():
        for _ in range(3):
            chat(site.port, model="nope")
        for _ in range(2):
            get(site.port, "/nonsense")
    before, after = change(site, traffic, lambda b, a: a.value("weir_refused_requests_total") >= b.value("weir_refused_requests_total") + 5)
    assert {k: v - by_reason(before)[k] for k, v in by_reason(after).items()} == {"unknown_model": 3, "other": 2}


def test_gateway_gauges(site):
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/models", method="GET"))
        assert c.read_response().status == 200
        eventually(lambda: site.weir.metrics().value("weir_connections_open") >= 1, "an open connection")
    page = site.weir.metrics()
    assert page.value("weir_config_generation") >= 1 and page.find("weir_build_info")[0].value == 1
    assert page.value("process_resident_memory_bytes") > 0 and page.value("process_open_fds") > 0
    eventually(lambda: site.weir.metrics().value("weir_connections_open") == 0, "closed again")


def test_retries_and_reuses_are_counted(site):
    def traffic():
        for _ in range(4):
            chat(site.port)
    before, after = change(site, traffic, lambda b, a: (
        a.value("weir_upstream_reuses_total") + a.value("weir_upstream_connects_total")
        >= b.value("weir_upstream_reuses_total") + b.value("weir_upstream_connects_total") + 4))
    assert after.value("weir_upstream_reuses_total") > before.value("weir_upstream_reuses_total")


def test_parse_errors_are_counted(site):
    before = site.weir.metrics().value("weir_parse_errors_total")
    with Connection(site.port) as c:
        c.send(b"\x16\x03\x01 nonsense\r\n\r\n")
        c.read_to_end()
    eventually(lambda: site.weir.metrics().value("weir_parse_errors_total") == before + 1, "counted")


def test_messages_count_like_chat(site):
    def count(page):
        return page.value("weir_requests_total", model="m", outcome="ok")

    def traffic():
        assert messages(site.port, stream=True).is_complete
        assert messages(site.port).status == 200
    before, after = change(site, traffic, lambda b, a: count(a) >= count(b) + 2)
    assert after.value("weir_tokens_total", model="m", direction="out") - before.value(
        "weir_tokens_total", model="m", direction="out") == 4


def test_surfaces_without_tokens_are_not_offered(site):
    def offered(page):
        return page.value("weir_offered_requests_total", model="m")

    def count(page):
        return page.value("weir_requests_total", model="m")
    before, after = change(site, lambda: ask(site.port, "/v1/embeddings", {"model": "m", "input": "x"}),
                           lambda b, a: count(a) == count(b) + 1)
    assert offered(after) == offered(before)


def test_admin_listener_refuses_what_it_does_not_know(site):
    assert get(site.weir.admin, "/nonsense").status == 404
    assert client.ask(site.weir.admin, "/metrics", b"", method="POST").status == 405
