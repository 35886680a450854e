#include "config/config.h"
#include "config/option.h"

static enum weir_err put_value(const struct option *option, const void *base, struct buf *out)
{
    if (!option->is_list)
        return option_put(option, base, out);
    size_t count;
    const char *const *list = option_strings(option, base, &count);
    enum weir_err rc = WEIR_OK;
    for (size_t i = 0; i < count && !rc; i++)
        rc = buf_printf(out, "%s%s", i ? ", " : "", list[i]);
    return rc;
}

static enum weir_err put_change(const struct option *option, const struct config *was,
                                const struct config *is, struct buf *out)
{
    enum weir_err rc = buf_printf(out, "%s: ", option->path);
    if (!rc)
        rc = put_value(option, was, out);
    if (!rc)
        rc = buf_append(out, SLICE(" -> "));
    if (!rc)
        rc = put_value(option, is, out);
    return rc ? rc : buf_append(out, SLICE("\n"));
}

size_t config_restart_needed(const struct config *was, const struct config *is, struct buf *report)
{
    size_t count = 0;
    const struct option *option = NULL;
    while ((option = option_next(OPTION_CONFIG, option))) {
        if (!option->needs_restart || option_equal(option, was, is))
            continue;
        count++;
        size_t whole = report->end; /* a line stands there whole or not at all */
        if (put_change(option, was, is, report) != WEIR_OK)
            report->end = whole;
    }
    return count;
}
