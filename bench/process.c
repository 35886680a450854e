#include "process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The file's text, terminated; empty when it cannot be read. */
static const char *read_file(const char *path, char *text, size_t size)
{
    text[0] = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return text;
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void add_threads(struct process_use *use, pid_t pid)
{
    char path[320], text[128];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        unsigned long long run_ns;
        if (entry->d_name[0] == '.') /* task/../schedstat is one too */
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, entry->d_name);
        if (sscanf(read_file(path, text, sizeof(text)), "%llu", &run_ns) == 1)
            use->cpu_ns += run_ns;
    }
    closedir(tasks);
}

static void add_ticks(struct process_use *use, pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    const char *behind_name = strrchr(read_file(path, text, sizeof(text)), ')');
    unsigned long long user, system;
    if (behind_name &&
        sscanf(behind_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
               &system) == 2) {
        use->user_ticks += user;
        use->system_ticks += system;
    }
}

static void add_rss(struct process_use *use, pid_t pid)
{
    char path[64], text[128];
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    unsigned long long pages;
    if (sscanf(read_file(path, text, sizeof(text)), "%*u %llu", &pages) == 1)
        use->rss_bytes += pages * (unsigned long long)sysconf(_SC_PAGESIZE);
}

struct process_use process_use_of(const pid_t *pids, size_t count)
{
    struct process_use use = {0};
    for (size_t i = 0; i < count; i++) {
        add_threads(&use, pids[i]);
        add_ticks(&use, pids[i]);
        add_rss(&use, pids[i]);
    }
    return use;
}
