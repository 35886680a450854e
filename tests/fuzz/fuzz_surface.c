/*
 * fuzz_surface.c - paths: only what is spelt like a path of the table reaches an engine, and a
 * model id fits into the scratch that it was given.
 *
 * Input: method, a space, request target.
 */
#include <stdint.h>

#include "base/error.h"
#include "base/heap.h"
#include "dialects/surface.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool lies_in(struct slice part, const char *ptr, size_t len)
{
    return part.len == 0 || (part.ptr >= ptr && part.ptr + part.len <= ptr + len);
}

/* `path` without doubled and trailing slashes, as a relayed surface must be spelt. */
static size_t squeeze(struct slice path, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < path.len; i++)
        if (path.ptr[i] != '/' || len == 0 || out[len - 1] != '/')
            out[len++] = path.ptr[i];
    return len > 1 && out[len - 1] == '/' ? len - 1 : len;
}

static bool is_spelt(struct slice path, const char *canonical)
{
    if (slice_eq(path, slice_str(canonical)) || slice_eq(path, SLICE("/v2/rerank")))
        return true;
    return strncmp(canonical, "/v1/", 4) == 0 && slice_eq(path, slice_str(canonical + 3));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *space = size ? memchr(text, ' ', size) : NULL;
    struct slice method = slice_of(text, space ? (size_t)(space - text) : 0);
    struct slice target = slice_of(text + method.len, size - method.len);
    if (space)
        target = slice_from(target, 1);
    char *scratch = heap_alloc(target.len + 1);
    struct surface_match m = surface_match(method, target, scratch);

    if (!lies_in(m.model_id, scratch, target.len) || !lies_in(m.query, target.ptr, target.len))
        WEIR_BUG("a slice outside of what it should point into");
    if (m.wrong_method ? m.surface != SURFACE_NONE || !m.allow : m.allow != NULL)
        WEIR_BUG("a refused method without the allowed one, or the reverse");
    if (m.surface < SURFACE_MODELS) {
        const struct surface_info *info = surface_info(m.surface);
        struct slice path = slice_of(target.ptr, target.len - m.query.len);
        if (!slice_eq(method, slice_str(info->method)))
            WEIR_BUG("a method that the surface does not have");
        if (!is_spelt(slice_of(scratch, squeeze(path, scratch)), info->path))
            WEIR_BUG("a path that is not in the table reaches an engine");
    }
    heap_free(scratch);
    return 0;
}
