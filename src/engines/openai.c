/*
 * openai.c - any other server that speaks OpenAI's API: only what the API itself promises.
 */
#include "engines/answers.h"

/* Servers that hide their list of models behind a key, or have none, are there all the same. */
static enum replica_state read_health(int status, struct slice body)
{
    if (status >= 200 && status < 500)
        return REPLICA_READY;
    return status == 503 ? REPLICA_LOADING : REPLICA_DOWN;
}

static const char *const overflow[] = {
    "context_length_exceeded", /* OpenAI's own code */
    NULL,
};

const struct engine engine_openai = {
    .name = "openai",
    .help = "anything else that speaks the OpenAI API",
    .health_path = "/v1/models",
    .once = {{"/v1/models", engine_read_models}},
    .read_health = read_health,
    .says_overflow = overflow,
    .speaks_for_others = true,
    .has_usage_option = true,
};
