#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "launch/wire.h"

static void write_message(struct buf *out, uint32_t argc, uint32_t envc, struct slice strings)
{
    struct wire_run head = {.type = WIRE_RUN, .id = 7, .argc = argc, .envc = envc};
    buf_init(out, 4096);
    assert_int_equal(buf_append(out, slice_of((const char *)&head, sizeof(head))), WEIR_OK);
    assert_int_equal(buf_append(out, strings), WEIR_OK);
}

static void test_words_and_environment_are_read_back(void **state)
{
    struct wire_command command;
    struct buf message;
    write_message(&message, 2, 1, SLICE("log\0run\0\0A=1\0"));
    assert_int_equal(wire_read_run(buf_slice(&message), &command), WEIR_OK);
    assert_int_equal(command.head.id, 7);
    assert_string_equal(command.log_path, "log");
    assert_string_equal(command.words[0], "run");
    assert_string_equal(command.words[1], "");
    assert_null(command.words[2]);
    assert_string_equal(command.environment[0], "A=1");
    assert_null(command.environment[1]);
    heap_free(command.words);
    buf_free(&message);
}

static void test_every_cut_message_is_refused(void **state)
{
    struct wire_command command;
    struct buf message;
    write_message(&message, 2, 1, SLICE("log\0run\0arg\0A=1\0"));
    for (size_t len = 0; len < buf_len(&message); len++)
        assert_int_equal(wire_read_run(slice_of(buf_slice(&message).ptr, len), &command),
                         WEIR_ESYNTAX);
    buf_free(&message);
}

static void test_counts_that_lie_are_refused(void **state)
{
    static const uint32_t counts[][2] = {{0, 1}, {3, 1}, {1, 1}, {UINT32_MAX, 1}, {2, UINT32_MAX}};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct wire_command command;
        struct buf message;
        write_message(&message, counts[i][0], counts[i][1], SLICE("log\0run\0arg\0A=1\0"));
        assert_int_equal(wire_read_run(buf_slice(&message), &command), WEIR_ESYNTAX);
        buf_free(&message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_and_environment_are_read_back),
        cmocka_unit_test(test_every_cut_message_is_refused),
        cmocka_unit_test(test_counts_that_lie_are_refused),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
