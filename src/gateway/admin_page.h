/*
 * admin_page.h - what the admin listener shows to people: `GET /`, one HTML page without external
 * resources that asks for `GET /status.json` every two seconds, and that JSON. Pure.
 *
 * The page's source is web/status.html; the build embeds it.
 */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

struct metrics_input; /* observe/metrics.h */

/* The page's own style and script, and nothing else: for Content-Security-Policy. */
#define ADMIN_PAGE_POLICY                                                                          \
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "                  \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/* Static lifetime; text/html; charset=utf-8. */
struct slice admin_page_html(void);

/*
 * One JSON object: the process, and each model with its promise, goodput windows, counts, quantiles
 * since the start (null while there is nothing to measure), pools and replicas. What an engine has
 * not reported is null. By the thread that samples `in->goodput`. WEIR_ELIMIT when `out` is too
 * small; its content is then of no use.
 */
WEIR_MUST_USE enum weir_err admin_write_status(const struct metrics_input *in, struct buf *out);
