#include "config/check.h"

#include <string.h>

#include "base/map.h"
#include "base/nearest.h"
#include "net/address.h"

struct checker {
    const struct config *config;
    const struct yaml_node *root;
    struct report *report;
    struct complaint complaint;
};

static void say(struct checker *c, struct place place)
{
    report_mistake(c->report, place, &c->complaint);
}

/* Where an option's value stands, or the map that it is missing from. */
static struct place value_place(const struct yaml_node *map, const char *path)
{
    const struct yaml_entry *entry = yaml_find_path(map, path);
    return entry ? entry->value->place : map->place;
}

/* ---- options that belong together ---- */

/* A refused value left its default behind: comparing with that would only confuse. */
static bool is_refused(const struct checker *c, const char *path)
{
    const struct yaml_entry *entry = yaml_find_path(c->root, path);
    return entry && report_has(c->report, entry->value->place);
}

static void check_order(struct checker *c, uint64_t small, uint64_t large, const char *small_path,
                        const char *large_path)
{
    if (small <= large || is_refused(c, small_path) || is_refused(c, large_path))
        return;
    bool small_is_written = yaml_find_path(c->root, small_path);
    complain(&c->complaint, "%s is more than %s", small_path, large_path);
    advise(&c->complaint, "lower the first or raise the second");
    say(c, value_place(c->root, small_is_written ? small_path : large_path));
}

static bool is_same_address(const char *a, const char *b)
{
    struct endpoint first, second;
    return address_parse_listen(slice_str(a), &first, NULL) == WEIR_OK &&
           address_parse_listen(slice_str(b), &second, NULL) == WEIR_OK &&
           first.length == second.length && memcmp(first.bytes, second.bytes, first.length) == 0;
}

static void check_admin(struct checker *c)
{
    const char *admin = c->config->admin_listen;
    bool is_written = yaml_find_path(c->root, "admin");
    for (size_t i = 0; admin && i < c->config->listen_count; i++) {
        if (!is_same_address(admin, c->config->listen[i]) || is_refused(c, "admin"))
            continue;
        complain(&c->complaint, "clients and the admin API cannot share `%s`", admin);
        advise(&c->complaint, "give admin another port, or `off`");
        say(c, value_place(c->root, is_written ? "admin" : "listen"));
    }
}

static void check_somewhere_to_go(struct checker *c)
{
    bool has_models = yaml_find_path(c->root, "models");
    bool has_backends = yaml_find_path(c->root, "backends");
    if (has_models && has_backends) {
        complain(&c->complaint, "`backends` stands beside `models`");
        advise(&c->complaint, "keep one: backends are asked for their models, models say them");
        say(c, yaml_find_path(c->root, "backends")->key->place);
    } else if (c->config->model_count == 0 && c->config->backend_count == 0 &&
               c->report->errors->count == 0) {
        complain(&c->complaint, "there are no models, so there is nothing to serve");
        advise(&c->complaint, "`weir check --defaults` prints a whole file as an example");
        say(c, has_models ? value_place(c->root, "models") : (struct place){0});
    }
}

/* ---- names ---- */

/* Names of all models and aliases are one space; pools' names are one per model. */
static void check_name(struct checker *c, struct map *seen, const char *name,
                       const struct yaml_node *node, const char *what)
{
    if (!name || !node)
        return;
    const struct yaml_node *first = map_get(seen, slice_str(name));
    if (!first) {
        map_set(seen, slice_str(name), (void *)node);
        return;
    }
    char word[SHOWN_MAX];
    complain(&c->complaint, "there is already a %s `%s`", what, shown(slice_str(name), word));
    if (first->place.line == node->place.line && first->place.column == node->place.column)
        advise(&c->complaint, "give each of them a name of its own");
    else
        advise(&c->complaint, "the first is in line %u; rename one", first->place.line);
    say(c, node->place);
}

static const struct yaml_node *value_node(const struct yaml_node *map, const char *key)
{
    const struct yaml_entry *entry = yaml_find_path(map, key);
    return entry ? entry->value : map;
}

static const struct yaml_node *alias_node(const struct yaml_node *model, const char *alias)
{
    const struct yaml_node *aliases = value_node(model, "aliases");
    if (aliases->kind != YAML_LIST)
        return aliases;
    for (const struct yaml_entry *e = aliases->first; e; e = e->next)
        if (slice_eq(e->value->text, slice_str(alias)))
            return e->value;
    return aliases;
}

static void check_model_names(struct checker *c, struct map *seen, const struct config_model *model,
                              const struct yaml_node *node)
{
    check_name(c, seen, model->name, value_node(node, "name"), "model or alias");
    for (size_t i = 0; i < model->alias_count; i++) {
        const struct yaml_node *alias = alias_node(node, model->aliases[i]);
        if (map_get(seen, slice_str(model->aliases[i])) != alias) /* twice in one list is said */
            check_name(c, seen, model->aliases[i], alias, "model or alias");
    }
}

/* ---- launch ---- */

static bool is_placeholder_char(char c)
{
    return (c >= 'a' && c <= 'z') || c == '_';
}

/* {prot} is a slip; {"a": 1} and {} are JSON and the engine's own. */
static void check_placeholders(struct checker *c, const char *argument, struct place place)
{
    static const char *const known[] = {"port", "model", "index"};
    for (const char *open = strchr(argument, '{'); open; open = strchr(open + 1, '{')) {
        size_t len = 0;
        while (is_placeholder_char(open[1 + len]))
            len++;
        struct slice word = slice_of(open + 1, len);
        if (len == 0 || open[1 + len] != '}')
            continue;
        const char *near = nearest_word(word, known, 3);
        if (!near || slice_eq(word, slice_str(near)))
            continue;
        char text[SHOWN_MAX];
        complain(&c->complaint, "nothing fills in `{%s}`", shown(word, text));
        advise(&c->complaint, "did you mean `{%s}`?", near);
        say(c, place);
    }
}

/* Words of the command or the environment; true when one of them has {port}. */
static bool check_words(struct checker *c, const char *const *words, struct place place)
{
    bool has_port = false;
    for (; words && *words; words++) {
        check_placeholders(c, *words, place);
        has_port |= strstr(*words, "{port}") != NULL;
    }
    return has_port;
}

static void check_command(struct checker *c, const struct config_launch *launch,
                          const struct yaml_node *node)
{
    struct place place = value_place(node, "command");
    bool has_port = check_words(c, launch->command, place);
    has_port |= check_words(c, launch->environment, value_place(node, "environment"));
    if (!launch->command || has_port || (launch->first_port && launch->replicas == 1))
        return;
    complain(&c->complaint, "the command has no {port}, so the engine cannot know its port");
    advise(&c->complaint, "add it, as in `--port {port}`; or, for one replica, say first_port");
    say(c, place);
}

/* [first_port, last] of every launch so far; few, so a walk is enough. */
struct port_ranges {
    struct {
        uint32_t first, last;
        uint32_t line;
    } range[256];
    size_t count;
};

static void check_ports(struct checker *c, struct port_ranges *used,
                        const struct config_launch *launch, const struct yaml_node *node)
{
    if (launch->first_port == 0)
        return;
    struct place place = value_place(node, "first_port");
    uint32_t first = launch->first_port, last = first + (uint32_t)launch->replicas - 1;
    if (last > UINT16_MAX) {
        complain(&c->complaint, "the last replica's port would be %u", last);
        advise(&c->complaint, "ports end at 65535; lower first_port");
        say(c, place);
    }
    for (size_t i = 0; i < used->count; i++) {
        if (last < used->range[i].first || first > used->range[i].last)
            continue;
        complain(&c->complaint, "ports %u to %u are also taken by another launch", first, last);
        advise(&c->complaint, "that one is in line %u; each needs ports of its own",
               used->range[i].line);
        say(c, place);
        return;
    }
    if (used->count < sizeof used->range / sizeof used->range[0]) {
        used->range[used->count].first = first;
        used->range[used->count].last = last;
        used->range[used->count++].line = place.line;
    }
}

/* ---- models and pools ---- */

static void check_pool(struct checker *c, struct port_ranges *used, const struct config_pool *pool,
                       const struct yaml_node *node, const char *what)
{
    bool has_replicas = yaml_find(node, SLICE("replicas"));
    if (has_replicas && pool->launch) {
        complain(&c->complaint, "a pool has `replicas` or `launch`, not both");
        advise(&c->complaint, "put one of them into a pool of its own");
        say(c, yaml_find(node, SLICE("launch"))->key->place);
    } else if (!has_replicas && !pool->launch) {
        complain(&c->complaint, "this %s has no replicas", what);
        advise(&c->complaint, "add `replicas: [http://host:port]`, or `launch` to start some");
        say(c, node->place);
    }
    const struct yaml_node *launch = value_node(node, "launch");
    if (pool->launch && launch->kind == YAML_MAP) {
        check_command(c, pool->launch, launch);
        check_ports(c, used, pool->launch, launch);
    }
}

static void check_pools(struct checker *c, struct port_ranges *used,
                        const struct config_model *model, const struct yaml_node *node)
{
    const struct yaml_entry *pools = yaml_find(node, SLICE("pools"));
    if (!pools) {
        if (model->pool_count == 1)
            check_pool(c, used, &model->pools[0], node, "model");
        return;
    }
    if (pools->value->count == 0) {
        complain(&c->complaint, "this model has no pools");
        advise(&c->complaint, "add one, or give the model `replicas` or `launch` itself");
        say(c, pools->key->place);
    }
    struct map seen = {0};
    const struct yaml_entry *entry = pools->value->first;
    for (size_t i = 0; i < model->pool_count && entry; i++, entry = entry->next) {
        if (entry->value->kind != YAML_MAP)
            continue;
        check_name(c, &seen, model->pools[i].name, value_node(entry->value, "name"), "pool");
        check_pool(c, used, &model->pools[i], entry->value, "pool");
    }
    map_free(&seen);
}

static void check_models(struct checker *c)
{
    const struct yaml_entry *models = yaml_find(c->root, SLICE("models"));
    const struct yaml_entry *entry = models ? models->value->first : NULL;
    struct map seen = {0};
    struct port_ranges used = {.count = 0};
    for (size_t i = 0; i < c->config->model_count && entry; i++, entry = entry->next) {
        if (entry->value->kind != YAML_MAP)
            continue;
        check_model_names(c, &seen, &c->config->models[i], entry->value);
        check_pools(c, &used, &c->config->models[i], entry->value);
    }
    map_free(&seen);
}

void check_config(const struct config *config, const struct yaml_node *root, struct report *report)
{
    struct checker c = {.config = config, .root = root, .report = report};
    check_order(&c, config->limits.body_bytes, config->limits.body_memory_bytes, "limits.body",
                "limits.body_memory");
    check_order(&c, config->health.eject_base_ns, config->health.eject_max_ns, "health.eject.base",
                "health.eject.max");
    check_admin(&c);
    check_models(&c);
    check_somewhere_to_go(&c);
}
