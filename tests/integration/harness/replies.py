"""What engines say: bodies, events and whole responses, as bytes."""
import json

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7,
         "prompt_tokens_details": {"cached_tokens": 3}}


def dumps(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def head(status=200, headers=(), reason="Whatever"):
    lines = [f"HTTP/1.1 {status} {reason}"] + [f"{k}: {v}" for k, v in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def reply(status, body, headers=(), content_type="application/json"):
    """A whole response with its length."""
    if not isinstance(body, bytes):
        body = dumps(body)
    return head(status, [("Content-Type", content_type), ("Content-Length", len(body)), *headers]) + body


def stream_head(headers=(), content_type="text/event-stream"):
    return head(200, [("Content-Type", content_type), ("Transfer-Encoding", "chunked"), *headers])


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def data_event(value):
    return b"data: " + (value if isinstance(value, bytes) else dumps(value)) + b"\n\n"


def named_event(name, value):
    return b"event: " + name.encode() + b"\n" + data_event(value)


DONE = data_event(b"[DONE]")


# ---- chat ----

def chat_chunk(delta, finish=None, model="engine-side", **members):
    return data_event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1796100564, "model": model,
                       "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **members})


ROLE = chat_chunk({"role": "assistant", "content": ""})
FINISH = chat_chunk({}, "stop")


def word(text):
    return chat_chunk({"content": text})


def usage_chunk(usage=USAGE):
    return data_event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1796100564,
                       "model": "engine-side", "choices": [], "usage": usage})


def chat_events(words=("Hel", "lo"), usage=True):
    return [ROLE, *map(word, words), FINISH, *([usage_chunk()] if usage else []), DONE]


def chat_json(text="Hello", usage=USAGE, **members):
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1796100564, "model": "engine-side",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": usage, **members}


# ---- completions ----

def completion_events(words=("Hel", "lo")):
    def one(text, finish=None):
        return data_event({"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "engine-side",
                           "choices": [{"index": 0, "text": text, "finish_reason": finish}]})
    usage = data_event({"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "engine-side",
                        "choices": [], "usage": USAGE})
    return [*map(one, words), one("", "stop"), usage, DONE]


# ---- messages ----

MESSAGE_START = named_event("message_start", {
    "type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [],
                                         "model": "engine-side", "stop_reason": None, "stop_sequence": None,
                                         "usage": {"input_tokens": 5, "output_tokens": 0}}})
BLOCK_START = named_event("content_block_start", {
    "type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
BLOCK_STOP = named_event("content_block_stop", {"type": "content_block_stop", "index": 0})
MESSAGE_STOP = named_event("message_stop", {"type": "message_stop"})


def text_delta(text):
    return named_event("content_block_delta", {"type": "content_block_delta", "index": 0,
                                               "delta": {"type": "text_delta", "text": text}})


def message_delta(output_tokens=2):
    return named_event("message_delta", {"type": "message_delta",
                                         "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                                         "usage": {"output_tokens": output_tokens}})


def message_events(words=("Hel", "lo")):
    return [MESSAGE_START, BLOCK_START, *map(text_delta, words), BLOCK_STOP, message_delta(), MESSAGE_STOP]


def message_json(text="Hello"):
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "engine-side",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 3}}


def anthropic_error(kind="overloaded_error", message="Overloaded"):
    return {"type": "error", "error": {"type": kind, "message": message}}


# ---- responses ----

def response_event(kind, sequence, **members):
    return named_event(kind, {"type": kind, "sequence_number": sequence, **members})


def response_events(words=("Hel", "lo")):
    start = [response_event("response.created", 0, response={"id": "resp_1", "status": "in_progress"}),
             response_event("response.in_progress", 1, response={"id": "resp_1", "status": "in_progress"}),
             response_event("response.output_item.added", 2, item={"id": "msg_1", "type": "message"}),
             response_event("response.content_part.added", 3, item_id="msg_1", part={"type": "output_text"})]
    middle = [response_event("response.output_text.delta", 4 + i, item_id="msg_1", delta=w)
              for i, w in enumerate(words)]
    end = response_event("response.completed", 4 + len(words), response={
        "id": "resp_1", "status": "completed",
        "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}})
    return start + middle + [end]


# ---- what engines answer to errors, by their own forms ----

LLAMA_OVERFLOW = {"error": {
    "code": 400, "message": "request (9031 tokens) exceeds the available context size (2048 tokens), try increasing it",
    "type": "exceed_context_size_error", "n_prompt_tokens": 9031, "n_ctx": 2048}}
VLLM_OVERFLOW = {"error": {
    "message": "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input "
               "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
               "input prompt. (parameter=input_tokens, value=2049)",
    "type": "BadRequestError", "param": "input_tokens", "code": 400}}
SGLANG_OVERFLOW = {"object": "error", "message": "The input (9031 tokens) is longer than the model's context length "
                   "(2048 tokens).", "type": "BadRequestError", "param": None, "code": 400}
OPENAI_OVERFLOW = {"error": {
    "message": "This model's maximum context length is 2048 tokens.", "type": "invalid_request_error",
    "param": "messages", "code": "context_length_exceeded"}}
VLLM_BUSY = {"error": {
    "message": "The engine is currently busy and cannot accept new requests. Please try again later or on a different "
               "instance.", "type": "Service Unavailable", "param": None, "code": 503}}
VLLM_DRAINING = {"error": {"message": "cannot schedule new futures after shutdown", "type": "InternalServerError",
                           "param": None, "code": 500}}
LLAMA_LOADING = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}


def openai_error(message="the engine says no", type_="invalid_request_error", code=None, param=None):
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
