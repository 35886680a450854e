/* usage.h - token counts that engines report, read from bodies and events of every dialect. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

struct json_value;

struct usage {
    bool known;             /* the engine said it; explicit zeros count (FR-27) */
    uint64_t prompt_tokens; /* all of them, also those found in the cache */
    uint64_t output_tokens;
    uint64_t cached_tokens; /* of the prompt; at most prompt_tokens */
    uint64_t reasoning_tokens;
};

/*
 * From a usage object: OpenAI (prompt_tokens, completion_tokens, prompt_tokens_details), Responses
 * (input_tokens, input_tokens_details) and Anthropic (input_tokens without what was read from or
 * written to the cache, which is added here). Members that are absent leave what was there:
 * Anthropic sends its counts in two events. Absurd numbers are ignored. NULL is allowed.
 */
void usage_read_object(const struct json_value *object, struct usage *usage);

/* From the root of an answer or chunk: its `usage`, and llama.cpp's `timings.cache_n`. */
void usage_read_answer(const struct json_value *root, struct usage *usage);

/* From a whole non-streamed answer of any dialect; not JSON: nothing is read. */
void usage_read_body(struct slice body, struct usage *usage);
