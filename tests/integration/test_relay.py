"""Faithful relay: what the engine says arrives byte for byte, however it was cut on the way."""
import threading

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, ask, chat, chat_body, request_bytes
from harness.replies import DONE, FINISH, ROLE, chunk, stream_head, word

SITE = {"settings": {"timeouts": {"between_events": "20s", "first_byte": "20s"}}}

UTF8 = "你好🙂é\u2028"


def strict_chunks(events):
    return stream_head() + b"".join(map(chunk, events)) + replies.LAST_CHUNK


# ---- split points of responses ----

EVENTS = [ROLE, word(UTF8), word("x"), FINISH, replies.usage_chunk(), DONE]
SHOWN = b"".join(e for e in EVENTS if e != replies.usage_chunk())


def test_fr1_stream_arriving_one_byte_at_a_time_is_relayed_exactly(site):
    site.up.next(lambda x: x.send_bytewise(strict_chunks(EVENTS)))
    response = chat(site.port, stream=True)
    assert response.is_complete and response.body == SHOWN
    assert client.text_of(response.events) == UTF8 + "x"


def test_fr1_every_split_point_of_a_stream(site):
    """Two writes, cut at every byte; one connection to the client for all of them."""
    whole = strict_chunks([ROLE, word("你🙂"), FINISH, replies.usage_chunk(), DONE])
    expected = ROLE + word("你🙂") + FINISH + DONE
    with Connection(site.port) as c:
        for cut in range(1, len(whole)):
            def script(x, cut=cut):
                x.send(whole[:cut])
                x.send(whole[cut:])
            site.up.next(script)
            c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
            response = c.read_response()
            assert (response.is_complete, response.body) == (True, expected), f"cut at {cut}: {response}"


def test_every_split_point_of_a_whole_answer(site):
    body = replies.dumps(replies.chat_json("你🙂"))
    whole = replies.reply(200, body)
    with Connection(site.port) as c:
        for cut in range(1, len(whole)):
            def script(x, cut=cut):
                x.send(whole[:cut])
                x.send(whole[cut:])
            site.up.next(script)
            c.send(request_bytes("/v1/chat/completions", chat_body()))
            response = c.read_response()
            assert (response.status, response.body) == (200, body), f"cut at {cut}: {response}"


@pytest.mark.parametrize("status", [200, 400])
def test_whole_answer_one_byte_at_a_time(site, status):
    body = replies.dumps(replies.chat_json(UTF8) if status == 200 else replies.openai_error(UTF8))
    site.up.next(lambda x: x.send_bytewise(replies.reply(status, body)))
    response = chat(site.port)
    assert (response.status, response.body) == (status, body)


def test_fr1_each_chunk_of_one_byte(site):
    data = b"".join(EVENTS)
    site.up.next(u.raw(stream_head() + b"".join(chunk(data[i:i + 1]) for i in range(len(data))) + replies.LAST_CHUNK))
    response = chat(site.port, stream=True)
    assert response.is_complete and response.body == SHOWN


def test_fr1_invalid_utf8_of_the_engine_is_passed_on(site):
    bad = b'data: {"choices":[{"index":0,"delta":{"content":"a\xff\xc3(\xf0\x9f"}}]}\n\n'
    site.up.next(u.stream(ROLE, bad, FINISH, DONE))
    response = chat(site.port, stream=True)
    assert response.is_complete and response.body == ROLE + bad + FINISH + DONE
    body = b'{"choices":[{"message":{"content":"\xff"}}]}'
    site.up.next(u.answer(200, body))
    assert chat(site.port).body == body


@pytest.mark.parametrize("surface, body, events", [
    ("/v1/chat/completions", chat_body(stream=True), replies.chat_events(usage=False)),
    ("/v1/completions", {"model": "m", "prompt": "x", "stream": True},
     [e for e in replies.completion_events() if b'"choices":[]' not in e]),
    ("/v1/messages", client.messages_body(stream=True), replies.message_events()),
    ("/v1/responses", {"model": "m", "input": "x", "stream": True}, replies.response_events()),
])
@pytest.mark.parametrize("each", [1, 7, 1 << 30])
def test_streams_of_every_surface_are_relayed_exactly(site, surface, body, events, each):
    site.up.next(u.stream(*events, each=each))
    response = ask(site.port, surface, body)
    assert response.status == 200 and response.is_complete and response.body == b"".join(events)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_of_all_three_kinds(site, end):
    events = [e.replace(b"\n", end) for e in (ROLE, word("Hi"), FINISH, DONE)]
    site.up.next(u.stream(*events, each=1))
    response = chat(site.port, stream=True)
    assert response.is_complete and response.body == b"".join(events)


def test_data_over_several_lines_and_without_the_space(site):
    odd = b'data:{"choices":[{"index":0,\ndata:"delta":{"content":"x"}}]}\n\n'
    site.up.next(u.stream(ROLE, odd, FINISH.replace(b"data: ", b"data:"), b"data:[DONE]\n\n"))
    response = chat(site.port, stream=True)
    assert response.body == ROLE + odd + FINISH.replace(b"data: ", b"data:") + b"data:[DONE]\n\n"
    assert response.is_complete


# ---- the response head ----

def test_fr32_stream_heads_defeat_buffering(site):
    response = chat(site.port, stream=True)
    assert response.header("content-type").startswith("text/event-stream")
    assert response.header("cache-control") == "no-cache" and response.header("x-accel-buffering") == "no"
    assert response.header("content-length") is None and response.header("transfer-encoding") == "chunked"


def test_one_header_of_each_kind(site):
    site.up.next(u.stream(*replies.chat_events(), headers=[("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no")]))
    response = chat(site.port, stream=True)
    for name in ("content-type", "cache-control", "x-accel-buffering", "x-request-id", "transfer-encoding"):
        assert len(response.header_values(name)) == 1, name


def test_close_delimited_whole_answer_gets_a_length(site):
    body = replies.dumps(replies.chat_json())
    site.up.next(u.raw(replies.head(200, [("Content-Type", "application/json")]) + body, then="fin"))
    response = chat(site.port)
    assert response.status == 200 and response.body == body and response.header("content-length") == str(len(body))


def test_fr04_close_delimited_whole_answer_that_ends_early_is_502(site):
    body = replies.dumps(replies.chat_json())[:-20]
    site.up.always(u.raw(replies.head(200, [("Content-Type", "application/json")]) + body, then="fin"))
    assert chat(site.port).status == 502


def test_chunked_whole_answer_is_relayed(site):
    body = replies.dumps(replies.chat_json(UTF8))
    site.up.next(u.raw(replies.head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")])
                       + b"".join(chunk(body[i:i + 5]) for i in range(0, len(body), 5)) + replies.LAST_CHUNK))
    response = chat(site.port)
    assert response.status == 200 and response.body == body


def test_chunk_extensions_and_trailers_of_the_engine_are_taken(site):
    head, events = stream_head(), (ROLE, word("x"), FINISH, DONE)
    framed = b"".join(b"%x;name=value\r\n%s\r\n" % (len(e), e) for e in events) + b"0\r\nX-Trailer: 1\r\n\r\n"
    site.up.next(u.raw(head + framed))
    response = chat(site.port, stream=True)
    assert response.is_complete and response.body == b"".join(events)


def test_whole_answer_to_a_stream_request_is_relayed(site):
    """An engine that ignores `stream`."""
    body = replies.dumps(replies.chat_json())
    site.up.next(u.answer(200, body))
    response = chat(site.port, stream=True)
    assert (response.status, response.body) == (200, body)


def test_stream_answer_to_a_whole_request_is_relayed(site):
    site.up.next(u.stream(*replies.chat_events(usage=False)))
    response = chat(site.port)
    assert response.status == 200 and response.body == b"".join(replies.chat_events(usage=False))


@pytest.mark.parametrize("first", [1, 10, 17, 60])
def test_head_that_comes_in_two_pieces_before_a_big_body(site, first):
    body = replies.dumps(replies.chat_json("z" * (2 << 20)))
    whole = replies.reply(200, body)

    def script(x):
        x.send(whole[:first])
        x.peer_left(0.05)  # the first piece is read alone
        x.send(whole[first:])
    site.up.next(script)
    response = chat(site.port)
    assert response.status == 200 and response.body == body


def test_head_of_a_stream_that_comes_in_two_pieces_before_many_events(site):
    events = [ROLE, *[word("w" * 500) for _ in range(2000)], FINISH, DONE]
    whole = strict_chunks(events)

    def script(x):
        x.send(whole[:20])
        x.peer_left(0.05)
        x.send(whole[20:])
    site.up.next(script)
    response = chat(site.port, stream=True)
    assert response.is_complete and response.body == b"".join(events)


def test_small_limits_for_events_hold_without_harm(workshop):
    """limits.event far below the size of one read."""
    site = workshop.site(settings={"limits": {"event": "4KiB", "response": "4KiB", "client_buffer": "4KiB"}})
    for data in (word("y" * 3000), word("y" * 20_000), word("y" * 300_000), b"data: " + b"x" * 100_000):
        site.up.next(u.stream(ROLE, word("a"), data, FINISH, DONE))
        response = chat(site.port, stream=True)
        assert response.status == 200 and response.body.startswith(ROLE + word("a"))
    body = replies.dumps(replies.chat_json("z" * 100_000))
    site.up.next(u.answer(200, body))
    assert chat(site.port).body == body


def test_interim_responses_of_the_engine_are_swallowed(site):
    body = replies.dumps(replies.chat_json())
    site.up.next(u.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + replies.reply(200, body)))
    response = chat(site.port)
    assert (response.status, response.body) == (200, body)


# ---- comments and unknown fields (FR-2) ----

META = [b":\n\n", b": keepalive\n\n", b"retry: 3000\n\n", b"id: 5\n\n", b"nonsense: 1\n\n", b"event\n\n", b":\r\n\r\n"]


def test_fr2_comments_and_unknown_fields_do_no_harm(site):
    site.up.next(u.stream(*META, ROLE, *META, word("Hi"), *META, FINISH, *META, DONE))
    response = chat(site.port, stream=True)
    assert response.is_complete
    kept = [e.raw + b"\n\n" for e in response.events if e.data is not None]
    assert kept == [ROLE, word("Hi"), FINISH, DONE]


def test_fr2_comments_do_not_count_as_first_token(site):
    go = threading.Event()

    def script(x):
        x.send(stream_head() + chunk(b":\n\n") + chunk(b": keepalive\n\n") + chunk(ROLE))
        x.hold(go)
        for e in (word("Hi"), FINISH, DONE):
            x.send(chunk(e))
        x.send(replies.LAST_CHUNK)
    site.up.next(script)
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True), headers=[("x-request-id", "fr2-ttft")]))
        site.up.wait_for_requests()
        threading.Timer(0.4, go.set).start()
        assert c.read_response().is_complete
    line = site.weir.access_of("fr2-ttft")
    assert line["ttft_ms"] >= 300, line  # the engine held the token back that long at least


def test_nothing_is_emitted_before_the_first_real_content(site):
    """Role chunks are held: else a later failure could not be hidden, and TTFT would be a lie."""
    go = threading.Event()

    def script(x):
        x.send(stream_head() + chunk(ROLE))
        x.hold(go)
        x.send(chunk(word("Hi")) + chunk(FINISH) + chunk(DONE) + replies.LAST_CHUNK)
    site.up.next(script)
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        site.up.wait_for_requests()
        c.timeout = 0.3
        c.fill()
        assert b"assistant" not in c.buffer and b"data:" not in c.buffer
        c.timeout = client.PATIENCE
        go.set()
        response = c.read_response()
    assert response.body == ROLE + word("Hi") + FINISH + DONE


@pytest.mark.parametrize("path, body, prelude, content, rest", [
    ("/v1/messages", client.messages_body(stream=True), [replies.MESSAGE_START, replies.BLOCK_START,
                                                         replies.named_event("ping", {"type": "ping"})],
     replies.text_delta("Hi"), [replies.BLOCK_STOP, replies.message_delta(), replies.MESSAGE_STOP]),
    ("/v1/responses", {"model": "m", "input": "x", "stream": True}, replies.response_events()[:4],
     replies.response_events()[4], replies.response_events()[5:]),
])
def test_prelude_of_other_surfaces_is_held_too(site, path, body, prelude, content, rest):
    go = threading.Event()

    def script(x):
        x.send(stream_head() + b"".join(map(chunk, prelude)))
        x.hold(go)
        x.send(chunk(content) + b"".join(map(chunk, rest)) + replies.LAST_CHUNK)
    site.up.next(script)
    with Connection(site.port) as c:
        c.send(request_bytes(path, body))
        site.up.wait_for_requests()
        c.timeout = 0.3
        c.fill()
        assert b"data:" not in c.buffer
        c.timeout = client.PATIENCE
        go.set()
        response = c.read_response()
    kept = [e for e in response.events if e.name != "ping"]
    wanted = [e for e in [*prelude, content, *rest] if b"event: ping" not in e]
    assert [e.raw + b"\n\n" for e in kept] == wanted and response.is_complete


def test_answer_without_any_content_still_ends_well(site):
    """An empty answer (stop at once) is a success: held events come out at the end."""
    site.up.next(u.stream(ROLE, FINISH, DONE))
    response = chat(site.port, stream=True)
    assert response.status == 200 and response.is_complete and response.body == ROLE + FINISH + DONE


@pytest.mark.parametrize("delta", [{"reasoning_content": "hm"}, {"reasoning": "hm"}, {"refusal": "no"},
                                   {"tool_calls": [{"index": 0, "id": "a", "type": "function",
                                                    "function": {"name": "f", "arguments": ""}}]}])
def test_reasoning_refusals_and_tool_calls_are_content(site, delta):
    go = threading.Event()
    first = replies.chat_chunk(delta)

    def script(x):
        x.send(stream_head() + chunk(ROLE) + chunk(first))
        x.hold(go)
        x.send(chunk(FINISH) + chunk(DONE) + replies.LAST_CHUNK)
    site.up.next(script)
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        c.read_until(first)
        go.set()
        assert c.read_response().body == ROLE + first + FINISH + DONE


def test_every_event_is_relayed_at_once(site):
    """The client sees each token before the next one is made."""
    steps = [threading.Event() for _ in range(5)]

    def script(x):
        x.send(stream_head() + chunk(ROLE))
        for i, step in enumerate(steps):
            x.send(chunk(word(f"w{i}")))
            x.hold(step)
        x.send(chunk(FINISH) + chunk(DONE) + replies.LAST_CHUNK)
    site.up.next(script)
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        for i, step in enumerate(steps):
            c.read_until(word(f"w{i}"))
            assert f"w{i + 1}".encode() not in c.buffer
            step.set()
        assert c.read_response().is_complete


# ---- split points of requests ----

def test_request_one_byte_at_a_time(site):
    body = ('{"model":"m","messages":[{"role":"user","content":"' + UTF8 + '"}]}').encode()
    with Connection(site.port) as c:
        c.send_bytewise(request_bytes("/v1/chat/completions", body, headers=[("X-A", "b")]))
        assert c.read_response().status == 200
    assert site.up.requests[0].body == body.replace(b'"m"', b'"engine-side"')


def test_every_split_point_of_a_request(site):
    whole = request_bytes("/v1/chat/completions", '{"model":"m","messages":[{"content":"🙂"}]}'.encode())
    with Connection(site.port) as c:
        for cut in range(1, len(whole)):
            c.send(whole[:cut])
            c.send(whole[cut:])
            assert c.read_response().status == 200, f"cut at {cut}"
    assert {r.body for r in site.up.requests} == {'{"model":"engine-side","messages":[{"content":"🙂"}]}'.encode()}


@pytest.mark.parametrize("step", [1, 3])
def test_chunked_request_one_byte_at_a_time(site, step):
    body = replies.dumps(chat_body(text=UTF8))
    framed = b"".join(chunk(body[i:i + step]) for i in range(0, len(body), step)) + replies.LAST_CHUNK
    with Connection(site.port) as c:
        c.send_bytewise(request_bytes("/v1/chat/completions", framed, headers=[("Transfer-Encoding", "chunked")],
                                      length=False))
        assert c.read_response().status == 200
    (seen,) = site.up.requests
    assert seen.body == body.replace(b'"m"', b'"engine-side"')
    assert seen.header("content-length") == str(len(seen.body)) and seen.header("transfer-encoding") is None


# ---- an event with no end (FR-3) ----

def test_fr3_event_without_end_streams_on_or_fails_in_bounded_memory(site):
    piece = chunk(b"x" * 65536)

    def script(x):
        x.send(stream_head() + chunk(ROLE) + chunk(word("Hi")) + chunk(b"data: "))
        for _ in range(64 * 16):
            x.send(piece)
        x.send(replies.LAST_CHUNK)
    site.up.next(script)
    before = site.weir.rss()
    with Connection(site.port, timeout=60) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        response = c.read_response()
    assert response.status == 200
    site.weir.assert_grew_less(before, 16 << 20)
    if not response.events[-1].is_error and response.is_complete:
        assert site.weir.access_of(response.header("x-request-id"))["usage_known"] is False


def test_fr3_long_but_whole_event_is_relayed(site):
    long = word("y" * (900 << 10))
    site.up.next(u.stream(ROLE, word("a"), long, FINISH, replies.usage_chunk(), DONE))
    response = chat(site.port, stream=True, stream_options={"include_usage": True}, timeout=30)
    assert response.body == ROLE + word("a") + long + FINISH + replies.usage_chunk() + DONE


def test_fr3_event_over_the_limit_is_relayed_unread_or_ends_in_an_error_event(site):
    """Past the limit only reading stops; what follows is read again, so a cut is still seen."""
    long = word("y" * (3 << 20))
    site.up.next(u.stream(ROLE, word("a"), long, FINISH, DONE))
    response = chat(site.port, stream=True, timeout=30)
    assert response.body.startswith(ROLE + word("a"))
    assert response.body == ROLE + word("a") + long + FINISH + DONE or response.events[-1].is_error
    site.up.next(u.stream(ROLE, word("a"), long, word("b"), end=b"", then="fin"))
    response = chat(site.port, stream=True, timeout=30)
    assert response.events[-1].is_error or not response.is_complete, "cut, and so no success"


def test_huge_whole_answer_streams_through_or_is_refused_clearly(site):
    body = replies.dumps(replies.chat_json("z" * (12 << 20)))
    site.up.next(u.answer(200, body))
    response = chat(site.port, timeout=30)
    assert response.status in (200, 502)
    if response.status == 200:
        assert response.is_complete and response.body == body


# ---- compressed bodies (FR-9) ----

def test_fr9_identity_is_asked_of_the_engine(site):
    chat(site.port, headers=[("Accept-Encoding", "gzip, br")])
    values = site.up.requests[0].header_values("accept-encoding")
    assert values in ([], ["identity"])


@pytest.mark.parametrize("streamed", [False, True])
def test_fr9_body_that_is_compressed_all_the_same_is_untouched_with_its_headers(site, streamed):
    import gzip
    plain = b"".join(replies.chat_events()) if streamed else replies.dumps(replies.chat_json())
    packed = gzip.compress(plain)
    kind = "text/event-stream" if streamed else "application/json"
    site.up.next(u.answer(200, packed, headers=[("Content-Encoding", "gzip")], content_type=kind))
    response = chat(site.port, stream=streamed, headers=[("Accept-Encoding", "gzip")])
    if response.header("content-encoding"):
        assert response.status == 200 and response.body == packed and response.is_complete
    else:
        assert response.status == 502 or response.body == plain


# ---- what is neither JSON nor an event stream (FR-35) ----

def test_fr35_other_content_types_are_relayed_unread(site):
    audio = bytes(range(256)) * 40 + b'data: {"error":{"message":"not for you"}}\n\n'
    site.up.next(u.answer(200, audio, content_type="audio/mpeg"))
    response = chat(site.port, stream=True)
    assert response.status == 200 and response.header("content-type") == "audio/mpeg" and response.body == audio
    site.up.next(u.raw(stream_head(content_type="audio/mpeg") + chunk(audio) + replies.LAST_CHUNK))
    response = chat(site.port, stream=True)
    assert response.is_complete and response.body == audio


# ---- pipelining and keep-alive ----

def test_keep_alive_serves_many_requests(site):
    with Connection(site.port) as c:
        for i in range(20):
            c.send(request_bytes("/v1/chat/completions", chat_body(stream=bool(i % 2))))
            assert c.read_response().is_complete
    assert len({r.connection for r in site.up.requests}) == 1, "one kept-alive connection to the engine does"


def test_pipelined_requests_are_answered_in_order(site):
    for i in range(5):
        site.up.next(u.answer(200, {"i": i}))
    with Connection(site.port) as c:
        c.send(b"".join(request_bytes("/v1/chat/completions", chat_body(text=str(i))) for i in range(5)))
        answers = [c.read_response().json["i"] for _ in range(5)]
    assert answers == list(range(5))
    assert [r.json["messages"][0]["content"] for r in site.up.requests] == [str(i) for i in range(5)]


def test_pipelined_after_a_stream(site):
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True))
               + request_bytes("/v1/models", method="GET") + request_bytes("/v1/chat/completions", chat_body()))
        assert c.read_response().body == b"".join(replies.chat_events(usage=False))
        assert c.read_response().json["object"] == "list"
        assert c.read_response().json["object"] == "chat.completion"


def test_http_1_0_client_gets_a_whole_answer_and_a_close(site):
    body = replies.dumps(chat_body())
    with Connection(site.port) as c:
        c.send(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
               % (len(body), body))
        response = c.read_response()
        assert response.status == 200 and response.json["choices"]
        assert c.is_closed_by_peer()


def test_http_1_0_stream_is_not_chunked(site):
    body = replies.dumps(chat_body(stream=True))
    with Connection(site.port) as c:
        c.send(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
               % (len(body), body))
        response = c.read_response()
    assert response.status in (200, 505, 400, 426)
    if response.status == 200:
        assert response.header("transfer-encoding") is None
        assert response.body == b"".join(replies.chat_events(usage=False))


def test_connection_close_is_honoured(site):
    for streamed in (False, True):
        with Connection(site.port) as c:
            c.send(request_bytes("/v1/chat/completions", chat_body(stream=streamed), headers=[("Connection", "close")]))
            response = c.read_response()
            assert response.is_complete and response.header("connection").lower() == "close"
            assert c.is_closed_by_peer()


def test_many_at_once_get_their_own_answers(site):
    def echo(x):
        text = x.seen.json["messages"][0]["content"]
        u._send_either(x, True, [ROLE, word(text), FINISH, DONE], None)
    site.up.always(echo)
    wrong = []

    def one(i):
        for j in range(5):
            text = f"{i}-{j}-{'é' * (i % 7)}"
            got = client.text_of(chat(site.port, stream=True, text=text, timeout=30).events)
            if got != text:
                wrong.append((text, got))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(40)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong
