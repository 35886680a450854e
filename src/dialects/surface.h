/*
 * surface.h - the API paths that weir serves. A path that is not in surfaces.def never reaches an
 * engine. Doubled slashes, one trailing slash and the query string do not matter, nor does a
 * missing "/v1" (FR-22: bases are configured with and without it). A percent-encoded path is only
 * understood behind /v1/models/, where it is decoded once; elsewhere it is unknown, and so is one
 * with "." or ".." as a segment.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/slice.h"

/* How bodies, streams, usage and errors of a surface look. */
enum dialect {
    DIALECT_OPENAI_CHAT,
    DIALECT_OPENAI_COMPLETIONS,
    DIALECT_OPENAI_RESPONSES,
    DIALECT_OPENAI_PLAIN, /* never streams: embeddings, rerank, score, tokenize */
    DIALECT_ANTHROPIC
};

enum surface {
#define ROW(symbol, name, method, path, dialect, operation, generates) SURFACE_##symbol,
#include "dialects/surfaces.def"
#undef ROW
    SURFACE_MODELS, /* GET /v1/models, answered by weir */
    SURFACE_MODEL,  /* GET /v1/models/{id}, answered by weir */
    SURFACE_LIVE,   /* GET /health/live */
    SURFACE_READY,  /* GET /health/ready */
    SURFACE_COUNT,
    SURFACE_NONE = SURFACE_COUNT
};

struct surface_info {
    const char *name;      /* "chat", for logs and labels */
    const char *method;    /* "POST" */
    const char *path;      /* canonical; what is asked of the engine, behind its path prefix */
    enum dialect dialect;  /* of the answer and of errors */
    const char *operation; /* gen_ai.operation.name; "" for what weir answers itself */
    bool generates;        /* has an answer with tokens: TTFT, TPOT and goodput apply; may stream */
};

struct surface_match {
    enum surface surface;  /* SURFACE_NONE: 404, or 405 when `wrong_method` */
    bool wrong_method;     /* the path exists with another method */
    bool is_head;          /* HEAD where it is allowed: the head of what GET would get */
    const char *allow;     /* with `wrong_method`: the value of the Allow header */
    struct slice model_id; /* SURFACE_MODEL: decoded into the caller's scratch; any bytes */
    struct slice query;    /* with its '?', or empty; points into the target */
    bool is_anthropic;     /* the dialect that errors on this path should have */
};

/* `scratch` of at least target.len bytes takes the decoded model id; it must outlive the match. */
struct surface_match surface_match(struct slice method, struct slice target, char *scratch);

/* For relayed surfaces and the four own ones; static lifetime. */
const struct surface_info *surface_info(enum surface surface);
