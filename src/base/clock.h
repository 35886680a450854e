/*
 * clock.h - the only place that asks the system for the time. Decisions get `now_ns` handed in.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

/* CLOCK_MONOTONIC; never 0. */
uint64_t clock_now_ns(void);

/* Since 1970, for logs and for what leaves the program. */
uint64_t clock_wall_ns(void);

/* "2026-12-01T10:54:47.123Z" into `out` of at least 25 bytes. */
void clock_format_wall(uint64_t wall_ns, char *out, size_t out_size);
