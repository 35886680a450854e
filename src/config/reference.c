#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/option.h"

static const char intro[] =
    "# Configuration\n"
    "\n"
    "weir reads one YAML file. `weir check FILE` says every mistake in it with line, column\n"
    "and a remedy; `weir check --defaults` prints a whole file to begin with; `weir serve\n"
    "--print-config` prints what weir runs on. This page is written from the table that the\n"
    "program itself uses.\n"
    "\n"
    "* A **duration** is a number and a unit: `150ms`, `10s`, `2m`, `1h` (also `us`, `ns`).\n"
    "* A **size** is a number and a unit: `64KiB`, `32MiB`, `1GiB`; `kB`, `MB`, `GB` are\n"
    "  powers of ten.\n"
    "* A list of one may be written without brackets.\n"
    "* A model with one pool may have the pool's options itself: `replicas`, `engine`,\n"
    "  `launch` and so on beside its `name`; the pool is then called `default`.\n"
    "* `routing` may stand in a pool, in a model and at the top; the nearest one holds.\n"
    "* Keys of engines come from a file (`api_key_file`) or the environment (`api_key_env`),\n"
    "  never from this file. Nothing else is read from the environment. Relative paths begin\n"
    "  where weir was started.\n"
    "* YAML anchors and aliases work; merge keys (`<<`) and tags do not.\n"
    "* SIGHUP, or `POST /admin/reload` on the admin address, reads the file again. Running\n"
    "  requests end on what they began with, and a file with a mistake changes nothing. What\n"
    "  is marked *restart* takes effect at the next start only.\n";

static const char *const type_names[] = {
    [OPTION_BOOL] = "bool",
    [OPTION_COUNT] = "whole number",
    [OPTION_SIZE] = "size",
    [OPTION_DURATION] = "duration",
    [OPTION_CHOICE] = "word",
    [OPTION_NUMBER] = "number",
    [OPTION_NAME] = "name",
    [OPTION_TEXT] = "path",
    [OPTION_HEADER] = "header name",
    [OPTION_LISTEN] = "address",
    [OPTION_URL] = "URL",
    [OPTION_URL_PATH] = "path of a URL",
    [OPTION_ENV_NAME] = "variable name",
    [OPTION_ENGINE] = "engine",
    [OPTION_POLICY] = "policy",
    [OPTION_ARGUMENT] = "argument",
    [OPTION_ENVIRONMENT] = "map of names and values",
};

/* The section of a path: "health.eject" of health.eject.max; "" at the top. */
static struct slice section_of(const struct option *option)
{
    const char *dot = strrchr(option->path, '.');
    return slice_of(option->path, dot ? (size_t)(dot - option->path) : 0);
}

static enum weir_err put_heading(struct slice section, struct buf *out)
{
    enum weir_err rc = section.len ? buf_printf(out, "\n## `%.*s`\n", SLICE_ARG(section))
                                   : buf_printf(out, "\n## Top level\n");
    return rc ? rc
              : buf_printf(out, "\n| option | type | default | allowed | meaning |\n"
                                "| --- | --- | --- | --- | --- |\n");
}

static enum weir_err put_choices(const struct option *option, struct buf *out)
{
    enum weir_err rc = WEIR_OK;
    struct slice word;
    for (size_t i = 0; !rc && (word = words_at(option->words, i)).len; i++)
        rc = buf_printf(out, "%s`%.*s`", i ? ", " : "", SLICE_ARG(word));
    return rc;
}

static enum weir_err put_range(const struct option *option, struct buf *out)
{
    enum weir_err rc = option_put_number(option, option->min, out);
    if (!rc)
        rc = buf_append(out, SLICE(" to "));
    if (!rc)
        rc = option_put_number(option, option->max, out);
    if (!rc && option->words)
        rc = buf_printf(out, ", `%s`", option->words);
    return rc;
}

static enum weir_err put_allowed(const struct option *option, struct buf *out)
{
    if (option->type == OPTION_CHOICE)
        return put_choices(option, out);
    if (option->type == OPTION_BOOL)
        return buf_append(out, SLICE("`true`, `false`"));
    if (option->is_list)
        return buf_printf(out, "%.0f to %.0f items", option->min, option->max);
    if (option_storage(option) == STORE_INTEGER || option_storage(option) == STORE_DOUBLE)
        return put_range(option, out);
    if (option->type == OPTION_ENGINE)
        return buf_append(out, SLICE("`weir check --list engines`"));
    if (option->type == OPTION_POLICY)
        return buf_append(out, SLICE("`weir check --list policies`"));
    if (option->words)
        return buf_printf(out, "or `%s`", option->words);
    return WEIR_OK;
}

static enum weir_err put_default(const struct option *option, struct buf *out)
{
    if (option->fallback)
        return buf_printf(out, "`%s`", option->fallback);
    return option->is_required ? buf_append(out, SLICE("required"))
                               : buf_printf(out, "none; e.g. `%s`", option->example);
}

static enum weir_err put_row(const struct option *option, struct buf *out)
{
    bool is_list = option->is_list && option->type != OPTION_ENVIRONMENT;
    enum weir_err rc = buf_printf(out, "| `%s` | %s%s | ", option_name(option),
                                  is_list ? "list: " : "", type_names[option->type]);
    if (!rc)
        rc = put_default(option, out);
    if (!rc)
        rc = buf_append(out, SLICE(" | "));
    if (!rc)
        rc = put_allowed(option, out);
    return rc ? rc
              : buf_printf(out, " | %s%s |\n", option->help,
                           option->needs_restart ? " (*restart*)" : "");
}

/* A section that is a struct has its own heading, made by its first option. */
enum weir_err config_write_reference(struct buf *out)
{
    enum weir_err rc = buf_append(out, slice_str(intro));
    const struct option *option;
    struct slice last = SLICE("none yet");
    for (size_t i = 0; !rc && (option = option_at(i)); i++) {
        struct slice section = section_of(option);
        if (option_storage(option) == STORE_STRUCTS)
            continue;
        if (!slice_eq(section, last))
            rc = put_heading(section, out);
        last = section;
        if (!rc)
            rc = put_row(option, out);
    }
    return rc;
}

enum weir_err config_list_options(struct buf *out)
{
    enum weir_err rc = WEIR_OK;
    const struct option *option;
    for (size_t i = 0; !rc && (option = option_at(i)); i++)
        rc = buf_printf(out, "%-42s %-15s %s\n", option->path,
                        option->fallback ? option->fallback : "-", option->help);
    return rc;
}
