#include "config/loader.h"

#include <stdio.h>

void loader_say(struct loader *l, struct place place)
{
    report_mistake(l->report, place, &l->reader.complaint);
}

/* The option goes in front: a log shows the sentence without the line of the file. */
void loader_say_of(struct loader *l, const struct option *option, struct place place)
{
    struct complaint named = l->reader.complaint;
    snprintf(named.text, sizeof named.text, "%s: %.*s", option_name(option),
             (int)sizeof named.text - 64, l->reader.complaint.text);
    report_mistake(l->report, place, &named);
}

const char *loader_kind_name(const struct yaml_node *node)
{
    return node->kind == YAML_MAP ? "a map" : node->kind == YAML_LIST ? "a list" : "one value";
}

void loader_say_kind(struct loader *l, const struct option *option, const struct yaml_node *node,
                     const char *wanted)
{
    complain(&l->reader.complaint, "needs %s, and this is %s", wanted, loader_kind_name(node));
    if (option->fallback || option->example)
        advise(&l->reader.complaint, "as in `%s: %s`", option_name(option),
               option->fallback ? option->fallback : option->example);
    loader_say_of(l, option, node->place);
}

bool loader_is_scalar(struct loader *l, const struct option *option, const struct yaml_node *node)
{
    if (node->kind == YAML_SCALAR && !node->is_null)
        return true;
    if (node->kind != YAML_SCALAR) {
        loader_say_kind(l, option, node, "one value");
        return false;
    }
    complain(&l->reader.complaint, "there is no value here");
    advise(&l->reader.complaint, "write one, as in `%s`, or take the line out",
           option->fallback ? option->fallback : option->example);
    loader_say_of(l, option, node->place);
    return false;
}

bool loader_count_fits(struct loader *l, const struct option *option, const struct yaml_node *node,
                       size_t count)
{
    if (count >= option->min && count <= option->max)
        return true;
    complain(&l->reader.complaint, "%zu items are too %s", count,
             count < option->min ? "few" : "many");
    advise(&l->reader.complaint, "write %.0f to %.0f", option->min, option->max);
    loader_say_of(l, option, node->place);
    return false;
}
