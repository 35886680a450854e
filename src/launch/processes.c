#include "launch/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/heap.h"

enum { ENVIRONMENT_CHUNK = 16384 };

static bool read_number(struct slice *rest, pid_t *out)
{
    const char *space = rest->len ? memchr(rest->ptr, ' ', rest->len) : NULL;
    size_t len = space ? (size_t)(space - rest->ptr) : rest->len;
    uint64_t value;
    if (!slice_to_u64(slice_of(rest->ptr, len), &value) || value > INT32_MAX)
        return false;
    *rest = slice_from(*rest, len + 1);
    *out = (pid_t)value;
    return true;
}

/* "pid (name) state parent group …": the name may hold spaces and ')', so its end is the last one.
 */
bool process_parse_stat(struct slice line, struct process *out)
{
    struct process found;
    const char *name_end = line.len ? memrchr(line.ptr, ')', line.len) : NULL;
    if (!name_end || !read_number(&line, &found.pid))
        return false;
    struct slice rest = slice_of(name_end, (size_t)(line.ptr + line.len - name_end));
    if (rest.len < sizeof(") S 1 1") - 1 || rest.ptr[1] != ' ' || rest.ptr[3] != ' ')
        return false;
    found.state = rest.ptr[2];
    rest = slice_from(rest, 4);
    if (!read_number(&rest, &found.parent) || !read_number(&rest, &found.group))
        return false;
    *out = found;
    return true;
}

static bool read_stat(int proc, const char *pid, struct process *out)
{
    char path[64], line[1024];
    int len = snprintf(path, sizeof(path), "%s/stat", pid);
    if (len < 0 || (size_t)len >= sizeof(path))
        return false;
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, line, sizeof(line));
    close(fd);
    return got > 0 && process_parse_stat(slice_of(line, (size_t)got), out);
}

static void append(struct process_list *list, const struct process *process)
{
    if (list->count == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 64;
        list->items = heap_realloc(list->items, list->cap * sizeof(*list->items));
    }
    list->items[list->count++] = *process;
}

static void read_all(struct process_list *list)
{
    DIR *dir = opendir("/proc");
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct process process;
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            read_stat(dirfd(dir), entry->d_name, &process))
            append(list, &process);
    }
    closedir(dir);
}

static bool is_below(pid_t parent, pid_t root, const struct process *found, size_t count)
{
    if (parent == root)
        return true;
    for (size_t i = 0; i < count; i++)
        if (found[i].pid == parent)
            return true;
    return false;
}

void processes_below(pid_t root, struct process_list *list)
{
    list->count = 0;
    read_all(list);

    /* Descendants are moved to the front until a round finds no more; [0, found) are they. */
    size_t found = 0;
    for (size_t before = SIZE_MAX; found != before;) {
        before = found;
        for (size_t i = found; i < list->count; i++) {
            if (!is_below(list->items[i].parent, root, list->items, found))
                continue;
            struct process descendant = list->items[i];
            list->items[i] = list->items[found];
            list->items[found++] = descendant;
        }
    }
    list->count = found;
}

void process_list_free(struct process_list *list)
{
    heap_free(list->items);
    *list = (struct process_list){0};
}

enum environment process_environment(pid_t pid, const char *entry)
{
    char path[64], wanted[PROCESS_ENTRY_MAX + 2] = {'\0'}, chunk[ENVIRONMENT_CHUNK] = {'\0'};
    size_t len = strlen(entry);
    if (len > PROCESS_ENTRY_MAX)
        return ENVIRONMENT_LACKS;
    memcpy(wanted + 1, entry, len); /* between the zeros of its neighbours: the whole entry */
    struct slice needle = slice_of(wanted, len + 2);

    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ENVIRONMENT_HIDDEN;
    enum environment result = ENVIRONMENT_HIDDEN;
    size_t held = 1; /* a zero, as if an entry had ended before the first */
    for (ssize_t got; (got = read(fd, chunk + held, sizeof(chunk) - held)) > 0;) {
        held += (size_t)got;
        result = ENVIRONMENT_LACKS;
        if (slice_find(slice_of(chunk, held), needle)) {
            result = ENVIRONMENT_HAS;
            break;
        }
        size_t kept = held < needle.len ? held : needle.len - 1; /* it may lie across two reads */
        memmove(chunk, chunk + held - kept, kept);
        held = kept;
    }
    close(fd);
    return result;
}
