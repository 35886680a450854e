/*
 * yaml.h - a YAML text as a tree that remembers where everything stands.
 *
 * The only file that knows libfyaml is yaml.c. One document, without tags; keys are words and stand
 * once in a map. Anchors and aliases work (an alias shares the node), but what they expand to is
 * counted, so a few lines cannot become a billion. All scalars are text: what "1" means is decided
 * by who asked for it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/slice.h"
#include "config/report.h"

enum {
    YAML_MAX_BYTES = 16 * 1024 * 1024,
    YAML_MAX_DEPTH = 32,
    YAML_MAX_WEIGHT = 32 * 1024 * 1024 /* bytes of text + 64 per node, aliases expanded */
};

enum yaml_kind { YAML_SCALAR, YAML_LIST, YAML_MAP };

struct yaml_node {
    enum yaml_kind kind;
    bool is_null; /* a scalar left out, "~" or "null" without quotes */
    struct place place;
    struct slice text; /* of a scalar */
    struct yaml_entry *first;
    size_t count; /* of entries */
    size_t weight;
};

struct yaml_entry {
    const struct yaml_node *key; /* a scalar; NULL in a list */
    const struct yaml_node *value;
    struct yaml_entry *next;
};

/*
 * The root, in `arena`; NULL when the text is no YAML, or empty: an empty file has no root and no
 * mistake. Mistakes go into `report`; one that is found without losing track does not end it.
 */
const struct yaml_node *yaml_parse(struct slice text, struct arena *arena, struct report *report);

/* The entry of a map, or NULL; also for a NULL node and one that is no map. */
const struct yaml_entry *yaml_find(const struct yaml_node *map, struct slice key);

/* The same through sections, "health.eject.max". */
const struct yaml_entry *yaml_find_path(const struct yaml_node *map, const char *path);
