/*
 * fuzz_config.c - any bytes as a configuration: refused with a report, or loaded; and what was
 * loaded can be shown, loads again and shows the same.
 */
#include <stdint.h>
#include <stdlib.h>

#include "config/config.h"

enum { MAX_SHOWN = 64 * 1024 * 1024 };

static const char *const engines[] = {"vllm", "llamacpp", "openai", NULL};
static const char *const policies[] = {"least-load", "round-robin", NULL};
static const struct config_words words = {engines, policies};

/*
 * libfyaml 0.7.12 loses 2 kB of its scanner's memory on some flows that are malformed and cut
 * short, once a file. Our own leaks are still found.
 */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

static struct config *load(struct slice text, struct config_errors *errors)
{
    config_errors_init(errors);
    struct config *config = config_parse(text, "fuzz.yaml", &words, errors);
    if (!config && (errors->count == 0 || buf_len(&errors->report) == 0))
        abort(); /* refused without a word */
    return config;
}

/* The text of a config that loaded; it must load again. */
static void show(const struct config *config, struct buf *out)
{
    buf_init(out, MAX_SHOWN);
    if (config_show(config, out) != WEIR_OK)
        abort();
}

static void check_round_trip(const struct config *config)
{
    struct buf first, second;
    struct config_errors errors;
    show(config, &first);
    struct config *again = load(buf_slice(&first), &errors);
    if (!again)
        abort();
    show(again, &second);
    if (!slice_eq(buf_slice(&first), buf_slice(&second)))
        abort();
    if (config_restart_needed(config, again, &errors.report) != 0)
        abort();
    config_free(again);
    config_errors_free(&errors);
    buf_free(&first);
    buf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config_errors errors;
    struct config *config = load(slice_of((const char *)data, size), &errors);
    if (config)
        check_round_trip(config);
    config_free(config);
    config_errors_free(&errors);
    return 0;
}
