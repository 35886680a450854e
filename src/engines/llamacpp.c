/*
 * llamacpp.c - llama.cpp's server, also inside other packages. Everything answers 503 while the
 * model loads. /metrics needs --metrics, /slots is on by default; each fills in what it knows.
 *
 * It has no gauge for its KV cache: what the busy slots hold, over the sum of the slots' contexts.
 * The prefix cache is per slot.
 */
#include "engines/answers.h"
#include "engines/prometheus.h"

enum { RUNNING, WAITING, COMPUTED, CACHED, WANTS };

static void read_metrics(struct slice body, struct engine_facts *facts)
{
    struct metric_want wants[WANTS] = {
        [RUNNING] = {.names = {"llamacpp:requests_processing"}},
        [WAITING] = {.names = {"llamacpp:requests_deferred"}},
        [COMPUTED] = {.names = {"llamacpp:prompt_tokens"}},
        [CACHED] = {.names = {"llamacpp:prompt_tokens_cached"}},
    };
    metric_read(body, wants, WANTS);
    if (!metric_seen(&wants[RUNNING]))
        return;
    facts->has_load = true;
    facts->running = metric_u32(&wants[RUNNING]);
    facts->waiting = metric_u32(&wants[WAITING]);
    if (!metric_seen(&wants[CACHED]))
        return; /* older builds do not count hits */
    uint64_t queries;
    uint64_t hits = metric_u64(&wants[CACHED]);
    if (__builtin_add_overflow(metric_u64(&wants[COMPUTED]), hits, &queries))
        return;
    facts->prefix_queries = queries;
    facts->prefix_hits = hits;
}

/* Tokens of the answer so far; "next_token" is a list of one, in older builds the object itself. */
static uint32_t decoded(const struct json_value *slot)
{
    const struct json_value *next = json_get(slot, "next_token");
    return engine_u32(json_is_array(next) ? json_at(next, 0) : next, "n_decoded");
}

static void read_slots(struct slice body, struct engine_facts *facts)
{
    struct json_doc *doc = json_parse(body);
    const struct json_value *slot;
    size_t pos = 0;
    uint64_t context = 0, used = 0;
    uint32_t slots = 0, busy = 0;
    while (json_next_element(json_root(doc), &pos, &slot)) {
        slots++;
        context += engine_u32(slot, "n_ctx");
        if (!json_bool(json_get(slot, "is_processing"), false))
            continue; /* what an idle slot holds is cache, not pressure */
        busy++;
        used += (uint64_t)engine_u32(slot, "n_prompt_tokens") + decoded(slot);
    }
    json_doc_free(doc);
    if (slots == 0 || context == 0)
        return;
    facts->slots = slots;
    facts->kv_tokens = context;
    facts->kv_used_ppm =
        used < context ? (uint32_t)((double)used * 1e6 / (double)context) : 1000000;
    if (!facts->has_load) { /* without --metrics: its queue stays unknown */
        facts->has_load = true;
        facts->running = busy;
    }
}

static void read_props(struct slice body, struct engine_facts *facts)
{
    struct json_doc *doc = json_parse(body);
    const struct json_value *props = json_root(doc);
    uint32_t slots = engine_u32(props, "total_slots");
    if (slots)
        facts->slots = slots;
    engine_set_version(facts, json_string(json_get(props, "build_info")));
    engine_limit_context(
        facts, json_int(json_get(json_get(props, "default_generation_settings"), "n_ctx"), 0));
    json_doc_free(doc);
}

static const char *const overflow[] = {
    "exceed_context_size_error",          /* the type, since 2025 */
    "exceeds the available context size", /* the message */
    NULL,
};

static const char *const loading[] = {"Loading model", NULL};

const struct engine engine_llamacpp = {
    .name = "llamacpp",
    .help = "llama.cpp's server (llama-server, xllamacpp)",
    .health_path = "/health",
    .once = {{"/props", read_props}, {"/v1/models", engine_read_models}},
    .scrape = {{"/metrics", read_metrics}, {"/slots", read_slots}},
    .says_overflow = overflow,
    .says_loading = loading,
    .owned_by = "llamacpp",
    .metric_prefix = "llamacpp:",
    .server = "llama.cpp",
    .accepts_any_model = true,
    .has_usage_option = true,
};
