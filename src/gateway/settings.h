/* settings.h - what the parts of the gateway take from a configuration, in their own terms. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "gateway/prober.h"
#include "health/health.h"
#include "http/server.h"

/* What one worker needs to know; replaced as a whole by a reload. */
struct worker_settings {
    uint64_t connect_ns, first_byte_ns, between_events_ns, request_ns;
    size_t body_bytes, response_bytes, response_memory_bytes, event_bytes; /* memory: a share */
    uint32_t attempts;
    double retry_ratio, retry_min_per_s; /* min_per_s: this worker's share */
    uint64_t ramp_ns;
    struct health_rules health;
    char session_header[136];
};

struct worker_settings settings_of_worker(const struct config *config, size_t worker_count);
struct http_server_limits settings_of_server(const struct config *config, size_t worker_count);
struct prober_rules settings_of_prober(const struct config *config);
