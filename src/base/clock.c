#include "base/clock.h"

#include <stdio.h>
#include <time.h>

#include "base/error.h"

static uint64_t read_clock(clockid_t id)
{
    struct timespec ts;
    if (clock_gettime(id, &ts) != 0)
        WEIR_BUG("clock_gettime failed for clock %d", (int)id);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    uint64_t now = read_clock(CLOCK_MONOTONIC);
    return now ? now : 1; /* 0 means "never" in deadlines */
}

uint64_t clock_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

void clock_format_wall(uint64_t wall_ns, char *out, size_t out_size)
{
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    size_t used = strftime(out, out_size, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + used, out_size - used, ".%03uZ", (unsigned)(wall_ns / NS_PER_MS % 1000));
}
