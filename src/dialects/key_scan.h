/*
 * key_scan.h - which telling words an event has, without parsing it. One pass, no allocation, no
 * false "no" for JSON that is written plainly; a false "yes" costs the caller a parse.
 */
#pragma once

#include "base/slice.h"

enum {
    KEY_ERROR = 1,     /* "error" as a key */
    KEY_FINISH = 2,    /* "finish_reason" */
    KEY_USAGE = 4,     /* "usage" */
    VALUE_IS_ERROR = 8 /* "error" as a value: older vLLM's "object" */
};

/* Which of the above there are, at any depth; a key whose value is null does not count. */
unsigned key_scan(struct slice text);
