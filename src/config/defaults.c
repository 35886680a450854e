#include <string.h>

#include "config/config.h"
#include "config/option.h"
#include "config/writer.h"

static const char header[] =
    "# Every option of weir with its default. Only a model with a name and replicas is needed; a\n"
    "# line that is missing means its default. Lines that begin with `#` and an option show one\n"
    "# that has no default, by an example. `weir check FILE` says whether a file is right.\n";

static void write_scope(struct writer_map *map, enum option_scope scope);

/* What a working file cannot be without. */
static bool is_needed(const struct option *option)
{
    return option->is_required || (option->scope == OPTION_POOL && option->type == OPTION_URL);
}

static void write_items(struct writer_map *map, const struct option *option,
                        enum option_scope scope)
{
    writer_key(map, option_key(option));
    writer_put(map->writer, "\n");
    struct writer_map item = {.writer = map->writer,
                              .indent = writer_below(map, option_key(option)) + 2,
                              .is_item = true};
    write_scope(&item, scope);
}

/* In place of replicas, so as a comment. */
static void write_launch(struct writer_map *map, const struct option *option)
{
    map->is_commented = true;
    writer_key(map, option_key(option));
    writer_put(map->writer, "\n");
    struct writer_map below = {.writer = map->writer,
                               .indent = writer_below(map, option_key(option)),
                               .outdent = 1,
                               .is_commented = true};
    write_scope(&below, OPTION_LAUNCH);
    map->is_commented = false;
}

static void write_option(struct writer_map *map, const struct option *option)
{
    switch (option->type) {
    case OPTION_MODELS:
        write_items(map, option, OPTION_MODEL);
        return;
    case OPTION_POOLS:
        write_items(map, option, OPTION_POOL);
        return;
    case OPTION_LAUNCH_SECTION:
        write_launch(map, option);
        return;
    default:
        writer_key(map, option_key(option));
        writer_put(map->writer, " %s\n", option->fallback ? option->fallback : option->example);
    }
}

static bool begins_section(const char *last, const char *key)
{
    size_t section = strcspn(key, ".");
    return !last || strncmp(last, key, section + 1) != 0;
}

static void write_scope(struct writer_map *map, enum option_scope scope)
{
    const struct option *option = NULL;
    bool was_commented = map->is_commented;
    while ((option = option_next(scope, option))) {
        const char *key = option_key(option);
        if (scope == OPTION_CONFIG && begins_section(map->last, key))
            writer_put(map->writer, "\n");
        bool is_section = option_storage(option) == STORE_STRUCTS;
        map->is_commented =
            was_commented || (!is_section && !option->fallback && !is_needed(option));
        writer_sections(map, key);
        map->last = key;
        writer_comment(map, key, option->help);
        write_option(map, option);
        map->is_commented = was_commented;
    }
}

enum weir_err config_show_defaults(struct buf *out)
{
    struct writer writer = {.out = out};
    struct writer_map map = {.writer = &writer};
    writer_put(&writer, "%s", header);
    write_scope(&map, OPTION_CONFIG);
    return writer.rc;
}
