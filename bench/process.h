/* process.h - what a set of processes has used so far, all their threads added up. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_use {
    uint64_t cpu_ns;     /* exact, from /proc/PID/task/TID/schedstat */
    uint64_t user_ticks; /* only good for the share of user space in cpu_ns */
    uint64_t system_ticks;
    uint64_t rss_bytes;
};

/* Processes and threads that have ended count nothing. */
struct process_use process_use_of(const pid_t *pids, size_t count);
