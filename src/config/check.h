/*
 * check.h - what one value alone cannot tell: names that stand twice, bounds that contradict each
 * other, models that lead nowhere.
 */
#pragma once

#include "config/config.h"
#include "config/report.h"
#include "config/yaml.h"

/* `root` is the tree that `config` was read from, for the places; both borrowed. */
void check_config(const struct config *config, const struct yaml_node *root, struct report *report);
