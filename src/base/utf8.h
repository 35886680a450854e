/* utf8.h - validity only (Unicode 15, table 3-7): no overlong forms, no surrogates. */
#pragma once

#include <stddef.h>

#include "base/slice.h"

/* Offset of the first byte that is not part of a valid sequence, or s.len when all are. */
size_t utf8_first_invalid(struct slice s);

/* For one sequence: `p[0]` is above 0x7f, `left` bytes are there. Its length, 0 when invalid. */
size_t utf8_sequence(const unsigned char *p, size_t left);
