#include "gateway/settings.h"

#include <stdio.h>

#include "gateway/relay.h"

/* Two reads more, a head and framing. */
#define OUT_SLACK_BYTES (3 * RELAY_READ_BYTES + MAX_ANSWER_HEAD)

static struct health_rules health_rules_of(const struct config *config)
{
    return (struct health_rules){
        .eject_after = config->health.eject_after,
        .eject_base_ns = config->health.eject_base_ns,
        .eject_max_ns = config->health.eject_max_ns,
        .eject_max_share = config->health.eject_max_share,
        .busy_ns = config->health.busy_ns,
        .down_after = config->health.down_after,
        .up_after = config->health.up_after,
    };
}

struct worker_settings settings_of_worker(const struct config *config, size_t worker_count)
{
    struct worker_settings settings = {
        .connect_ns = config->timeouts.connect_ns,
        .first_byte_ns = config->timeouts.first_byte_ns,
        .between_events_ns = config->timeouts.between_events_ns,
        .request_ns = config->timeouts.request_ns,
        .body_bytes = config->limits.body_bytes,
        .response_bytes = config->limits.response_bytes,
        .response_memory_bytes = config->limits.response_memory_bytes / worker_count,
        .event_bytes = config->limits.event_bytes,
        .attempts = config->retry.attempts,
        .retry_ratio = config->retry.budget_ratio,
        .retry_min_per_s = config->retry.budget_min_per_s / (double)worker_count,
        .ramp_ns = config->health.ramp_ns,
        .health = health_rules_of(config),
    };
    snprintf(settings.session_header, sizeof settings.session_header, "%s", config->session_header);
    return settings;
}

struct http_server_limits settings_of_server(const struct config *config, size_t worker_count)
{
    /* What may be handed over in one piece although the mark is reached. */
    size_t longest = config->limits.response_bytes > config->limits.event_bytes
                         ? config->limits.response_bytes
                         : config->limits.event_bytes;
    size_t share = (config->limits.connections + worker_count - 1) / worker_count;
    return (struct http_server_limits){
        .head_bytes = config->limits.head_bytes,
        .body_memory_bytes = config->limits.body_memory_bytes / worker_count,
        .out_mark_bytes = config->limits.client_buffer_bytes,
        .out_memory_bytes = config->limits.response_memory_bytes / worker_count,
        .out_max_bytes = config->limits.client_buffer_bytes + longest + OUT_SLACK_BYTES,
        .connections = (uint32_t)share,
        .head_timeout_ns = config->timeouts.client_head_ns,
        .body_timeout_ns = config->timeouts.client_body_ns,
        .idle_timeout_ns = config->timeouts.client_idle_ns,
        .write_timeout_ns = config->timeouts.client_write_ns,
        .tolerate_half_close = config->tolerate_half_close,
    };
}

struct prober_rules settings_of_prober(const struct config *config)
{
    return (struct prober_rules){
        .interval_ns = config->health.interval_ns,
        .timeout_ns = config->health.timeout_ns,
        .health = health_rules_of(config),
    };
}
