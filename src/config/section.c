#include <stdio.h>
#include <string.h>

#include "config/check.h"
#include "config/load.h"
#include "config/loader.h"
#include "config/secret.h"
#include "config/unknown.h"

static void load_section(struct loader *l, const struct yaml_node *map, const char *prefix,
                         const struct targets *targets);

static void require(struct loader *l, enum option_scope scope, const struct yaml_node *node,
                    const char *what)
{
    const struct option *option = NULL;
    while ((option = option_next(scope, option))) {
        if (!option->is_required || yaml_find(node, slice_str(option_key(option))))
            continue;
        complain(&l->reader.complaint, "%s needs `%s`", what, option_key(option));
        advise(&l->reader.complaint, "as in `%s: %s`", option_key(option), option->example);
        loader_say(l, node->place);
    }
}

static bool is_map(struct loader *l, const struct yaml_node *node, const char *what)
{
    if (node->kind == YAML_MAP)
        return true;
    complain(&l->reader.complaint, "%s is a map of options, and this is %s", what,
             node->is_null ? "empty" : loader_kind_name(node));
    advise(&l->reader.complaint, "write its options below it, indented, as `name: value`");
    loader_say(l, node->place);
    return false;
}

static void load_launch(struct loader *l, const struct yaml_node *node, struct config_pool *pool)
{
    struct config_launch *launch = arena_zalloc(l->reader.arena, sizeof *launch);
    load_defaults(OPTION_LAUNCH, launch, l->reader.arena);
    pool->launch = launch;
    if (!is_map(l, node, "launch"))
        return;
    load_section(l, node, "", &(struct targets){{{OPTION_LAUNCH, launch}}, 1});
    require(l, OPTION_LAUNCH, node, "launch");
}

static void load_secret(struct loader *l, const struct yaml_node *node, struct config_pool *pool)
{
    const struct yaml_entry *file = yaml_find(node, SLICE("api_key_file"));
    const struct yaml_entry *variable = yaml_find(node, SLICE("api_key_env"));
    if (file && variable) {
        complain(&l->reader.complaint, "the key comes from a file or from the environment");
        advise(&l->reader.complaint, "keep api_key_file or api_key_env, not both");
        loader_say(l, variable->key->place);
        return;
    }
    if (pool->api_key_file) {
        pool->api_key = secret_from_file(pool->api_key_file, l->reader.arena, &l->reader.complaint);
        if (!pool->api_key)
            loader_say(l, file->value->place);
    } else if (pool->api_key_env) {
        pool->api_key =
            secret_from_environment(pool->api_key_env, l->reader.arena, &l->reader.complaint);
        if (!pool->api_key)
            loader_say(l, variable->value->place);
    }
}

static void finish_pool(struct loader *l, const struct yaml_node *node, struct config_pool *pool,
                        const char *policy)
{
    if (!pool->policy)
        pool->policy = policy;
    load_secret(l, node, pool);
}

static bool is_list(struct loader *l, const struct yaml_node *node, const char *what,
                    const char *help)
{
    if (node->kind == YAML_LIST)
        return true;
    if (!node->is_null) {
        complain(&l->reader.complaint, "%s is a list, and this is %s", what,
                 loader_kind_name(node));
        advise(&l->reader.complaint, "%s", help);
        loader_say(l, node->place);
    }
    return false;
}

static void load_pools(struct loader *l, const struct yaml_node *node, struct config_model *model,
                       const char *policy)
{
    if (!is_list(l, node, "pools", "begin each pool with a dash: `- name: my-pool`"))
        return;
    struct config_pool *pools = arena_zalloc(l->reader.arena, node->count * sizeof *pools);
    model->pools = pools;
    for (const struct yaml_entry *e = node->first; e && !report_is_full(l->report); e = e->next) {
        struct config_pool *pool = &pools[model->pool_count++];
        load_defaults(OPTION_POOL, pool, l->reader.arena);
        if (!is_map(l, e->value, "a pool"))
            continue;
        load_section(l, e->value, "", &(struct targets){{{OPTION_POOL, pool}}, 1});
        finish_pool(l, e->value, pool, policy);
    }
}

/* With `pools`, only what pools inherit may stand beside them. */
static void refuse_beside_pools(struct loader *l, const struct yaml_node *node)
{
    for (const struct yaml_entry *e = node->first; e; e = e->next) {
        struct slice key = e->key->text;
        const struct option *option = option_find(OPTION_POOL, key);
        if (!option || option_find(OPTION_MODEL, key))
            continue;
        complain(&l->reader.complaint, "`%.*s` stands beside `pools`", SLICE_ARG(key));
        advise(&l->reader.complaint, "move it into the pool that it is meant for");
        loader_say(l, e->key->place);
    }
}

static void load_model(struct loader *l, const struct yaml_node *node, struct config_model *model)
{
    struct config_pool *own = arena_zalloc(l->reader.arena, sizeof *own);
    load_defaults(OPTION_MODEL, model, l->reader.arena);
    load_defaults(OPTION_POOL, own, l->reader.arena);
    l->pools = NULL;
    if (!is_map(l, node, "a model"))
        return;
    load_section(l, node, "", &(struct targets){{{OPTION_MODEL, model}, {OPTION_POOL, own}}, 2});
    require(l, OPTION_MODEL, node, "a model");
    if (l->pools) {
        refuse_beside_pools(l, node);
        load_pools(l, l->pools, model, own->policy ? own->policy : l->config->policy);
        return;
    }
    finish_pool(l, node, own, l->config->policy);
    model->pools = own;
    model->pool_count = 1;
}

static void load_models(struct loader *l, const struct yaml_node *node)
{
    if (!is_list(l, node, "models", "begin each model with a dash: `- name: my-model`"))
        return;
    const struct option *option = option_find(OPTION_CONFIG, SLICE("models"));
    if (!loader_count_fits(l, option, node, node->count))
        return;
    struct config_model *models = arena_zalloc(l->reader.arena, node->count * sizeof *models);
    l->config->models = models;
    for (const struct yaml_entry *e = node->first; e && !report_is_full(l->report); e = e->next)
        load_model(l, e->value, &models[l->config->model_count++]);
}

static void load_value(struct loader *l, const struct option *option, const struct yaml_node *node,
                       void *base)
{
    switch (option->type) {
    case OPTION_MODELS:
        l->models = node;
        return;
    case OPTION_POOLS:
        l->pools = node;
        return;
    case OPTION_LAUNCH_SECTION:
        load_launch(l, node, base);
        return;
    case OPTION_ENVIRONMENT:
        loader_read_environment(l, option, node, base);
        return;
    default:
        break;
    }
    if (option->is_list)
        loader_read_list(l, option, node, base);
    else if (loader_is_scalar(l, option, node) && !value_read(&l->reader, option, node->text, base))
        loader_say_of(l, option, node->place);
}

static void load_entry(struct loader *l, const struct yaml_entry *entry, const char *prefix,
                       const struct targets *targets)
{
    char path[128];
    struct slice key = entry->key->text;
    int len = snprintf(path, sizeof path, "%s%.*s", prefix, SLICE_ARG(key));
    bool is_word = key.len && len > 0 && (size_t)len < sizeof path - 1 &&
                   strlen(path) == (size_t)len && !memchr(key.ptr, '.', key.len);
    for (size_t i = 0; is_word && i < targets->count; i++) {
        const struct target *t = &targets->list[i];
        const struct option *option = option_find(t->scope, slice_str(path));
        if (option) {
            load_value(l, option, entry->value, t->base);
            return;
        }
        if (option_is_section(t->scope, slice_str(path))) {
            snprintf(path + len, sizeof path - (size_t)len, ".");
            if (!entry->value->is_null && is_map(l, entry->value, "a section"))
                load_section(l, entry->value, path, targets);
            return;
        }
    }
    unknown_option(&l->reader.complaint, key, prefix, targets);
    loader_say(l, entry->key->place);
}

static void load_section(struct loader *l, const struct yaml_node *map, const char *prefix,
                         const struct targets *targets)
{
    for (const struct yaml_entry *e = map->first; e && !report_is_full(l->report); e = e->next)
        load_entry(l, e, prefix, targets);
}

void loader_read_root(struct loader *l, const struct yaml_node *root)
{
    if (!is_map(l, root, "a configuration"))
        return;
    load_section(l, root, "", &(struct targets){{{OPTION_CONFIG, l->config}}, 1});
    if (l->models)
        load_models(l, l->models);
    load_complete(l->config);
    if (!report_is_full(l->report))
        check_config(l->config, root, l->report);
}
