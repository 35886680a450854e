/*
 * loader.h - reading the tree of a file into a config: what list.c and section.c share.
 */
#pragma once

#include "base/arena.h"
#include "config/config.h"
#include "config/option.h"
#include "config/report.h"
#include "config/value.h"
#include "config/yaml.h"

struct loader {
    struct config *config;
    struct value_reader reader; /* its complaint is also where the loader prepares its own */
    struct report *report;
    struct arena *scratch;          /* dies with the load */
    const struct yaml_node *models; /* read last: what they inherit may stand below them */
    const struct yaml_node *pools;  /* of the model that is being read; the same */
};

/* Reports loader->reader.complaint; loader_say_of() with the option's name in front. */
void loader_say(struct loader *l, struct place place);
void loader_say_of(struct loader *l, const struct option *option, struct place place);

/* The node is of another kind than `wanted` says. */
void loader_say_kind(struct loader *l, const struct option *option, const struct yaml_node *node,
                     const char *wanted);
const char *loader_kind_name(const struct yaml_node *node);

/* True, or reported. */
bool loader_is_scalar(struct loader *l, const struct option *option, const struct yaml_node *node);
bool loader_count_fits(struct loader *l, const struct option *option, const struct yaml_node *node,
                       size_t count);

/* list.c: an option that is a list of strings, and one that is a map of names and values. */
void loader_read_list(struct loader *l, const struct option *option, const struct yaml_node *node,
                      void *base);
void loader_read_environment(struct loader *l, const struct option *option,
                             const struct yaml_node *node, void *base);

/* section.c: the whole tree into l->config. */
void loader_read_root(struct loader *l, const struct yaml_node *root);
