/*
 * goodput.h - good requests over sliding windows, per traffic: good/s, good/offered, tokens/s.
 *
 * The control thread samples the counters about once a second (goodput_sample); windows are
 * differences of samples, so any number of them costs the workers nothing. Windows: 10 s, 1 min,
 * 5 min; each covers at most a twentieth and one sampling interval more than its name. A window
 * that is longer than the process has lived covers its life. Traffic that was made inside a window
 * counts from zero. One thread samples and reads.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/traffic.h"

enum goodput_window { GOODPUT_10S, GOODPUT_1M, GOODPUT_5M, GOODPUT_WINDOWS };

struct goodput_figures {
    double good_per_s;
    double offered_per_s;
    double good_tokens_per_s;
    double attainment; /* good / offered; 1 when nothing was offered */
    double seconds;    /* what the window really covers; 0: sampled once, nothing to compare with */
};

struct goodput_table;
struct goodput_table *goodput_table_new(void);
void goodput_table_free(struct goodput_table *table);
void goodput_sample(struct goodput_table *table, const struct traffic_registry *registry,
                    uint64_t now_ns);

/* False when the traffic was never sampled. `index` as in traffic_at(). */
bool goodput_figures(const struct goodput_table *table, size_t index, enum goodput_window window,
                     struct goodput_figures *out);

/*
 * All traffic of one model together; `newest` from traffic_of_model(), NULL is allowed. A model
 * without samples has rates of 0 and an attainment of 1.
 */
void goodput_model_figures(const struct goodput_table *table, const struct traffic *newest,
                           enum goodput_window window, struct goodput_figures *out);

uint64_t goodput_window_seconds(enum goodput_window window);
const char *goodput_window_name(enum goodput_window window); /* "10s", "1m", "5m" */
