/*
 * vllm.c - vLLM 0.6 to 0.32. It listens only once the model is loaded; /health says nothing about
 * draining (still 200) and 503 when the engine process is dead.
 */
#include "engines/answers.h"
#include "engines/prometheus.h"

enum { RUNNING, WAITING, KV_USED, QUERIES, HITS, PREEMPTIONS, REFUSALS, WANTS };

/* "None" stands for unknown in the labels of cache_config_info. */
static uint64_t label_number(struct slice labels, const char *name)
{
    struct slice text;
    uint64_t value = 0;
    if (metric_label(labels, name, &text))
        slice_to_u64(text, &value);
    return value;
}

/* The cache's shape is in labels, one sample per data-parallel rank; the value is always 1. */
static uint64_t cache_tokens(struct slice body)
{
    struct metric_sample sample;
    uint64_t tokens = 0;
    while (metric_next(&body, &sample)) {
        if (!slice_eq(sample.name, SLICE("vllm:cache_config_info")))
            continue;
        uint64_t size = label_number(sample.labels, "kv_cache_size_tokens"); /* 0.32 */
        uint64_t product;
        if (size == 0 &&
            !__builtin_mul_overflow(label_number(sample.labels, "num_gpu_blocks"),
                                    label_number(sample.labels, "block_size"), &product))
            size = product;
        if (__builtin_add_overflow(tokens, size, &tokens))
            return 0;
    }
    return tokens;
}

static void read_metrics(struct slice body, struct engine_facts *facts)
{
    struct metric_want wants[WANTS] = {
        [RUNNING] = {.names = {"vllm:num_requests_running"}},
        [WAITING] = {.names = {"vllm:num_requests_waiting"}},
        [KV_USED] = {.names = {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
                     .mean = true},
        [QUERIES] = {.names = {"vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"}},
        [HITS] = {.names = {"vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"}},
        [PREEMPTIONS] = {.names = {"vllm:num_preemptions"}},
        [REFUSALS] = {.names = {"vllm:admission_rejections"}},
    };
    metric_read(body, wants, WANTS);
    if (!metric_seen(&wants[RUNNING]))
        return;
    facts->has_load = true;
    facts->running = metric_u32(&wants[RUNNING]);
    facts->waiting = metric_u32(&wants[WAITING]);
    facts->kv_used_ppm = metric_ppm(&wants[KV_USED]);
    facts->kv_tokens = cache_tokens(body);
    facts->prefix_queries = metric_u64(&wants[QUERIES]);
    facts->prefix_hits = metric_u64(&wants[HITS]);
    facts->preemptions = metric_u64(&wants[PREEMPTIONS]);
    facts->refusals = metric_u64(&wants[REFUSALS]);
}

static enum replica_state read_health(int status, struct slice body)
{
    return status == 200 ? REPLICA_READY : REPLICA_DOWN;
}

static const char *const overflow[] = {
    "maximum context length", /* all releases, in the message */
    "input_tokens",           /* 0.32, as the param */
    NULL,
};

static const char *const draining[] = {
    "cannot schedule new futures after shutdown", /* --shutdown-timeout, 0.32 */
    NULL,
};

const struct engine engine_vllm = {
    .name = "vllm",
    .help = "vLLM's OpenAI-compatible server",
    .health_path = "/health",
    .once = {{"/version", engine_read_version}, {"/v1/models", engine_read_models}},
    .scrape = {{"/metrics", read_metrics}},
    .read_health = read_health,
    .says_overflow = overflow,
    .says_draining = draining,
    .owned_by = "vllm",
    .metric_prefix = "vllm:",
    .has_usage_option = true,
};
