/*
 * processes.h - who descends from whom, read from /proc.
 *
 * Parent links are enough only because the root is a sub-reaper: a process whose parent died hangs
 * below the root again, in whatever session or group it put itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/slice.h"

struct process {
    pid_t pid, parent, group;
    char state; /* as in /proc/PID/stat; 'Z': ended, waiting to be reaped */
};

struct process_list {
    struct process *items; /* on the heap */
    size_t count, cap;
};

/* Reads one line of /proc/PID/stat; the command name in it may hold anything. False: not one. */
bool process_parse_stat(struct slice line, struct process *out);

/*
 * Everything that descends from `root`, without it. Zombies are included. A snapshot: some may be
 * gone, others may have been forked meanwhile. The list is emptied first; zeroed is empty.
 */
void processes_below(pid_t root, struct process_list *list);
void process_list_free(struct process_list *list);

enum environment {
    ENVIRONMENT_HAS,
    ENVIRONMENT_LACKS,
    ENVIRONMENT_HIDDEN /* empty, unreadable, or being replaced by exec just now: look again */
};

enum { PROCESS_ENTRY_MAX = 64 };

/* Does its environment, as it was at exec, hold this NAME=value of at most PROCESS_ENTRY_MAX bytes?
 */
enum environment process_environment(pid_t pid, const char *entry);
