#include "config/unknown.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

enum { MAX_HERE = 64, MAX_KEY = 48 };

/* The words that could stand here. */
struct candidates {
    char text[MAX_HERE][MAX_KEY];
    const char *words[MAX_HERE];
    size_t count;
};

static void add_candidate(struct candidates *c, const char *key)
{
    char word[MAX_KEY];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(key, "."), key);
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->words[i], word) == 0)
            return;
    if (c->count == MAX_HERE)
        return;
    memcpy(c->text[c->count], word, sizeof word);
    c->words[c->count] = c->text[c->count];
    c->count++;
}

static void collect(struct candidates *c, const char *prefix, const struct targets *targets)
{
    c->count = 0;
    for (size_t i = 0; i < targets->count; i++) {
        const struct option *option = NULL;
        while ((option = option_next(targets->list[i].scope, option))) {
            struct slice key = slice_str(option_key(option));
            if (slice_starts(key, slice_str(prefix)))
                add_candidate(c, option_key(option) + strlen(prefix));
        }
    }
}

/* An option of that name in another section, or NULL. */
static const struct option *find_elsewhere(struct slice key)
{
    const struct option *option;
    for (size_t i = 0; (option = option_at(i)); i++)
        if (slice_eq(key, slice_str(option_name(option))))
            return option;
    return NULL;
}

/* "timeouts.connect" as a key: YAML does not nest by points. */
static const struct option *find_dotted(struct slice key, const char *prefix,
                                        const struct targets *targets)
{
    char path[128];
    snprintf(path, sizeof path, "%s%.*s", prefix, SLICE_ARG(key));
    for (size_t i = 0; i < targets->count; i++) {
        const struct option *option = option_find(targets->list[i].scope, slice_str(path));
        if (option)
            return option;
    }
    return NULL;
}

static void advise_list(struct complaint *complaint, const struct candidates *c)
{
    char list[sizeof complaint->help - 32] = "";
    size_t len = 0;
    for (size_t i = 0; i < c->count && len + MAX_KEY + 8 < sizeof list; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s, ", c->words[i]);
    if (len > 2)
        list[len - 2] = '\0';
    advise(complaint, "known here: %s%s", list, len + MAX_KEY + 8 < sizeof list ? "" : ", ...");
}

void unknown_option(struct complaint *complaint, struct slice key, const char *prefix,
                    const struct targets *targets)
{
    char word[SHOWN_MAX];
    complain(complaint, "unknown option `%s`", shown(key, word));
    if (slice_eq(key, SLICE("api_key"))) {
        advise(complaint, "a key in this file ends up in backups; write its place, "
                          "`api_key_file: PATH` or `api_key_env: NAME`");
        return;
    }
    if (slice_eq(key, SLICE("<<"))) {
        advise(complaint, "merge keys are not supported; write the options out");
        return;
    }
    const struct option *dotted = find_dotted(key, prefix, targets);
    if (dotted) {
        advise(complaint, "a point does not nest; write `%s:` below its section, indented",
               option_name(dotted));
        return;
    }
    struct candidates here;
    collect(&here, prefix, targets);
    const char *near = nearest_word(key, here.words, here.count);
    const struct option *elsewhere = find_elsewhere(key);
    if (elsewhere)
        advise(complaint, "`%s` is elsewhere: %s", word, elsewhere->path);
    else if (near)
        advise(complaint, "did you mean `%s`?", near);
    else
        advise_list(complaint, &here);
}
