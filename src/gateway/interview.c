#include "gateway/interview.h"

#include <stdio.h>

#include "base/heap.h"

/*
 * vLLM's scrape has 60 kB per model and rank, llama.cpp's slots repeat their prompts. A long list
 * is read whole or not at all.
 */
enum { MAX_ANSWER = 8 << 20 };

static void get(struct interview *iv, const char *path, fetch_fn fn)
{
    size_t size = sizeof "http://" + strlen(iv->authority) + strlen(iv->path_prefix) + strlen(path);
    char *url = heap_alloc(size);
    snprintf(url, size, "http://%s%s%s", iv->authority, iv->path_prefix, path);
    struct fetch_request request = {.url = url,
                                    .endpoint = &iv->endpoint,
                                    .authorization = iv->authorization,
                                    .timeout_ns = iv->timeout_ns,
                                    .max_body = MAX_ANSWER};
    iv->fetch = fetch_start(iv->fetcher, &request, fn, iv);
    heap_free(url);
}

static void finish(struct interview *iv)
{
    iv->done(iv);
}

static void set_why(struct interview *iv, const char *path, const struct fetch_answer *answer)
{
    iv->refused = answer->refused;
    if (answer->status == 0)
        snprintf(iv->why, sizeof iv->why, "GET %s: %s", path, answer->text);
    else
        snprintf(iv->why, sizeof iv->why, "GET %s answered %d", path, answer->status);
}

/* Detection */

static void on_detect(void *ctx, const struct fetch_answer *answer);

static void end_of_detection(struct interview *iv)
{
    if (!iv->engine && iv->lists_models)
        iv->engine = engine_find(SLICE("openai"));
    finish(iv);
}

static void on_detect(void *ctx, const struct fetch_answer *answer)
{
    struct interview *iv = ctx;
    const char *path = engine_detect_paths[iv->at];
    iv->fetch = NULL;
    iv->engine = engine_detect(path, answer->status, answer->server, answer->body);
    if (iv->at == 0) { /* the list of models: every server has it, so its answer counts */
        set_why(iv, path, answer);
        iv->lists_models = answer->status == 200;
        iv->seen = answer->status == 200   ? REPLICA_READY
                   : answer->status == 503 ? REPLICA_LOADING
                                           : REPLICA_DOWN;
    }
    bool is_silent = iv->at == 0 && (answer->status == 0 || answer->status == 503);
    iv->at++;
    if (iv->engine || is_silent || !engine_detect_paths[iv->at])
        end_of_detection(iv);
    else
        get(iv, engine_detect_paths[iv->at], on_detect);
}

void interview_detect(struct interview *iv)
{
    iv->at = 0;
    iv->engine = NULL;
    iv->lists_models = false;
    get(iv, engine_detect_paths[0], on_detect);
}

/* Health */

static void on_health(void *ctx, const struct fetch_answer *answer)
{
    struct interview *iv = ctx;
    iv->fetch = NULL;
    iv->seen = engine_read_health(iv->engine, answer->status, answer->body);
    set_why(iv, iv->engine->health_path, answer);
    finish(iv);
}

void interview_health(struct interview *iv, const struct engine *engine)
{
    iv->engine = engine;
    get(iv, engine->health_path, on_health);
}

/* Questions */

static void ask_next(struct interview *iv);

static void on_question(void *ctx, const struct fetch_answer *answer)
{
    struct interview *iv = ctx;
    iv->fetch = NULL;
    if (answer->status == 200) {
        iv->questions[iv->at].read(answer->body, iv->facts);
        iv->answered++;
    }
    iv->at++;
    /* An engine that is silent once would be so for each question: a round has an end. */
    if (answer->status == 0)
        finish(iv);
    else
        ask_next(iv);
}

static void ask_next(struct interview *iv)
{
    if (iv->at < ENGINE_MAX_QUESTIONS && iv->questions[iv->at].path)
        get(iv, iv->questions[iv->at].path, on_question);
    else
        finish(iv);
}

void interview_ask(struct interview *iv, const struct engine_question *questions,
                   struct engine_facts *facts)
{
    iv->at = 0;
    iv->answered = 0;
    iv->questions = questions;
    iv->facts = facts;
    ask_next(iv);
}

void interview_stop(struct interview *iv)
{
    if (iv->fetch)
        fetch_cancel(iv->fetch);
    iv->fetch = NULL;
}
