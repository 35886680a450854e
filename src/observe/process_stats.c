#include "observe/process_stats.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void read_memory(struct process_stats *out)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return;
    text[len] = 0;
    unsigned long long total, resident;
    if (sscanf(text, "%llu %llu", &total, &resident) != 2)
        return;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    out->virtual_bytes = total * page;
    out->resident_bytes = resident * page;
}

static uint64_t count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return 0;
    uint64_t count = 0;
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count - 1; /* the directory itself */
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

void process_stats_read(struct process_stats *out)
{
    *out = (struct process_stats){0};
    read_memory(out);
    out->open_fds = count_fds();

    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        out->max_fds = limit.rlim_cur;
}
