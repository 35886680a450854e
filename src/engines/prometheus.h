/*
 * prometheus.h - reads the text that engines answer to a scrape (Prometheus text format 0.0.4 and
 * OpenMetrics), in one pass and without allocation.
 *
 * Hostile or broken text costs the line it stands on: comments, NaN, infinities, negative numbers
 * and anything that does not parse are skipped. Lines may be of any length.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct metric_sample {
    struct slice name;
    struct slice labels; /* between the braces, still escaped */
    double value;        /* finite, >= 0 */
};

/* The next sample that can be read; false at the end. Start with `*rest` = the whole text. */
bool metric_next(struct slice *rest, struct metric_sample *sample);

/*
 * The value of a label, still escaped; false when it is not there. An escaped value is what it is
 * only for names that need no escape, which is all that engines use as constants.
 */
bool metric_label(struct slice labels, const char *name, struct slice *value);

/*
 * One number wanted from a scrape. Samples are added up over label sets: one engine process
 * reports each data-parallel rank (engine="0", "1", …) and each model apart. `mean` gives their
 * mean instead, for shares. Names are tried in order of preference: the first one that has a
 * sample decides, so that a release which sends old and new names is not counted twice.
 */
enum { METRIC_NAMES = 3 };

struct metric_want {
    const char *names[METRIC_NAMES]; /* without "_total": both spellings are accepted */
    const char *label, *label_value; /* only samples that carry this; NULL: any */
    bool mean;
    /* Working space and results of metric_read(). */
    double sums[METRIC_NAMES];
    uint32_t counts[METRIC_NAMES];
};

/* Fills `wants` from `text`. Call it again with the same wants to add another text. */
void metric_read(struct slice text, struct metric_want *wants, size_t want_count);

bool metric_seen(const struct metric_want *want);
double metric_value(const struct metric_want *want); /* 0 when it was not seen */

/* Numbers as facts hold them: rounded down, and the largest value for what does not fit. */
uint32_t metric_u32(const struct metric_want *want);
uint64_t metric_u64(const struct metric_want *want);
uint32_t metric_ppm(const struct metric_want *want); /* a share of 0..1, clamped */
