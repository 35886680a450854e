#include "launch/template.h"

#include "base/slice.h"

/* Appends what the placeholder at the start of `s` stands for. Returns its length, 0: none there.
 */
static size_t fill_one(struct buf *out, struct slice s, const struct template_values *values,
                       enum weir_err *status)
{
    static const struct slice port = {"{port}", 6}, model = {"{model}", 7}, index = {"{index}", 7};

    if (slice_starts(s, port)) {
        *status = buf_printf(out, "%u", (unsigned)values->port);
        return port.len;
    }
    if (slice_starts(s, model)) {
        *status = buf_append(out, slice_str(values->model));
        return model.len;
    }
    if (slice_starts(s, index)) {
        *status = buf_printf(out, "%u", (unsigned)values->index);
        return index.len;
    }
    return 0;
}

enum weir_err template_fill(struct buf *out, const char *text, const struct template_values *values)
{
    struct slice rest = slice_str(text);
    enum weir_err status = WEIR_OK;

    while (rest.len > 0 && status == WEIR_OK) {
        size_t taken = fill_one(out, rest, values, &status);
        if (taken == 0) {
            const char *brace = memchr(rest.ptr + 1, '{', rest.len - 1);
            taken = brace ? (size_t)(brace - rest.ptr) : rest.len;
            status = buf_append(out, slice_of(rest.ptr, taken));
        }
        rest = slice_from(rest, taken);
    }
    return status;
}
