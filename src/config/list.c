#include "base/map.h"
#include "config/command_line.h"
#include "config/loader.h"

/* A replica may be a map, so that it can have options of its own one day. */
static const struct yaml_node *unwrap_url(struct loader *l, const struct option *option,
                                          const struct yaml_node *item)
{
    if (option->type != OPTION_URL || item->kind != YAML_MAP)
        return item;
    const struct yaml_node *url = NULL;
    for (const struct yaml_entry *e = item->first; e; e = e->next) {
        char word[SHOWN_MAX];
        if (slice_eq(e->key->text, SLICE("url"))) {
            url = e->value;
            continue;
        }
        complain(&l->reader.complaint, "unknown option `%s` of a replica",
                 shown(e->key->text, word));
        advise(&l->reader.complaint, "a replica is a URL or `{url: URL}`");
        loader_say(l, e->key->place);
    }
    return url ? url : item;
}

static void check_twice(struct loader *l, const struct option *option, struct map *seen,
                        const struct yaml_node *item, const char *value)
{
    struct slice identity = value_identity(option, value, l->scratch);
    const struct yaml_node *first = map_get(seen, identity);
    if (option->type == OPTION_ARGUMENT)
        return;
    if (!first) {
        map_set(seen, identity, (void *)item);
        return;
    }
    char word[SHOWN_MAX];
    complain(&l->reader.complaint, "`%s` stands in this list twice", shown(slice_str(value), word));
    advise(&l->reader.complaint, "the first is in line %u; keep one of them", first->place.line);
    loader_say_of(l, option, item->place);
}

static void load_items(struct loader *l, const struct option *option, const struct yaml_node *node,
                       void *base)
{
    const char **list = arena_zalloc(l->reader.arena, (node->count + 1) * sizeof *list);
    struct map seen = {0};
    size_t count = 0;
    for (const struct yaml_entry *e = node->first; e && !report_is_full(l->report); e = e->next) {
        const struct yaml_node *item = unwrap_url(l, option, e->value);
        if (!loader_is_scalar(l, option, item))
            continue;
        const char *value = value_read_item(&l->reader, option, item->text);
        if (!value) {
            loader_say_of(l, option, item->place);
            continue;
        }
        list[count++] = value;
        check_twice(l, option, &seen, item, value);
    }
    map_free(&seen);
    option_set_strings(option, base, list, count);
}

static void load_one_item(struct loader *l, const struct option *option,
                          const struct yaml_node *node, void *base)
{
    size_t count = 1;
    const char *const *list;
    if (option->type == OPTION_ARGUMENT) {
        list = command_line_split(node->text, l->reader.arena, &count, &l->reader.complaint);
    } else {
        const char **one = arena_zalloc(l->reader.arena, 2 * sizeof *one);
        one[0] = value_read_item(&l->reader, option, node->text);
        list = one[0] ? one : NULL;
    }
    if (!list)
        loader_say_of(l, option, node->place);
    else if (loader_count_fits(l, option, node, count))
        option_set_strings(option, base, list, count);
}

void loader_read_list(struct loader *l, const struct option *option, const struct yaml_node *node,
                      void *base)
{
    if (node->kind == YAML_LIST) {
        if (loader_count_fits(l, option, node, node->count))
            load_items(l, option, node, base);
    } else if (node->kind == YAML_MAP) {
        loader_say_kind(l, option, node, "a list");
    } else if (loader_is_scalar(l, option, node)) {
        load_one_item(l, option, node, base);
    }
}

void loader_read_environment(struct loader *l, const struct option *option,
                             const struct yaml_node *node, void *base)
{
    if (node->kind != YAML_MAP) {
        if (!node->is_null)
            loader_say_kind(l, option, node, "a map of names and values");
        return;
    }
    const char **list = arena_zalloc(l->reader.arena, (node->count + 1) * sizeof *list);
    size_t count = 0;
    if (!loader_count_fits(l, option, node, node->count))
        return;
    for (const struct yaml_entry *e = node->first; e; e = e->next) {
        if (e->value->kind != YAML_SCALAR) {
            loader_say_kind(l, option, e->value, "one value for each name");
            continue;
        }
        list[count] = value_read_variable(&l->reader, e->key->text, e->value->text);
        if (list[count])
            count++;
        else
            loader_say_of(l, option, e->key->place);
    }
    option_set_strings(option, base, list, count);
}
