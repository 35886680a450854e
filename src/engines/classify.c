/*
 * classify.c - what an engine's refusal means: the status first, the error's own words where the
 * status does not say it.
 */
#include "base/json.h"
#include "engines/engine.h"

/* An error's words. Engines nest them in "error" or not, and FastAPI says "detail". */
struct words {
    struct slice message, type, code, param;
};

static struct words read_words(const struct json_value *root)
{
    const struct json_value *error = json_get(root, "error");
    if (json_is_string(error)) /* {"error":"text"} */
        return (struct words){.message = json_string(error)};
    if (!json_is_object(error))
        error = root;
    struct words w = {
        .message = json_string(json_get(error, "message")),
        .type = json_string(json_get(error, "type")),
        .code = json_string(json_get(error, "code")),
        .param = json_string(json_get(error, "param")),
    };
    if (w.message.len == 0)
        w.message = json_string(json_get(error, "detail"));
    return w;
}

static bool says(const struct words *w, const char *const *texts)
{
    for (; texts && *texts; texts++) {
        struct slice text = slice_str(*texts);
        if (slice_find(w->message, text) || slice_eq(w->type, text) || slice_eq(w->code, text) ||
            slice_eq(w->param, text))
            return true;
    }
    return false;
}

/* Where `e` keeps the list in question; so that a proxy's row can look at all of them. */
typedef const char *const *(*texts_of_fn)(const struct engine *e);

static const char *const *overflow_texts(const struct engine *e)
{
    return e->says_overflow;
}

static const char *const *loading_texts(const struct engine *e)
{
    return e->says_loading;
}

static const char *const *draining_texts(const struct engine *e)
{
    return e->says_draining;
}

static bool engine_says(const struct engine *e, const struct words *w, texts_of_fn texts_of)
{
    if (says(w, texts_of(e)))
        return true;
    const struct engine *other;
    for (size_t i = 0; e->speaks_for_others && engine_at(i, &other); i++)
        if (says(w, texts_of(other)))
            return true;
    return false;
}

static enum engine_verdict by_words(const struct engine *e, int status, const struct words *w)
{
    if (engine_says(e, w, overflow_texts))
        return ENGINE_CONTEXT_OVERFLOW;
    if (status >= 500 && engine_says(e, w, draining_texts))
        return ENGINE_DRAINING;
    if (status == 503 && engine_says(e, w, loading_texts))
        return ENGINE_LOADING;
    return ENGINE_OK; /* nothing to add */
}

static enum engine_verdict by_status(int status)
{
    switch (status) {
    case 408: /* smg: the request timed out in its queue */
    case 425:
    case 429:
    case 503:
    case 529: /* Dynamo's "busy" */
        return ENGINE_BUSY;
    case 501: /* the engine cannot do this at all; nor can its siblings */
        return ENGINE_CLIENT_FAULT;
    default:
        return status >= 300 && status < 500 ? ENGINE_CLIENT_FAULT : ENGINE_FAULT;
    }
}

enum engine_verdict engine_classify(const struct engine *e, int status, struct slice body)
{
    if (status >= 200 && status < 300)
        return ENGINE_OK;
    struct json_doc *doc = json_parse(body);
    struct words w = read_words(json_root(doc));
    if (!doc) /* plain text, or cut: perhaps a proxy's page; the words may still be in it */
        w.message = body;
    enum engine_verdict verdict = by_words(e, status, &w);
    json_doc_free(doc);
    return verdict != ENGINE_OK ? verdict : by_status(status);
}
