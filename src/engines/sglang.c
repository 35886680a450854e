/*
 * sglang.c - SGLang 0.4 to 0.5. /metrics exists only with --enable-metrics; without it the load is
 * known from weir's own requests alone. /get_server_info became /server_info in 0.5.
 */
#include "engines/answers.h"
#include "engines/prometheus.h"

enum { RUNNING, WAITING, KV_USED, KV_TOKENS, QUERIES, HITS, PREEMPTIONS, WANTS };

static void read_metrics(struct slice body, struct engine_facts *facts)
{
    struct metric_want wants[WANTS] = {
        [RUNNING] = {.names = {"sglang:num_running_reqs"}},
        [WAITING] = {.names = {"sglang:num_queue_reqs"}},
        [KV_USED] = {.names = {"sglang:token_usage", "sglang:full_token_usage"}, .mean = true},
        [KV_TOKENS] = {.names = {"sglang:max_total_num_tokens"}},
        [QUERIES] = {.names = {"sglang:prompt_tokens"}},
        [HITS] = {.names = {"sglang:cached_tokens"}},
        /* Not num_retracted_reqs, which is a gauge of the last batch. */
        [PREEMPTIONS] = {.names = {"sglang:num_retracted_requests"}},
    };
    metric_read(body, wants, WANTS);
    if (!metric_seen(&wants[RUNNING]))
        return;
    facts->has_load = true;
    facts->running = metric_u32(&wants[RUNNING]);
    facts->waiting = metric_u32(&wants[WAITING]);
    facts->kv_used_ppm = metric_ppm(&wants[KV_USED]);
    if (metric_seen(&wants[KV_TOKENS]))
        facts->kv_tokens = metric_u64(&wants[KV_TOKENS]);
    facts->prefix_queries = metric_u64(&wants[QUERIES]);
    facts->prefix_hits = metric_u64(&wants[HITS]);
    facts->preemptions = metric_u64(&wants[PREEMPTIONS]);
}

static void read_server_info(struct slice body, struct engine_facts *facts)
{
    struct json_doc *doc = json_parse(body);
    const struct json_value *info = json_root(doc);
    engine_set_version(facts, json_string(json_get(info, "version")));
    engine_limit_context(facts, json_int(json_get(info, "context_length"), 0));
    uint32_t slots = engine_u32(info, "max_running_requests");
    uint32_t tokens = engine_u32(info, "max_total_num_tokens");
    if (slots)
        facts->slots = slots;
    if (tokens)
        facts->kv_tokens = tokens;
    json_doc_free(doc);
}

static const char *const overflow[] = {
    "longer than the model's context length", /* the prompt alone */
    "maximum context length",                 /* prompt and max_tokens together */
    "exceeds the maximum allowed length",
    NULL,
};

const struct engine engine_sglang = {
    .name = "sglang",
    .help = "SGLang's OpenAI-compatible server",
    .health_path = "/health",
    .once = {{"/get_server_info", read_server_info},
             {"/server_info", read_server_info},
             {"/v1/models", engine_read_models}},
    .scrape = {{"/metrics", read_metrics}},
    .says_overflow = overflow,
    .owned_by = "sglang",
    .metric_prefix = "sglang:",
    .has_usage_option = true,
};
