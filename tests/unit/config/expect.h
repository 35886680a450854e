/*
 * expect.h - loading a text in a test: the real words, and what is said about a mistake.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "config/config.h"

static inline const struct config_words *expect_words(void)
{
#define ROW(symbol, word, ...) word,
    static const char *const engines[] = {
#include "engines/engines.def"
        NULL};
    static const char *const policies[] = {
#include "routing/policies.def"
        NULL};
#undef ROW
    static const struct config_words words = {engines, policies};
    return &words;
}

/* Fails the test, with the report, when there is a mistake. */
static inline struct config *expect_config(struct slice text)
{
    struct config_errors errors;
    config_errors_init(&errors);
    struct config *config = config_parse(text, "test.yaml", expect_words(), &errors);
    if (!config)
        fail_msg("%.*s", SLICE_ARG(buf_slice(&errors.report)));
    config_errors_free(&errors);
    return config;
}

/* One mistake that a text must be found to have. Line 0: the file as a whole. */
struct expected_mistake {
    const char *yaml;
    uint32_t line, column;
    const char *text, *help; /* parts; NULL help: none */
};

static inline void expect_mistake(const struct expected_mistake *e)
{
    struct config_errors errors;
    config_errors_init(&errors);
    struct config *config = config_parse(slice_str(e->yaml), "t", expect_words(), &errors);
    if (config)
        fail_msg("this loads, and should not:\n%s", e->yaml);
    const struct config_mistake *m = &errors.mistakes[0];
    bool is_right = errors.count == 1 && m->line == e->line && m->column == e->column &&
                    strstr(m->text, e->text) &&
                    (e->help ? m->help && strstr(m->help, e->help) : !m->help);
    if (!is_right)
        fail_msg("expected one mistake at %u:%u, \"%s\", \"%s\"; got:\n%.*s", e->line, e->column,
                 e->text, e->help ? e->help : "", SLICE_ARG(buf_slice(&errors.report)));
    config_errors_free(&errors);
}

static inline void expect_mistakes(const struct expected_mistake *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect_mistake(&list[i]);
}

#define EXPECT_MISTAKES(list) expect_mistakes(list, sizeof(list) / sizeof((list)[0]))

/* The shortest file that serves; put in front of or behind what a test is about. */
#define SERVES "models: [{name: m, replicas: http://h:1}]\n"
