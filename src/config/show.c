#include "base/buf.h"
#include "config/config.h"
#include "config/option.h"
#include "config/writer.h"

static void show_scope(struct writer_map *map, enum option_scope scope, const void *base);

static void show_value(struct writer_map *map, const struct option *option, const void *base)
{
    struct writer *w = map->writer;
    writer_put(w, " ");
    if (option_storage(option) == STORE_STRING && option_string(option, base))
        writer_scalar(w, slice_str(option_string(option, base)));
    else if (!w->rc)
        w->rc = option_put(option, base, w->out);
    writer_put(w, "\n");
}

static void show_strings(struct writer_map *map, const struct option *option, const void *base)
{
    size_t count;
    const char *const *list = option_strings(option, base, &count);
    writer_put(map->writer, "\n");
    for (size_t i = 0; i < count; i++) {
        struct slice item = slice_str(list[i]);
        struct slice name = {0};
        const char *equals = strchr(list[i], '=');
        if (option->type == OPTION_ENVIRONMENT && equals) {
            name = slice_of(list[i], (size_t)(equals - list[i]));
            item = slice_str(equals + 1);
        }
        writer_item(map, option_key(option), name);
        writer_scalar(map->writer, item);
        writer_put(map->writer, "\n");
    }
}

static void show_items(struct writer_map *map, const struct option *option, enum option_scope scope,
                       const void *items, size_t count, size_t size)
{
    if (count == 0)
        return;
    writer_key(map, option_key(option));
    writer_put(map->writer, "\n");
    for (size_t i = 0; i < count; i++) {
        struct writer_map item = {.writer = map->writer,
                                  .indent = writer_below(map, option_key(option)) + 2,
                                  .is_item = true};
        show_scope(&item, scope, (const char *)items + i * size);
    }
}

static void show_launch(struct writer_map *map, const struct option *option,
                        const struct config_launch *launch)
{
    if (!launch)
        return;
    writer_key(map, option_key(option));
    writer_put(map->writer, "\n");
    struct writer_map below = {.writer = map->writer,
                               .indent = writer_below(map, option_key(option))};
    show_scope(&below, OPTION_LAUNCH, launch);
}

static void show_structs(struct writer_map *map, const struct option *option, const void *base)
{
    const struct config *config = base;
    const struct config_model *model = base;
    const struct config_pool *pool = base;
    if (option->type == OPTION_MODELS)
        show_items(map, option, OPTION_MODEL, config->models, config->model_count,
                   sizeof *config->models);
    else if (option->type == OPTION_POOLS)
        show_items(map, option, OPTION_POOL, model->pools, model->pool_count, sizeof *model->pools);
    else
        show_launch(map, option, pool->launch);
}

static void show_scope(struct writer_map *map, enum option_scope scope, const void *base)
{
    const struct option *option = NULL;
    while ((option = option_next(scope, option))) {
        enum option_storage storage = option_storage(option);
        if (storage == STORE_STRUCTS) {
            show_structs(map, option, base);
            continue;
        }
        if (!option_is_set(option, base))
            continue;
        writer_key(map, option_key(option));
        if (storage == STORE_STRINGS)
            show_strings(map, option, base);
        else
            show_value(map, option, base);
    }
}

enum weir_err config_show(const struct config *config, struct buf *out)
{
    struct writer writer = {.out = out};
    struct writer_map map = {.writer = &writer};
    show_scope(&map, OPTION_CONFIG, config);
    return writer.rc;
}
