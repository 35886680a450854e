/*
 * report.h - collects the mistakes of one file and writes the report for people.
 *
 * A mistake has a place, a sentence that says what is wrong with the word found, and, where there
 * is something to say, a remedy. The same mistake at the same place is kept once.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"
#include "config/config.h"

/* 1-based line and column, in characters; zeroed: the file as a whole. */
struct place {
    uint32_t line, column, width;
};

struct report {
    const char *file;    /* what the places are in; borrowed */
    struct slice source; /* its text, for the lines shown; borrowed */
    struct config_errors *errors;
    size_t calls; /* of report_mistake() */
};

/* So many that nobody reads on; the loader stops, and hostile files stay cheap. */
enum { REPORT_ENOUGH = 1000 };
static inline bool report_is_full(const struct report *report)
{
    return report->calls >= REPORT_ENOUGH;
}

/* What is wrong with one value, before it is known where the value stands. */
struct complaint {
    char text[256]; /* without newline, always terminated; "": nothing */
    char help[256]; /* "": nothing to add */
};

/* Both return false, so that a check ends in one line; complain() forgets an earlier remedy. */
bool complain(struct complaint *complaint, const char *fmt, ...) WEIR_PRINTF(2, 3);
bool advise(struct complaint *complaint, const char *fmt, ...) WEIR_PRINTF(2, 3);

void report_mistake(struct report *report, struct place place, const struct complaint *complaint);

/* Was something said about exactly this place? */
bool report_has(const struct report *report, struct place place);

/* Sorts by place and renders errors->report. Call once, at the end. */
void report_finish(struct report *report);

/* A word found, fit for a sentence: at most 60 bytes, terminated. Into `out`, which it returns. */
enum { SHOWN_MAX = 80 };
const char *shown(struct slice word, char out[SHOWN_MAX]);
