#include "engines/engine.h"

#include "base/json.h"
#include "engines/prometheus.h"

#define ROW(symbol, word) extern const struct engine engine_##symbol;
#include "engines/engines.def"
#undef ROW

static const struct engine *const engines[] = {
#define ROW(symbol, word) &engine_##symbol,
#include "engines/engines.def"
#undef ROW
};

enum { ENGINE_COUNT = sizeof engines / sizeof engines[0] };

/*
 * The list of models is asked first: it tells all of them apart and is the one path that every
 * server has. Metrics settle it where a proxy in front rewrote the list.
 */
static const char models_path[] = "/v1/models";
const char *const engine_detect_paths[] = {models_path, "/metrics", "/prometheus/metrics", NULL};

/* Metrics of other libraries come first; vLLM's begin after some kilobytes of Python's. */
enum { DETECT_SAMPLES = 2000 };

const struct engine *engine_find(struct slice name)
{
    for (size_t i = 0; i < ENGINE_COUNT; i++)
        if (slice_eq(slice_str(engines[i]->name), name))
            return engines[i];
    return NULL;
}

bool engine_at(size_t index, const struct engine **engine)
{
    if (index >= ENGINE_COUNT)
        return false;
    *engine = engines[index];
    return true;
}

enum replica_state engine_read_health(const struct engine *e, int status, struct slice body)
{
    if (status == 0)
        return REPLICA_DOWN;
    if (e->read_health)
        return e->read_health(status, body);
    if (status == 200)
        return REPLICA_READY;
    return status == 503 ? REPLICA_LOADING : REPLICA_DOWN;
}

/* Detection */

static const struct engine *by_server(struct slice header)
{
    for (size_t i = 0; i < ENGINE_COUNT; i++)
        if (engines[i]->server && slice_eq_nocase(header, slice_str(engines[i]->server)))
            return engines[i];
    return NULL;
}

static const struct engine *by_owner(struct slice body)
{
    struct json_doc *doc = json_parse(body);
    const struct json_value *first = json_at(json_get(json_root(doc), "data"), 0);
    struct slice owner = json_string(json_get(first, "owned_by"));
    const struct engine *found = NULL;
    for (size_t i = 0; i < ENGINE_COUNT && !found; i++)
        if (engines[i]->owned_by && slice_eq(owner, slice_str(engines[i]->owned_by)))
            found = engines[i];
    json_doc_free(doc);
    return found;
}

static const struct engine *by_metrics(struct slice body)
{
    struct metric_sample sample;
    for (int n = 0; n < DETECT_SAMPLES && metric_next(&body, &sample); n++)
        for (size_t i = 0; i < ENGINE_COUNT; i++)
            if (engines[i]->metric_prefix &&
                slice_starts(sample.name, slice_str(engines[i]->metric_prefix)))
                return engines[i];
    return NULL;
}

const struct engine *engine_detect(const char *path, int status, struct slice server_header,
                                   struct slice body)
{
    const struct engine *found = by_server(server_header); /* also on a 503 while loading */
    if (found || status != 200)
        return found;
    return slice_eq(slice_str(path), slice_str(models_path)) ? by_owner(body) : by_metrics(body);
}
