/* inquiry.c - requests that need no engine: which models there are, and whether weir is well. */
#include "base/json.h"
#include "gateway/stream.h"
#include "gateway/worker.h"

enum { MAX_LIST_BYTES = 8 * 1024 * 1024 };

static enum weir_err put_model(struct buf *out, const struct model *model, struct slice id)
{
    enum weir_err err = buf_append(out, SLICE("{\"id\":"));
    if (err == WEIR_OK) {
        err = json_put_string(out, id);
    }
    if (err == WEIR_OK) {
        err = buf_printf(out, ",\"object\":\"model\",\"created\":%llu,\"owned_by\":\"weir\"}",
                         (unsigned long long)model->created_wall_s);
    }
    return err;
}

/* Models by their names, then their aliases: a client may use either. */
static enum weir_err put_models(struct buf *out, const struct fleet *fleet)
{
    enum weir_err err = buf_append(out, SLICE("{\"object\":\"list\",\"data\":["));
    bool is_first = true;
    for (size_t i = 0; i < fleet->model_count; i++) {
        const struct model *model = &fleet->models[i];
        for (size_t j = 0; j <= model->alias_count && err == WEIR_OK; j++) {
            struct slice id = slice_str(j == 0 ? model->name : model->aliases[j - 1]);
            err = is_first ? WEIR_OK : buf_append(out, SLICE(","));
            is_first = false;
            if (err == WEIR_OK) {
                err = put_model(out, model, id);
            }
        }
    }
    return err == WEIR_OK ? buf_append(out, SLICE("]}")) : err;
}

static void answer_buf(struct stream *s, int status, struct buf *body, enum weir_err err)
{
    if (err == WEIR_OK) {
        answer_json(s, status, buf_slice(body));
    } else {
        struct api_error error;
        answer_error(s, api_error_set(&error, API_INTERNAL, "the list of models is too long"));
    }
    buf_free(body);
}

static void answer_models(struct stream *s)
{
    struct buf body;
    buf_init(&body, MAX_LIST_BYTES);
    answer_buf(s, 200, &body, put_models(&body, s->fleet->fleet));
}

static void answer_model(struct stream *s, struct slice id)
{
    const struct model *model = fleet_model(s->fleet->fleet, id);
    if (!model) {
        struct api_error error;
        answer_error(s, api_error_set(&error, API_UNKNOWN_MODEL,
                                      "the model `%.*s` does not exist; GET /v1/models lists what "
                                      "is served",
                                      (int)(id.len > 64 ? 64 : id.len), id.ptr));
        return;
    }
    struct buf body;
    buf_init(&body, MAX_LIST_BYTES);
    answer_buf(s, 200, &body, put_model(&body, model, id));
}

static void answer_ready(struct stream *s)
{
    bool is_ready =
        !s->worker->is_draining && atomic_load_explicit(s->worker->is_ready, memory_order_relaxed);
    answer_json(s, is_ready ? 200 : 503,
                is_ready ? SLICE("{\"status\":\"ready\"}") : SLICE("{\"status\":\"not ready\"}"));
}

bool inquiry_answer(struct stream *s, const struct surface_match *match)
{
    switch (match->surface) {
    case SURFACE_MODELS:
        answer_models(s);
        return true;
    case SURFACE_MODEL:
        answer_model(s, match->model_id);
        return true;
    case SURFACE_LIVE:
        answer_json(s, 200, SLICE("{\"status\":\"live\"}"));
        return true;
    case SURFACE_READY:
        answer_ready(s);
        return true;
    default:
        return false;
    }
}
