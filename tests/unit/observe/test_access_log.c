#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "observe/access_log.h"

/* Files and pipes, but no waiting: closing the log writes all, and what is lost is counted. */

static char dir[] = "/tmp/weir-test-XXXXXX";
static char path[64], moved[64];

static int set_up(void **state)
{
    signal(SIGPIPE, SIG_IGN);
    log_setup(LOG_ERROR, false);
    memcpy(dir + sizeof dir - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/log", dir);
    snprintf(moved, sizeof moved, "%s/log.1", dir);
    return 0;
}

static int tear_down(void **state)
{
    unlink(path);
    unlink(moved);
    return rmdir(dir);
}

static struct access_log *open_log(const char *where, size_t rings)
{
    struct access_log *log = NULL;
    struct error err;
    assert_int_equal(access_log_open(where, ACCESS_LOG_TEXT, rings, &log, &err), WEIR_OK);
    return log;
}

static void write_lines(struct access_log_ring *ring, char tag, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char id[32];
        snprintf(id, sizeof id, "%c%u", tag, i);
        struct request_record r = {.request_id = slice_str(id)};
        access_log_write(ring, &r);
    }
}

static struct buf read_file(int fd)
{
    struct buf text;
    buf_init(&text, 64 << 20);
    char *room;
    ssize_t got;
    do {
        assert_int_equal(buf_reserve(&text, 65536, &room), WEIR_OK);
        got = read(fd, room, 65536);
        if (got > 0)
            buf_commit(&text, (size_t)got);
    } while (got > 0);
    return text;
}

/* How many lines of `tag` there are; they must be whole and in order. */
static unsigned count_lines(struct slice text, char tag)
{
    unsigned next = 0;
    while (text.len > 0) {
        const char *end = memchr(text.ptr, '\n', text.len);
        assert_non_null(end);
        struct slice line = slice_of(text.ptr, (size_t)(end - text.ptr));
        assert_true(slice_starts(line, SLICE("time=")));
        const char *id = slice_find(line, SLICE(" id="));
        assert_non_null(id);
        assert_non_null(slice_find(line, SLICE(" queue_ms=")));
        if (id[4] == tag) {
            assert_true(strtoul(id + 5, NULL, 10) >= next);
            next++;
        }
        text = slice_from(text, line.len + 1);
    }
    return next;
}

static unsigned lines_in(const char *file, char tag)
{
    int fd = open(file, O_RDONLY);
    assert_true(fd >= 0);
    struct buf text = read_file(fd);
    close(fd);
    unsigned count = count_lines(buf_slice(&text), tag);
    buf_free(&text);
    return count;
}

static void test_close_writes_what_is_left(void **state)
{
    struct access_log *log = open_log(path, 2);
    write_lines(access_log_ring(log, 0), 'a', 0, 100);
    write_lines(access_log_ring(log, 1), 'b', 0, 50);
    assert_int_equal(access_log_lost(log), 0);
    access_log_close(log);
    assert_int_equal(lines_in(path, 'a'), 100);
    assert_int_equal(lines_in(path, 'b'), 50);
}

static void test_existing_file_is_continued(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct access_log *log = open_log(path, 1);
        write_lines(access_log_ring(log, 0), 'a', 0, 1);
        access_log_close(log);
    }
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0137, 0); /* not for others, nothing executable */
    int fd = open(path, O_RDONLY);
    struct buf text = read_file(fd);
    close(fd);
    size_t newlines = 0;
    for (size_t i = 0; i < buf_len(&text); i++)
        newlines += buf_slice(&text).ptr[i] == '\n';
    assert_int_equal(newlines, 2);
    buf_free(&text);
}

struct producer {
    struct access_log_ring *ring;
    char tag;
};

enum { PRODUCED = 20000 }; /* more than two rings hold */

static void *produce(void *arg)
{
    struct producer *p = arg;
    write_lines(p->ring, p->tag, 0, PRODUCED);
    return NULL;
}

static void test_each_line_is_written_whole_or_counted_as_lost(void **state)
{
    struct access_log *log = open_log(path, 2);
    struct producer producers[2] = {{access_log_ring(log, 0), 'a'}, {access_log_ring(log, 1), 'b'}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    uint64_t lost = access_log_lost(log); /* nothing is lost at closing a file */
    access_log_close(log);
    assert_int_equal(lines_in(path, 'a') + lines_in(path, 'b') + lost, 2 * PRODUCED);
}

static void test_reopen_goes_on_in_a_new_file(void **state)
{
    struct access_log *log = open_log(path, 1);
    write_lines(access_log_ring(log, 0), 'a', 0, 10);
    assert_int_equal(rename(path, moved), 0);
    access_log_reopen(log);
    while (access(path, F_OK) != 0)
        ; /* until the log thread has seen it */
    write_lines(access_log_ring(log, 0), 'a', 10, 20);
    access_log_close(log);
    assert_int_equal(lines_in(path, 'a') + lines_in(moved, 'a'), 20);
    assert_true(lines_in(path, 'a') >= 10);
}

static void test_missing_folder_is_an_error_that_names_the_file(void **state)
{
    struct access_log *log = NULL;
    struct error err;
    assert_int_equal(access_log_open("/nonexistent/weir.log", ACCESS_LOG_JSON, 1, &log, &err),
                     WEIR_EIO);
    assert_null(log);
    assert_non_null(strstr(err.text, "/nonexistent/weir.log"));
    assert_non_null(strstr(err.text, "No such file"));
}

static void test_fifo_without_a_reader_is_an_error_and_not_a_wait(void **state)
{
    assert_int_equal(mkfifo(path, 0600), 0);
    struct access_log *log = NULL;
    struct error err;
    assert_int_equal(access_log_open(path, ACCESS_LOG_JSON, 1, &log, &err), WEIR_EIO);
}

static void test_full_disk_loses_lines_and_counts_them(void **state)
{
    struct access_log *log = open_log("/dev/full", 1);
    struct access_log_ring *ring = access_log_ring(log, 0);
    unsigned wrote = 0;
    while (access_log_lost(log) == 0 && wrote < PRODUCED) {
        write_lines(ring, 'a', wrote, wrote + 1);
        wrote++;
    }
    assert_int_equal(access_log_lost(log), 1); /* the first that the ring did not hold */
    assert_true(wrote > 1000);
    access_log_close(log);
}

static void test_closed_pipe_drops_lines_and_goes_on(void **state)
{
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    struct access_log *log = open_log(path, 2);
    close(reader);
    write_lines(access_log_ring(log, 0), 'a', 0, 5);
    write_lines(access_log_ring(log, 1), 'b', 0, 5);
    while (access_log_lost(log) < 10)
        ; /* the log thread meets EPIPE: no reader ever comes back to these */

    reader = open(path, O_RDONLY | O_NONBLOCK);
    write_lines(access_log_ring(log, 0), 'c', 0, 3);
    access_log_close(log);
    struct buf text = read_file(reader);
    assert_int_equal(count_lines(buf_slice(&text), 'c'), 3);
    assert_int_equal(count_lines(buf_slice(&text), 'a'), 0);
    buf_free(&text);
    close(reader);
}

/* The pipe is full at the end: closing gives up after its time instead of waiting for ever. */
static void test_pipe_that_nobody_reads_does_not_hold_up_closing(void **state)
{
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    struct access_log *log = open_log(path, 1);
    write_lines(access_log_ring(log, 0), 'a', 0, 1000); /* more than a pipe takes */
    access_log_close(log);
    struct buf text = read_file(reader);
    unsigned count = count_lines(buf_slice(&text), 'a'); /* whole lines only */
    assert_true(count > 0 && count < 1000);
    buf_free(&text);
    close(reader);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_close_writes_what_is_left),
        TEST(test_existing_file_is_continued),
        TEST(test_each_line_is_written_whole_or_counted_as_lost),
        TEST(test_reopen_goes_on_in_a_new_file),
        TEST(test_missing_folder_is_an_error_that_names_the_file),
        TEST(test_fifo_without_a_reader_is_an_error_and_not_a_wait),
        TEST(test_full_disk_loses_lines_and_counts_them),
        TEST(test_closed_pipe_drops_lines_and_goes_on),
        TEST(test_pipe_that_nobody_reads_does_not_hold_up_closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
