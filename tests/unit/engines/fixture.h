/*
 * fixture.h - captured answers of engines, read from tests/fixtures/engines, found from this file's
 * own path as the compiler saw it.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/engine.h"

/* A whole response: head taken apart, body as it came. Lives as long as the test. */
struct fixture {
    int status;
    struct slice server;
    struct slice body;
};

enum { FIXTURE_MAX = 256 };
static char *fixture_memory[FIXTURE_MAX];
static size_t fixture_count;

static inline void fixture_free_all(void)
{
    while (fixture_count > 0)
        free(fixture_memory[--fixture_count]);
}

static inline char *fixture_keep(char *bytes)
{
    if (fixture_count == 0)
        atexit(fixture_free_all);
    if (fixture_count == FIXTURE_MAX)
        abort();
    return fixture_memory[fixture_count++] = bytes;
}

static inline struct slice fixture_bytes(const char *name)
{
    char path[4096];
    const char *end = strstr(__FILE__, "unit/engines/");
    snprintf(path, sizeof path, "%.*sfixtures/engines/%s", (int)(end - __FILE__), __FILE__, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot open %s\n", path);
        exit(1);
    }
    char *bytes = malloc(1 << 20);
    size_t len = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return slice_of(fixture_keep(realloc(bytes, len ? len : 1)),
                    len); /* exact: a sanitizer sees one too far */
}

static inline struct fixture fixture_read(const char *name)
{
    struct slice all = fixture_bytes(name);
    struct fixture f = {.status = (int)strtol(all.ptr + sizeof "HTTP/1.1", NULL, 10)};
    const char *body = slice_find(all, SLICE("\r\n\r\n")) + 4;
    struct slice head = slice_of(all.ptr, (size_t)(body - all.ptr));
    const char *server = slice_find(head, SLICE("\nServer: "));
    if (!server)
        server = slice_find(head, SLICE("\nserver: "));
    if (server) {
        server += sizeof "\nServer: " - 1;
        f.server = slice_of(server, strcspn(server, "\r\n"));
    }
    f.body = slice_from(all, (size_t)(body - all.ptr));
    return f;
}

/* Asks `e` one of its questions, with the answer of a fixture. */
static inline void fixture_ask(const struct engine *e, const char *path, struct slice body,
                               struct engine_facts *facts)
{
    const struct engine_question *lists[] = {e->once, e->scrape};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < ENGINE_MAX_QUESTIONS && lists[k][i].path; i++)
            if (strcmp(lists[k][i].path, path) == 0) {
                lists[k][i].read(body, facts);
                return;
            }
    fprintf(stderr, "%s does not ask %s\n", e->name, path);
    exit(1);
}
