/*
 * quantity.h - sizes and durations as people write them.
 *
 * A number, with a fraction of at most six digits, and a unit: 64KiB, 1.5GiB, 10MB; 150ms, 10s, 2m,
 * 1h. Zero needs no unit. Nothing else is guessed: what "64k" or "10" mean is asked back.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

/*
 * WEIR_ESYNTAX when it is none; then `hint`, of at least QUANTITY_HINT bytes, holds what was
 * probably meant ("64KiB") or is empty. WEIR_ELIMIT when it is too large for 64 bits.
 */
enum { QUANTITY_HINT = 48 };
WEIR_MUST_USE enum weir_err quantity_read_size(struct slice text, uint64_t *bytes, char *hint);
WEIR_MUST_USE enum weir_err quantity_read_duration(struct slice text, uint64_t *ns, char *hint);

/* In the largest unit that loses nothing; reads back as the same value. */
WEIR_MUST_USE enum weir_err quantity_put_size(struct buf *out, uint64_t bytes);
WEIR_MUST_USE enum weir_err quantity_put_duration(struct buf *out, uint64_t ns);
