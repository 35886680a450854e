#include "dialects/usage.h"

#include "base/json.h"

/* More tokens than any request has; a number above it is a mistake or an attack on the ledger. */
enum { USAGE_MAX_TOKENS = 1 << 30 };

/* True and `*count` when `object` has a believable count of that name. */
static bool read_count(const struct json_value *object, const char *name, uint64_t *count)
{
    int64_t value = json_int(json_get(object, name), -1);
    if (value < 0 || value > USAGE_MAX_TOKENS)
        return false;
    *count = (uint64_t)value;
    return true;
}

static bool read_nested(const struct json_value *object, const char *outer, const char *name,
                        uint64_t *count)
{
    return read_count(json_get(object, outer), name, count);
}

/* Anthropic's input_tokens leaves out the tokens that its two cache counts hold. */
static bool read_input(const struct json_value *object, struct usage *usage)
{
    uint64_t read = 0, written = 0;
    if (read_count(object, "cache_read_input_tokens", &read))
        usage->cached_tokens = read;
    read_count(object, "cache_creation_input_tokens", &written);
    if (!read_count(object, "input_tokens", &usage->prompt_tokens))
        return false;
    usage->prompt_tokens += read + written;
    return true;
}

void usage_read_object(const struct json_value *object, struct usage *usage)
{
    if (read_count(object, "prompt_tokens", &usage->prompt_tokens) || read_input(object, usage))
        usage->known = true;
    if (read_count(object, "completion_tokens", &usage->output_tokens) ||
        read_count(object, "output_tokens", &usage->output_tokens))
        usage->known = true;

    if (!read_nested(object, "prompt_tokens_details", "cached_tokens", &usage->cached_tokens))
        read_nested(object, "input_tokens_details", "cached_tokens", &usage->cached_tokens);
    if (usage->cached_tokens > usage->prompt_tokens)
        usage->cached_tokens = usage->prompt_tokens;
    if (!read_nested(object, "completion_tokens_details", "reasoning_tokens",
                     &usage->reasoning_tokens))
        read_nested(object, "output_tokens_details", "reasoning_tokens", &usage->reasoning_tokens);
}

void usage_read_answer(const struct json_value *root, struct usage *usage)
{
    const struct json_value *object = json_get(root, "usage");
    if (!json_is_object(object))
        return;
    /* Older llama.cpp tells the cached tokens only here; what `usage` says itself goes above it. */
    read_nested(root, "timings", "cache_n", &usage->cached_tokens);
    usage_read_object(object, usage);
}

void usage_read_body(struct slice body, struct usage *usage)
{
    struct json_doc *doc = json_parse(body);
    usage_read_answer(json_root(doc), usage);
    json_doc_free(doc);
}
