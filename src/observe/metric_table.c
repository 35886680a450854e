#include "observe/metric.h"

#define VALUE_ROW(name_, type_, per_, by_, unit_, getter, help_)                                   \
    {.name = #name_,                                                                               \
     .type = type_,                                                                                \
     .per = PER_##per_,                                                                            \
     .split = BY_##by_,                                                                            \
     .unit = unit_,                                                                                \
     .help = help_,                                                                                \
     .value = value_##getter},
#define COUNTER(name, per, by, unit, getter, help)                                                 \
    VALUE_ROW(name, TYPE_COUNTER, per, by, unit, getter, help)
#define GAUGE(name, per, by, unit, getter, help)                                                   \
    VALUE_ROW(name, TYPE_GAUGE, per, by, unit, getter, help)
#define HISTOGRAM(name_, per_, by_, unit_, getter, help_)                                          \
    {.name = #name_,                                                                               \
     .type = TYPE_HISTOGRAM,                                                                       \
     .per = PER_##per_,                                                                            \
     .split = BY_##by_,                                                                            \
     .unit = unit_,                                                                                \
     .help = help_,                                                                                \
     .buckets = buckets_##getter},

const struct metric metric_table[] = {
#include "observe/metrics.def"
};
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM

const size_t metric_count = sizeof metric_table / sizeof metric_table[0];

/* ---- splits: the words of each variant ---- */

static const char *outcome_word(const struct metric_subject *s, size_t variant)
{
    return outcome_name((enum outcome)variant);
}

static const char *promise_word(const struct metric_subject *s, size_t variant)
{
    return variant == PROMISE_TTFT ? "ttft" : "tpot";
}

static const char *direction_word(const struct metric_subject *s, size_t variant)
{
    static const char *const words[DIRECTIONS] = {
        [DIRECTION_IN] = "in", [DIRECTION_OUT] = "out", [DIRECTION_CACHED] = "cached"};
    return words[variant];
}

static const char *window_word(const struct metric_subject *s, size_t variant)
{
    return goodput_window_name((enum goodput_window)variant);
}

static const char *state_word(const struct metric_subject *s, size_t variant)
{
    return replica_state_name((enum replica_state)variant);
}

static const char *reason_word(const struct metric_subject *s, size_t variant)
{
    return variant == REASON_UNKNOWN_MODEL ? "unknown_model" : "other";
}

static const char *version_word(const struct metric_subject *s, size_t variant)
{
    return s->in->version;
}

static const char *operation_word(const struct metric_subject *s, size_t variant)
{
    return genai_operation_name((enum genai_operation)variant);
}

static const char *operation_of_pair(const struct metric_subject *s, size_t variant)
{
    return genai_operation_name((enum genai_operation)(variant / OUTCOMES));
}

/* The convention has no error.type on success. */
static const char *error_of_pair(const struct metric_subject *s, size_t variant)
{
    enum outcome outcome = (enum outcome)(variant % OUTCOMES);
    return outcome == OUTCOME_OK ? NULL : outcome_name(outcome);
}

static const struct metric_split_info splits[METRIC_SPLITS] = {
    [BY_NOTHING] = {1, {{0}}},
    [BY_OUTCOME] = {OUTCOMES, {{"outcome", outcome_word}}},
    [BY_PROMISE] = {PROMISES, {{"promise", promise_word}}},
    [BY_DIRECTION] = {DIRECTIONS, {{"direction", direction_word}}},
    [BY_WINDOW] = {GOODPUT_WINDOWS, {{"window", window_word}}},
    [BY_STATE] = {REPLICA_STATES, {{"state", state_word}}},
    [BY_REASON] = {REASONS, {{"reason", reason_word}}},
    [BY_VERSION] = {1, {{"version", version_word}}},
    [BY_OPERATION] = {GENAI_OPERATIONS, {{"gen_ai_operation_name", operation_word}}},
    [BY_OPERATION_ERROR] = {GENAI_OPERATIONS * OUTCOMES,
                            {{"gen_ai_operation_name", operation_of_pair},
                             {"error_type", error_of_pair}}},
};

const struct metric_split_info *metric_split_info(enum metric_split split)
{
    return &splits[split];
}
