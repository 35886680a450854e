#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/utf8.h"
#include "config/config.h"
#include "config/load.h"
#include "config/report.h"
#include "config/value.h"

enum { MAX_ITEMS = 1024 };

struct flag_reader {
    struct config *config;
    struct value_reader reader;
    struct report *report;
};

static void say(struct flag_reader *f, const char *flag)
{
    struct complaint named = f->reader.complaint;
    snprintf(named.text, sizeof named.text, "%s: %.*s", flag, (int)sizeof named.text - 64,
             f->reader.complaint.text);
    report_mistake(f->report, (struct place){0}, &named);
}

static struct slice next_item(struct slice *rest)
{
    const char *comma = rest->len ? memchr(rest->ptr, ',', rest->len) : NULL;
    struct slice item = comma ? slice_of(rest->ptr, (size_t)(comma - rest->ptr)) : *rest;
    *rest = comma ? slice_from(*rest, item.len + 1) : (struct slice){0};
    return slice_trim(item);
}

static bool is_item_good(struct flag_reader *f, const struct option *option, const char *item,
                         size_t count, struct map *seen)
{
    if (count >= MAX_ITEMS || (double)count >= option->max) {
        complain(&f->reader.complaint, "`%.100s` is one too many", item);
        return advise(&f->reader.complaint, "write a file instead: `weir check --defaults`");
    }
    if (map_set(seen, value_identity(option, item, f->reader.arena), (void *)item))
        return complain(&f->reader.complaint, "`%.100s` is there twice", item);
    return true;
}

static void read_list(struct flag_reader *f, const char *flag, const struct option *option,
                      struct slice rest)
{
    const char *items[MAX_ITEMS];
    struct map seen = {0};
    size_t count = 0;
    while (rest.len && !report_is_full(f->report)) {
        const char *item = value_read_item(&f->reader, option, next_item(&rest));
        if (item && is_item_good(f, option, item, count, &seen))
            items[count++] = item;
        else
            say(f, flag);
    }
    map_free(&seen);
    const char **list = arena_zalloc(f->reader.arena, (count + 1) * sizeof *list);
    memcpy(list, items, count * sizeof *list);
    option_set_strings(option, f->config, list, count);
}

static void read_flag(struct flag_reader *f, const char *flag, const char *path, const char *value)
{
    const struct option *option = option_find(OPTION_CONFIG, slice_str(path));
    struct slice text = slice_str(value);
    if (!value)
        return;
    if (utf8_first_invalid(text) < text.len) {
        complain(&f->reader.complaint, "these bytes are not valid UTF-8");
        say(f, flag);
    } else if (option->is_list) {
        read_list(f, flag, option, text);
    } else if (!value_read(&f->reader, option, text, f->config)) {
        say(f, flag);
    }
}

static void require_backends(struct flag_reader *f)
{
    if (f->config->backend_count > 0 || f->report->errors->count > 0)
        return;
    complain(&f->reader.complaint, "there is no engine to send requests to");
    advise(&f->reader.complaint, "name some, --backends http://host:port,..., or give a file");
    say(f, "--backends");
}

struct config *config_from_flags(const struct config_flags *flags, const struct config_words *words,
                                 struct config_errors *errors)
{
    struct report report = {.file = "weir", .errors = errors};
    struct config *config = load_begin(NULL);
    struct flag_reader f = {
        .config = config,
        .reader = {.words = words, .arena = &config->arena},
        .report = &report,
    };
    char workers[24];
    snprintf(workers, sizeof workers, "%u", flags->workers);
    read_flag(&f, "--listen", "listen", flags->listen);
    read_flag(&f, "--admin", "admin", flags->admin_listen);
    read_flag(&f, "--backends", "backends", flags->backends);
    read_flag(&f, "--policy", "routing.policy", flags->policy);
    read_flag(&f, "--access-log", "access_log.path", flags->access_log);
    read_flag(&f, "--workers", "workers", flags->workers ? workers : NULL);
    require_backends(&f);
    load_complete(config);
    report_finish(&report);
    if (errors->count == 0)
        return config;
    config_free(config);
    return NULL;
}
