#include "config/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024 };

static enum weir_err read_all(int fd, struct buf *out, struct error *err)
{
    for (;;) {
        size_t left = out->max - buf_len(out);
        size_t want = left < CHUNK ? left + 1 : CHUNK; /* one more shows that it is longer */
        char chunk[CHUNK];
        ssize_t got = read(fd, chunk, want);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, errno, "cannot be read");
        if (got == 0)
            return WEIR_OK;
        if (buf_append(out, slice_of(chunk, (size_t)got)) != WEIR_OK)
            return error_set(err, WEIR_ELIMIT, "is longer than %zu bytes", out->max);
    }
}

static enum weir_err check_kind(int fd, bool only_regular, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(err, errno, "cannot be looked at");
    if (S_ISDIR(st.st_mode))
        return error_set(err, WEIR_EIO, "is a directory");
    if (only_regular && !S_ISREG(st.st_mode))
        return error_set(err, WEIR_EIO, "is not a regular file");
    return WEIR_OK;
}

enum weir_err file_read(const char *path, bool only_regular, struct buf *out, struct error *err)
{
    /* Opening a pipe without a writer would wait for one. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (only_regular ? O_NONBLOCK : 0));
    if (fd < 0)
        return error_set_errno(err, errno, "cannot be opened");
    enum weir_err rc = check_kind(fd, only_regular, err);
    if (!rc)
        rc = read_all(fd, out, err);
    close(fd);
    return rc;
}
