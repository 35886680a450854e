#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/nearest.h"
#include "cmd/cmd.h"
#include "cmd/words.h"
#include "config/config.h"
#include "engines/engine.h"
#include "observe/metrics.h"
#include "routing/routing.h"

static const char help[] =
    "usage: weir check [--json] FILE\n"
    "       weir check --defaults | --reference | --list options|engines|policies|metrics\n"
    "\n"
    "Reads a configuration file as `weir serve` would, starts nothing, and says every mistake in "
    "it\n"
    "with line, column and what to write instead. Files with keys of engines are read too.\n"
    "\n"
    "  FILE           the file; - is standard input\n"
    "  --json         print {\"ok\", \"models\", \"pools\", \"replicas\", \"errors\": [{\"line\",\n"
    "                 \"column\", \"message\", \"help\"}]} for machines\n"
    "  --defaults     print every option with its default, as a file to begin with\n"
    "  --reference    print the reference page, in Markdown\n"
    "  --list WHAT    print the words for `engine:` or `routing: {policy:}`, all options, or all\n"
    "                 metrics (in Markdown)\n"
    "\n"
    "Exit status: 0 the file is right, 1 it is not, 2 wrong usage.\n"
    "\n"
    "To begin:  weir check --defaults > weir.yaml && weir check weir.yaml\n";

enum { MAX_OUTPUT = 1024 * 1024 };

/* Prints what `write` makes. */
static int print(enum weir_err (*write)(struct buf *out))
{
    struct buf out;
    buf_init(&out, MAX_OUTPUT);
    if (write(&out) != WEIR_OK)
        WEIR_BUG("a page of more than %d bytes", MAX_OUTPUT);
    bool printed = fwrite(buf_slice(&out).ptr, 1, buf_len(&out), stdout) == buf_len(&out);
    buf_free(&out);
    if (printed && fflush(stdout) == 0)
        return CMD_OK;
    perror("weir check: cannot write");
    return CMD_REFUSED;
}

static enum weir_err list_engines(struct buf *out)
{
    const struct engine *engine;
    enum weir_err rc = buf_printf(out, "%-20s asks the engine which of these it is\n", "auto");
    for (size_t i = 0; !rc && engine_at(i, &engine); i++)
        rc = buf_printf(out, "%-20s %s\n", engine->name, engine->help);
    return rc;
}

static enum weir_err list_policies(struct buf *out)
{
    const char *name, *text;
    enum weir_err rc = WEIR_OK;
    for (size_t i = 0; !rc && route_policy_at(i, &name, &text); i++)
        rc = buf_printf(out, "%-20s %s\n", name, text);
    return rc;
}

static int list(const char *what)
{
    static const char *const words[] = {"options", "engines", "policies", "routing", "metrics"};
    static enum weir_err (*const writers[])(struct buf *) = {
        config_list_options, list_engines, list_policies, list_policies, metrics_write_reference};
    enum { COUNT = sizeof words / sizeof words[0] };
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(what, words[i]) == 0)
            return print(writers[i]);
    const char *near = nearest_word(slice_str(what), words, COUNT);
    fprintf(stderr, "weir check: there is no list of '%s'; write --list %s%s\n", what,
            near ? near : "options, engines, policies or metrics", near ? "" : ", one of them");
    return CMD_USAGE;
}

struct totals {
    size_t models, pools, replicas;
};

static struct totals count(const struct config *config)
{
    struct totals t = {.models = config->model_count, .replicas = config->backend_count};
    for (size_t i = 0; i < config->model_count; i++) {
        const struct config_model *model = &config->models[i];
        t.pools += model->pool_count;
        for (size_t j = 0; j < model->pool_count; j++)
            t.replicas += model->pools[j].launch ? model->pools[j].launch->replicas
                                                 : model->pools[j].replica_count;
    }
    return t;
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static void say_ok(const char *file, const struct config *config)
{
    struct totals t = count(config);
    if (config->backend_count)
        printf("%s: ok, %zu backend%s to ask for models\n", file, t.replicas, plural(t.replicas));
    else
        printf("%s: ok, %zu model%s, %zu pool%s, %zu replica%s\n", file, t.models, plural(t.models),
               t.pools, plural(t.pools), t.replicas, plural(t.replicas));
}

static void say_wrong(const char *file, const struct config_errors *errors)
{
    struct slice report = buf_slice(&errors->report);
    fprintf(stderr, "%.*s%s: %zu mistake%s\n", SLICE_ARG(report), file, errors->count,
            plural(errors->count));
}

static enum weir_err put_mistake(const struct config_mistake *m, struct buf *out)
{
    enum weir_err rc =
        buf_printf(out, "{\"line\": %u, \"column\": %u, \"message\": ", m->line, m->column);
    if (!rc)
        rc = json_put_string(out, slice_str(m->text));
    if (!rc)
        rc = buf_printf(out, ", \"help\": ");
    if (!rc)
        rc = m->help ? json_put_string(out, slice_str(m->help)) : buf_printf(out, "null");
    return rc ? rc : buf_printf(out, "}");
}

static enum weir_err put_json(const char *file, const struct config *config,
                              const struct config_errors *errors, struct buf *out)
{
    struct totals t = config ? count(config) : (struct totals){0};
    enum weir_err rc = buf_printf(out, "{\"file\": ");
    if (!rc)
        rc = json_put_string(out, slice_str(file));
    if (!rc)
        rc = buf_printf(out,
                        ", \"ok\": %s, \"models\": %zu, \"pools\": %zu, \"replicas\": %zu, "
                        "\"error_count\": %zu, \"errors\": [",
                        config ? "true" : "false", t.models, t.pools, t.replicas, errors->count);
    for (size_t i = 0; !rc && i < errors->count && i < CONFIG_MAX_ERRORS; i++) {
        rc = i ? buf_printf(out, ", ") : WEIR_OK;
        if (!rc)
            rc = put_mistake(&errors->mistakes[i], out);
    }
    return rc ? rc : buf_printf(out, "]}\n");
}

static void say_json(const char *file, const struct config *config,
                     const struct config_errors *errors)
{
    struct buf out;
    buf_init(&out, MAX_OUTPUT);
    if (put_json(file, config, errors, &out) != WEIR_OK)
        WEIR_BUG("a report of more than %d bytes", MAX_OUTPUT);
    printf("%.*s", SLICE_ARG(buf_slice(&out)));
    buf_free(&out);
}

static int check_file(const char *file, bool json)
{
    struct config_errors errors;
    config_errors_init(&errors);
    const char *path = strcmp(file, "-") == 0 ? "/dev/stdin" : file;
    struct config *config = config_load(path, cmd_words(), &errors);
    int status = config ? CMD_OK : CMD_REFUSED;
    if (json)
        say_json(path, config, &errors);
    else if (config)
        say_ok(path, config);
    else
        say_wrong(path, &errors);
    config_free(config);
    config_errors_free(&errors);
    return status;
}

static int wrong_usage(const char *what, const char *word)
{
    fprintf(stderr, "weir check: %s%s\n%s", what, word, help);
    return CMD_USAGE;
}

static int refuse_flag(const char *flag)
{
    static const char *const flags[] = {"--json", "--defaults", "--reference", "--list", "--help"};
    const char *near = nearest_word(slice_str(flag), flags, sizeof flags / sizeof flags[0]);
    fprintf(stderr, "weir check: there is no option '%s'.", flag);
    if (near)
        fprintf(stderr, " Did you mean '%s'?", near);
    fputs(" 'weir check --help' lists them all.\n", stderr);
    return CMD_USAGE;
}

/* What prints something and reads no file. */
static bool is_page(const char *flag)
{
    return strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0 ||
           strcmp(flag, "--defaults") == 0 || strcmp(flag, "--reference") == 0 ||
           strcmp(flag, "--list") == 0;
}

static int print_page(int argc, char **argv)
{
    bool is_list = strcmp(argv[1], "--list") == 0;
    if (is_list && argc < 3)
        return wrong_usage("--list needs a word: options, engines or policies", "");
    if (argc > (is_list ? 3 : 2))
        return wrong_usage("nothing can stand beside ", argv[1]);
    if (is_list)
        return list(argv[2]);
    if (strcmp(argv[1], "--defaults") == 0)
        return print(config_show_defaults);
    if (strcmp(argv[1], "--reference") == 0)
        return print(config_write_reference);
    fputs(help, stdout);
    return CMD_OK;
}

int cmd_check(int argc, char **argv)
{
    const char *file = NULL;
    bool json = false;
    if (argc > 1 && is_page(argv[1]))
        return print_page(argc, argv);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (is_page(argv[i]))
            return wrong_usage("nothing can stand beside ", argv[i]);
        else if (argv[i][0] == '-' && argv[i][1])
            return refuse_flag(argv[i]);
        else if (file)
            return wrong_usage("one file at a time, and there is also ", argv[i]);
        else
            file = argv[i];
    }
    return file ? check_file(file, json) : wrong_usage("which file?", "");
}
