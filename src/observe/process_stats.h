/*
 * process_stats.h - what the system says of this process: memory, descriptors, CPU time.
 */
#pragma once

#include <stdint.h>

struct process_stats {
    double cpu_seconds; /* user and system, all threads */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t open_fds;
    uint64_t max_fds; /* 0: no limit */
};

/* Reads /proc/self; what cannot be read is 0. Tens of microseconds, more with many descriptors. */
void process_stats_read(struct process_stats *out);
