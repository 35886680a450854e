#define _GNU_SOURCE 1 /* sched_getaffinity */
#include "config/load.h"

#include <sched.h>
#include <unistd.h>

#include "base/heap.h"
#include "config/file.h"
#include "config/loader.h"

enum { MAX_WORKERS = 1024, ARENA_BLOCK = 16 * 1024 };

void load_defaults(enum option_scope scope, void *base, struct arena *arena)
{
    const struct option *option = NULL;
    while ((option = option_next(scope, option)))
        if (option_storage(option) != STORE_STRUCTS)
            value_set_default(option, base, arena);
}

struct config *load_begin(const char *file)
{
    struct config *config = heap_zalloc(sizeof *config);
    arena_init(&config->arena, ARENA_BLOCK, SIZE_MAX); /* bounded by the file's size */
    load_defaults(OPTION_CONFIG, config, &config->arena);
    if (file)
        config->file = arena_strdup(&config->arena, slice_str(file));
    return config;
}

static uint32_t usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than cpu_set_t can say */
    return online > 0 ? (uint32_t)online : 1;
}

void load_complete(struct config *config)
{
    if (config->workers == 0)
        config->workers = usable_cpus();
    if (config->workers > MAX_WORKERS)
        config->workers = MAX_WORKERS;
}

void config_free(struct config *config)
{
    if (!config)
        return;
    arena_free(&config->arena);
    heap_free(config);
}

struct config *config_parse(struct slice text, const char *name, const struct config_words *words,
                            struct config_errors *errors)
{
    struct report report = {.file = name, .source = text, .errors = errors};
    struct config *config = load_begin(name);
    struct arena scratch;
    arena_init(&scratch, ARENA_BLOCK, SIZE_MAX);
    const struct yaml_node *root = yaml_parse(text, &scratch, &report);
    struct loader loader = {
        .config = config,
        .reader = {.words = words, .arena = &config->arena},
        .report = &report,
        .scratch = &scratch,
    };
    if (root) {
        loader_read_root(&loader, root);
    } else if (errors->count == 0) {
        complain(&loader.reader.complaint,
                 "the configuration is empty: no models, so nothing to serve");
        advise(&loader.reader.complaint, "`weir check --defaults` prints one to begin with");
        loader_say(&loader, (struct place){0});
    }
    arena_free(&scratch);
    report_finish(&report);
    if (errors->count == 0)
        return config;
    config_free(config);
    return NULL;
}

struct config *config_load(const char *path, const struct config_words *words,
                           struct config_errors *errors)
{
    struct buf text;
    struct error err = {0};
    struct config *config = NULL;
    buf_init(&text, YAML_MAX_BYTES);
    if (file_read(path, false, &text, &err) == WEIR_OK) {
        config = config_parse(buf_slice(&text), path, words, errors);
    } else {
        struct report report = {.file = path, .errors = errors};
        struct complaint why;
        complain(&why, "the file %s", err.text);
        report_mistake(&report, (struct place){0}, &why);
        report_finish(&report);
    }
    buf_free(&text);
    return config;
}
