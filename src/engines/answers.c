#include "engines/answers.h"

/* Ids go into logs, pages and configuration files: nothing that could steer a terminal. */
static bool is_printable(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < ' ' || s.ptr[i] == 0x7f)
            return false;
    return true;
}

static bool copy_text(char *out, size_t size, struct slice text)
{
    if (text.len == 0 || text.len >= size || !is_printable(text))
        return false;
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return true;
}

void engine_set_version(struct engine_facts *facts, struct slice text)
{
    char version[ENGINE_VERSION_MAX];
    if (copy_text(version, sizeof version, text))
        memcpy(facts->version, version, sizeof version);
}

static bool has_model(const struct engine_facts *facts, struct slice id)
{
    for (size_t i = 0; i < facts->model_count; i++)
        if (slice_eq(slice_str(facts->models[i]), id))
            return true;
    return false;
}

void engine_add_model(struct engine_facts *facts, struct slice id)
{
    if (facts->model_count < ENGINE_MAX_MODELS && !has_model(facts, id) &&
        copy_text(facts->models[facts->model_count], ENGINE_NAME_MAX, id))
        facts->model_count++;
}

void engine_limit_context(struct engine_facts *facts, int64_t tokens)
{
    if (tokens <= 0 || tokens > UINT32_MAX)
        return;
    if (facts->max_context_tokens == 0 || tokens < facts->max_context_tokens)
        facts->max_context_tokens = (uint32_t)tokens;
}

uint32_t engine_u32(const struct json_value *object, const char *key)
{
    int64_t value = json_int(json_get(object, key), 0);
    return value > 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
}

void engine_read_models(struct slice body, struct engine_facts *facts)
{
    struct json_doc *doc = json_parse(body);
    const struct json_value *list = json_get(json_root(doc), "data");
    const struct json_value *model;
    size_t pos = 0;
    while (json_next_element(list, &pos, &model)) {
        engine_add_model(facts, json_string(json_get(model, "id")));
        engine_limit_context(facts, json_int(json_get(model, "max_model_len"), 0));
        engine_limit_context(facts, json_int(json_get(json_get(model, "meta"), "n_ctx"), 0));
    }
    json_doc_free(doc);
}

void engine_read_version(struct slice body, struct engine_facts *facts)
{
    struct json_doc *doc = json_parse(body);
    engine_set_version(facts, json_string(json_get(json_root(doc), "version")));
    json_doc_free(doc);
}
