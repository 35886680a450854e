/*
 * backends.h - from a list of URLs to models: asks each what it is, groups what it hears. Blocks;
 * it runs before anything serves.
 */
#pragma once

#include "base/error.h"
#include "config/config.h"

/*
 * A copy of `base` with the models that its backends serve. Silent backends are named in the log;
 * when none answers, NULL with `err`. `wait_ns`: how long to ask engines that are still starting.
 */
struct config *backends_discover(const struct config *base, uint64_t wait_ns, struct error *err);
