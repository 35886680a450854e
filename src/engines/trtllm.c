/*
 * trtllm.c - TensorRT-LLM: trtllm-serve, and the names of Triton's TensorRT-LLM backend where a
 * proxy brings its metrics to the same place.
 *
 * trtllm-serve's /metrics is JSON that each reader takes away from the next, so only
 * /prometheus/metrics is asked.
 */
#include "engines/answers.h"
#include "engines/prometheus.h"

#define TRITON_REQUESTS "nv_trt_llm_request_metrics"
#define TRITON_BLOCKS   "nv_trt_llm_kv_cache_block_metrics"

enum { RUNNING, WAITING, KV_USED, BLOCKS, BLOCK_TOKENS, REUSED, MISSED, WANTS };
enum { T_RUNNING, T_WAITING, T_KV_USED, T_BLOCKS, T_BLOCK_TOKENS, T_WANTS };

static void read_triton(struct slice body, struct engine_facts *facts)
{
    struct metric_want wants[T_WANTS] = {
        [T_RUNNING] = {.names = {TRITON_REQUESTS},
                       .label = "request_type",
                       .label_value = "scheduled"},
        [T_WAITING] = {.names = {TRITON_REQUESTS},
                       .label = "request_type",
                       .label_value = "waiting"},
        [T_KV_USED] = {.names = {TRITON_BLOCKS},
                       .label = "kv_cache_block_type",
                       .label_value = "fraction",
                       .mean = true},
        [T_BLOCKS] = {.names = {TRITON_BLOCKS},
                      .label = "kv_cache_block_type",
                      .label_value = "max"},
        [T_BLOCK_TOKENS] = {.names = {TRITON_BLOCKS},
                            .label = "kv_cache_block_type",
                            .label_value = "tokens_per",
                            .mean = true},
    };
    metric_read(body, wants, T_WANTS);
    if (!metric_seen(&wants[T_RUNNING]))
        return;
    facts->has_load = true;
    facts->running = metric_u32(&wants[T_RUNNING]);
    facts->waiting = metric_u32(&wants[T_WAITING]);
    facts->kv_used_ppm = metric_ppm(&wants[T_KV_USED]);
    facts->kv_tokens = (uint64_t)metric_u32(&wants[T_BLOCKS]) * metric_u32(&wants[T_BLOCK_TOKENS]);
}

static void read_metrics(struct slice body, struct engine_facts *facts)
{
    struct metric_want wants[WANTS] = {
        [RUNNING] = {.names = {"trtllm_num_requests_running"}},
        [WAITING] = {.names = {"trtllm_num_requests_waiting"}},
        [KV_USED] = {.names = {"trtllm_kv_cache_utilization"}, .mean = true},
        [BLOCKS] = {.names = {"trtllm_kv_cache_max_blocks"}},
        [BLOCK_TOKENS] = {.names = {"trtllm_kv_cache_tokens_per_block"}, .mean = true},
        [REUSED] = {.names = {"trtllm_kv_cache_reused_blocks"}},
        [MISSED] = {.names = {"trtllm_kv_cache_missed_blocks"}},
    };
    metric_read(body, wants, WANTS);
    if (!metric_seen(&wants[RUNNING])) {
        read_triton(body, facts);
        return;
    }
    uint64_t block_tokens = metric_u32(&wants[BLOCK_TOKENS]);
    uint64_t reused = metric_u32(&wants[REUSED]), missed = metric_u32(&wants[MISSED]);
    facts->has_load = true;
    facts->running = metric_u32(&wants[RUNNING]);
    facts->waiting = metric_u32(&wants[WAITING]);
    facts->kv_used_ppm = metric_ppm(&wants[KV_USED]);
    facts->kv_tokens = block_tokens * metric_u32(&wants[BLOCKS]);
    facts->prefix_hits = block_tokens * reused;
    if (!__builtin_mul_overflow(block_tokens, reused + missed, &facts->prefix_queries))
        return;
    facts->prefix_queries = facts->prefix_hits = 0; /* not numbers of this world */
}

static const char *const overflow[] = {
    "should not exceed max_num_tokens", /* PyTorch backend */
    "max_seq_len",                      /* TensorRT backend, several wordings */
    "maximum context length",
    NULL,
};

const struct engine engine_trtllm = {
    .name = "trtllm",
    .help = "TensorRT-LLM's trtllm-serve",
    .health_path = "/health",
    .once = {{"/version", engine_read_version}, {"/v1/models", engine_read_models}},
    .scrape = {{"/prometheus/metrics", read_metrics}},
    .says_overflow = overflow,
    .owned_by = "tensorrt_llm",
    .metric_prefix = "trtllm_",
    .has_usage_option = true,
};
