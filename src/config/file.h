/*
 * file.h - a whole small file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

/*
 * Appends the file to `out`, whose maximum is the bound. With `only_regular` nothing that could
 * block or never end is read: no pipe, no device. WEIR_EIO says why in `err`, WEIR_ELIMIT that the
 * file is longer.
 */
WEIR_MUST_USE enum weir_err file_read(const char *path, bool only_regular, struct buf *out,
                                      struct error *err);
