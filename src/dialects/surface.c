#include "dialects/surface.h"

#include "base/error.h"

static const struct surface_info surfaces[SURFACE_COUNT] = {
#define ROW(symbol, name, method, path, dialect, operation, generates)                             \
    [SURFACE_##symbol] = {name, method, path, dialect, operation, generates},
#include "dialects/surfaces.def"
#undef ROW
    [SURFACE_MODELS] = {"models", "GET", "/v1/models", DIALECT_OPENAI_PLAIN, "", false},
    [SURFACE_MODEL] = {"model", "GET", "/v1/models/", DIALECT_OPENAI_PLAIN, "", false},
    [SURFACE_LIVE] = {"live", "GET", "/health/live", DIALECT_OPENAI_PLAIN, "", false},
    [SURFACE_READY] = {"ready", "GET", "/health/ready", DIALECT_OPENAI_PLAIN, "", false},
};

/* Further names of a surface; what the engine is asked stays the canonical path. */
static const struct {
    const char *path;
    enum surface surface;
} aliases[] = {
    {"/v2/rerank", SURFACE_RERANK}, /* Cohere's clients; engines serve both alike */
};

const struct surface_info *surface_info(enum surface surface)
{
    if ((unsigned)surface >= SURFACE_COUNT)
        WEIR_BUG("there is no surface %d", (int)surface);
    return &surfaces[surface];
}

static struct slice skip_slashes(struct slice path)
{
    size_t n = 0;
    while (n < path.len && path.ptr[n] == '/')
        n++;
    return slice_from(path, n);
}

/*
 * Takes `prefix`, which starts and ends as a path in the tables does, off the front of `path`. A
 * run of slashes counts as one. False: `path` does not start with it.
 */
static bool take_prefix(struct slice *path, const char *prefix)
{
    struct slice rest = *path;
    for (const char *p = prefix; *p; p++) {
        if (rest.len == 0 || *rest.ptr != *p)
            return false;
        rest = *p == '/' ? skip_slashes(rest) : slice_from(rest, 1);
    }
    *path = rest;
    return true;
}

/* Is `path` the same as `canonical`, but for doubled slashes and slashes at the end? */
static bool is_path(struct slice path, const char *canonical)
{
    return take_prefix(&path, canonical) && skip_slashes(path).len == 0;
}

static const char *without_version(const char *canonical)
{
    return strncmp(canonical, "/v1/", 4) == 0 ? canonical + 3 : canonical;
}

static bool is_path_or_short(struct slice path, const char *canonical)
{
    return is_path(path, canonical) || is_path(path, without_version(canonical));
}

static enum surface find_exact(struct slice path)
{
    for (size_t i = 0; i < SURFACE_COUNT; i++)
        if (i != SURFACE_MODEL && is_path_or_short(path, surfaces[i].path))
            return (enum surface)i;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (is_path(path, aliases[i].path))
            return aliases[i].surface;
    return SURFACE_NONE;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes `text` once into `out`, which has room for all of it. False: a broken escape. */
static bool percent_decode(struct slice text, char *out, size_t *len)
{
    *len = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '%') {
            int high = i + 2 < text.len ? hex_digit(text.ptr[i + 1]) : -1;
            int low = i + 2 < text.len ? hex_digit(text.ptr[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        out[(*len)++] = c;
    }
    return true;
}

/* "." or ".." between slashes: something on the way may have meant to resolve it. */
static bool has_dot_segment(struct slice path)
{
    while (path.len > 0) {
        const char *slash = memchr(path.ptr, '/', path.len);
        size_t len = slash ? (size_t)(slash - path.ptr) : path.len;
        struct slice segment = slice_of(path.ptr, len);
        if (slice_eq(segment, SLICE(".")) || slice_eq(segment, SLICE("..")))
            return true;
        path = slice_from(path, len + 1);
    }
    return false;
}

/* /v1/models/{id}: ids contain '/' and ':', as they are or encoded; slashes inside are theirs. */
static bool find_model(struct slice path, char *scratch, struct slice *id)
{
    if (!take_prefix(&path, "/v1/models/") && !take_prefix(&path, "/models/"))
        return false;
    if (path.len > 0 && path.ptr[path.len - 1] == '/')
        path.len--;
    if (path.len == 0 || has_dot_segment(path))
        return false;
    id->ptr = scratch;
    return percent_decode(path, scratch, &id->len);
}

/* Is everything at and below /v1/messages, known or not, asked by clients of Anthropic's API? */
static bool is_below_messages(struct slice path)
{
    return is_path_or_short(path, "/v1/messages") || take_prefix(&path, "/v1/messages/") ||
           take_prefix(&path, "/messages/");
}

static void check_method(struct surface_match *m, struct slice method)
{
    const char *allowed = surfaces[m->surface].method;
    bool head_too = m->surface == SURFACE_LIVE || m->surface == SURFACE_READY;
    if (slice_eq(method, slice_str(allowed)))
        return;
    if (head_too && slice_eq(method, SLICE("HEAD"))) {
        m->is_head = true;
        return;
    }
    m->wrong_method = true;
    m->allow = head_too ? "GET, HEAD" : allowed;
    m->surface = SURFACE_NONE;
}

struct surface_match surface_match(struct slice method, struct slice target, char *scratch)
{
    struct surface_match m = {.surface = SURFACE_NONE};
    struct slice path = target;
    const char *mark = target.len ? memchr(target.ptr, '?', target.len) : NULL;
    if (mark) {
        path.len = (size_t)(mark - target.ptr);
        m.query = slice_from(target, path.len);
    }
    m.is_anthropic = is_below_messages(path);
    m.surface = find_exact(path);
    if (m.surface == SURFACE_NONE && find_model(path, scratch, &m.model_id))
        m.surface = SURFACE_MODEL;
    if (m.surface != SURFACE_NONE)
        check_method(&m, method);
    return m;
}
