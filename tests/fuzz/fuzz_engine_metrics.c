/*
 * fuzz_engine_metrics.c - whatever an engine answers: each input goes through every reader of every
 * engine, through detection and through classification. The first byte is the status, in tens.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engines/engine.h"
#include "engines/prometheus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_facts(const struct engine_facts *f)
{
    if (f->kv_used_ppm > 1000000 || f->model_count > ENGINE_MAX_MODELS)
        WEIR_BUG("facts out of their bounds");
    if (!memchr(f->version, 0, sizeof f->version))
        WEIR_BUG("a version without an end");
    for (size_t i = 0; i < f->model_count; i++)
        if (!memchr(f->models[i], 0, ENGINE_NAME_MAX) || !f->models[i][0])
            WEIR_BUG("a model name without an end, or empty");
}

static void ask_all(const struct engine *e, struct slice body, struct engine_facts *facts)
{
    for (size_t i = 0; i < ENGINE_MAX_QUESTIONS && e->once[i].path; i++)
        e->once[i].read(body, facts);
    for (size_t i = 0; i < ENGINE_MAX_QUESTIONS && e->scrape[i].path; i++)
        e->scrape[i].read(body, facts);
    check_facts(facts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct engine_facts facts; /* large */
    if (size == 0)
        return 0;
    int status = data[0] * 10;
    struct slice body = slice_of((const char *)data + 1, size - 1);
    const struct engine *e;
    for (size_t i = 0; engine_at(i, &e); i++) {
        memset(&facts, 0, sizeof facts);
        ask_all(e, body, &facts);
        (void)engine_read_health(e, status, body);
        if (engine_classify(e, status, body) == ENGINE_OK && (status < 200 || status > 299))
            WEIR_BUG("a refusal that is none");
    }
    for (size_t i = 0; engine_detect_paths[i]; i++)
        (void)engine_detect(engine_detect_paths[i], 200, body, body);

    struct slice value;
    (void)metric_label(body, "reason", &value);
    return 0;
}
