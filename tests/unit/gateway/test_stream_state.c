#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/stream_state.h"

static void test_a_client_can_leave_in_every_live_state(void **state)
{
    for (int from = 0; from < ST_SETTLE; from++) {
        assert_true(stream_state_may(from, ST_SETTLE));
    }
}

static void test_a_request_settles_once(void **state)
{
    assert_true(stream_state_may(ST_SETTLE, ST_DEAD));
    for (int to = 0; to < ST_COUNT; to++) {
        assert_int_equal(stream_state_may(ST_SETTLE, to), to == ST_DEAD);
        assert_false(stream_state_may(ST_DEAD, to));
        assert_int_equal(stream_state_may(to, ST_DEAD), to == ST_SETTLE);
    }
}

static void test_nothing_is_replayed_once_bytes_flow(void **state)
{
    for (int to = 0; to < ST_COUNT; to++) {
        assert_int_equal(stream_state_may(ST_RELAY, to), to == ST_SETTLE);
    }
}

static void test_bytes_flow_only_after_an_engine_was_asked(void **state)
{
    for (int from = 0; from < ST_COUNT; from++) {
        assert_int_equal(stream_state_may(from, ST_RELAY), from == ST_WAIT);
    }
}

static void test_every_state_has_a_name(void **state)
{
    for (int s = 0; s < ST_COUNT; s++) {
        assert_non_null(stream_state_name(s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_client_can_leave_in_every_live_state),
        cmocka_unit_test(test_a_request_settles_once),
        cmocka_unit_test(test_nothing_is_replayed_once_bytes_flow),
        cmocka_unit_test(test_bytes_flow_only_after_an_engine_was_asked),
        cmocka_unit_test(test_every_state_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
