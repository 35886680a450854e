/* usage.h - token counts that engines report, read from bodies and events of every dialect. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "dialects/surface.h"

struct json_value;

struct usage {
    bool known;          /* the engine said it; explicit zeros count (FR-27) */
    uint64_t prompt_tokens;
    uint64_t output_tokens;
    uint64_t cached_tokens;
    uint64_t reasoning_tokens;
};

/*
 * From a usage object: OpenAI (prompt_tokens, completion_tokens, prompt_tokens_details), Responses
 * and Anthropic (input_tokens, output_tokens, cache_read_input_tokens). Members that are absent
 * leave what was there: Anthropic sends its counts in two events. Absurd numbers are ignored.
 */
void usage_read_object(const struct json_value *object, struct usage *usage);

/* From a whole non-streamed answer (any dialect; llama.cpp's `timings.cache_n` too). */
void usage_read_body(enum dialect dialect, struct slice body, struct usage *usage);
