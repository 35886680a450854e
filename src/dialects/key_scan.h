/*
 * key_scan.h - which telling keys an event has, without parsing it. One pass, no allocation, no
 * false "no" for JSON whose keys are written plainly; a false "yes" costs the caller a parse.
 */
#pragma once

#include "base/slice.h"

enum {
    KEY_ERROR = 1,  /* "error" */
    KEY_FINISH = 2, /* "finish_reason" */
    KEY_USAGE = 4   /* "usage" */
};

/* The keys above, at any depth, whose value is not null. */
unsigned key_scan(struct slice text);
