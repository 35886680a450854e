/*
 * answers.h - readers of the answers that several engines give alike; each is an
 * engine_question's `read`. And the checks for what is taken over from an engine as text.
 */
#pragma once

#include "base/json.h"
#include "base/slice.h"
#include "engines/engine.h"

/*
 * GET /v1/models: {"data":[{"id", "max_model_len" (vLLM, SGLang), "meta":{"n_ctx"} (llama.cpp)}]}.
 * Ids that are empty, too long or not printable are left out.
 */
void engine_read_models(struct slice body, struct engine_facts *facts);

/* GET /version: {"version":"0.32.0"}. */
void engine_read_version(struct slice body, struct engine_facts *facts);

void engine_set_version(struct engine_facts *facts, struct slice text);
void engine_add_model(struct engine_facts *facts, struct slice id);

/* Keeps the smallest context that was seen; 0 and less is none. */
void engine_limit_context(struct engine_facts *facts, int64_t tokens);

/* An integer member of 0..UINT32_MAX, else 0: what "unknown" is in facts. */
uint32_t engine_u32(const struct json_value *object, const char *key);
