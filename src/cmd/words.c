#include "cmd/words.h"

#include "engines/engine.h"
#include "routing/routing.h"

enum { MAX_WORDS = 63 };

static void fill_engines(const char **words)
{
    const struct engine *engine;
    for (size_t i = 0; i < MAX_WORDS && engine_at(i, &engine); i++)
        words[i] = engine->name;
}

static void fill_policies(const char **words)
{
    const char *help;
    for (size_t i = 0; i < MAX_WORDS && route_policy_at(i, &words[i], &help); i++)
        ;
}

const struct config_words *cmd_words(void)
{
    static const char *engines[MAX_WORDS + 1], *policies[MAX_WORDS + 1];
    static const struct config_words words = {.engines = engines, .policies = policies};
    if (!engines[0]) {
        fill_engines(engines);
        fill_policies(policies);
    }
    return &words;
}
