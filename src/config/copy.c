#include <string.h>

#include "config/config.h"
#include "config/load.h"
#include "config/option.h"
#include "config/secret.h"

static void copy_scope(enum option_scope scope, void *to, const void *from, struct arena *arena)
{
    const struct option *option = NULL;
    while ((option = option_next(scope, option)))
        if (option_storage(option) != STORE_STRUCTS)
            option_copy(option, to, from, arena);
}

static const struct config_launch *copy_launch(const struct config_launch *from,
                                               struct arena *arena)
{
    if (!from)
        return NULL;
    struct config_launch *to = arena_zalloc(arena, sizeof *to);
    copy_scope(OPTION_LAUNCH, to, from, arena);
    return to;
}

static const struct config_pool *copy_pools(const struct config_model *model, const char *policy,
                                            struct arena *arena)
{
    struct config_pool *pools = arena_zalloc(arena, model->pool_count * sizeof *pools);
    for (size_t i = 0; i < model->pool_count; i++) {
        const struct config_pool *from = &model->pools[i];
        copy_scope(OPTION_POOL, &pools[i], from, arena);
        pools[i].api_key = secret_copy(from->api_key, arena);
        pools[i].launch = copy_launch(from->launch, arena);
        if (!pools[i].policy)
            pools[i].policy = policy;
    }
    return pools;
}

struct config *config_with_models(const struct config *base, const struct config_model *models,
                                  size_t count)
{
    struct config *config = load_begin(base->file);
    struct arena *arena = &config->arena;
    copy_scope(OPTION_CONFIG, config, base, arena);
    config->backends = NULL;
    config->backend_count = 0;

    struct config_model *copies = arena_zalloc(arena, count * sizeof *copies);
    for (size_t i = 0; i < count; i++) {
        copy_scope(OPTION_MODEL, &copies[i], &models[i], arena);
        copies[i].pools = copy_pools(&models[i], config->policy, arena);
        copies[i].pool_count = models[i].pool_count;
    }
    config->models = copies;
    config->model_count = count;
    return config;
}
