#include "server_fixture.h"

/* ---- requests ---- */

static void test_request_in_single_bytes_is_one_request(void **state)
{
    static const char text[] = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
    int client = connect_client();
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        assert_int_equal(f.requests, 0);
        say_bytes(client, text + i, 1);
    }
    assert_string_equal(hear(client), ANSWER(11, "POST /a abc"));
    assert_int_equal(f.requests, 1);
    close(client);
}

static void test_chunked_body_is_handed_over_whole_and_decoded(void **state)
{
    static const char text[] = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "3;x=y\r\nabc\r\n00002\r\nde\r\n0\r\nT: v\r\n\r\n" GET("/b");
    for (size_t cut = 1; cut + 1 < sizeof text; cut++) {
        int client = connect_client();
        say_bytes(client, text, cut);
        say_bytes(client, text + cut, sizeof text - 1 - cut);
        assert_string_equal(hear(client), ANSWER(13, "POST /a abcde") ANSWER(7, "GET /b "));
        close(client);
    }
}

static void test_body_larger_than_many_reads_arrives_whole(void **state)
{
    enum { SIZE = 300 * 1024 };
    char *body = heap_alloc(SIZE + 1), *heard = heap_alloc(SIZE + 200);
    for (size_t i = 0; i < SIZE; i++) {
        body[i] = (char)('a' + i % 26);
    }
    int client = connect_client();
    say(client, "POST /limit-400000 HTTP/1.1\r\nHost: x\r\nContent-Length: 307200\r\n\r\n");
    say_bytes(client, body, SIZE);
    bool is_over;
    size_t len = hear_bytes(client, heard, SIZE + 200, &is_over);
    assert_true(len > SIZE);
    assert_memory_equal(heard + len - SIZE, body, SIZE);
    assert_int_equal(gauge_get(&f.counters.body_bytes), 0);
    close(client);
    heap_free(body);
    heap_free(heard);
}

static void test_thousand_pipelined_requests_are_answered_in_order_without_recursion(void **state)
{
    enum { COUNT = 1000 };
    char *text = heap_alloc(COUNT * 64), *heard = heap_alloc(COUNT * 128);
    size_t len = 0, heard_len = 0;
    for (int i = 0; i < COUNT; i++) {
        len += (size_t)snprintf(text + len, 64, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i);
    }
    int client = connect_client();
    say_bytes(client, text, len);
    bool is_over;
    while (f.requests < COUNT) {
        heard_len += hear_bytes(client, heard + heard_len, COUNT * 128 - heard_len, &is_over);
    }
    heard_len += hear_bytes(client, heard + heard_len, COUNT * 128 - heard_len, &is_over);
    assert_int_equal(f.deepest, 1);
    size_t at = 0;
    for (int i = 0; i < COUNT; i++) {
        char one[128], body[32];
        int body_len = snprintf(body, sizeof body, "GET /%d ", i);
        int one_len = snprintf(one, sizeof one, "HTTP/1.1 200 X\r\ncontent-length: %d\r\n\r\n%s",
                               body_len, body);
        assert_true(at + (size_t)one_len <= heard_len);
        assert_memory_equal(heard + at, one, one_len);
        at += (size_t)one_len;
    }
    assert_int_equal(at, heard_len);
    close(client);
    heap_free(text);
    heap_free(heard);
}

static void test_request_waits_behind_a_response_in_progress(void **state)
{
    int client = connect_client();
    say(client, GET("/forget") GET("/b"));
    say(client, GET("/c"));
    turns_run(5);
    assert_int_equal(f.requests, 1);
    answer(f.held, 200, "first", true);
    assert_string_equal(hear(client), ANSWER(5, "first") ANSWER(7, "GET /b ") ANSWER(7, "GET /c "));
    close(client);
}

/* ---- expectations ---- */

static void test_continue_is_said_when_the_body_waits_for_it(void **state)
{
    int client = connect_client();
    say(client, "PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_string_equal(hear(client), "HTTP/1.1 100 Continue\r\n\r\n");
    say(client, "ab");
    assert_string_equal(hear(client), ANSWER(9, "PUT /a ab"));
    /* The body is here already, or there is none. */
    say(client,
        "PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab");
    assert_string_equal(hear(client), ANSWER(9, "PUT /a ab"));
    say(client, "PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n");
    assert_string_equal(hear(client), ANSWER(7, "PUT /a "));
    close(client);
}

static void test_continue_is_not_said_to_a_body_that_is_refused(void **state)
{
    int client = connect_client();
    say(client,
        "PUT /limit-1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_string_equal(hear(client), REFUSED);
    assert_int_equal(f.refusal, HTTP_REFUSE_BODY_SIZE);
    close(client);
}

static void test_unknown_expectation_is_refused_but_not_in_1_0(void **state)
{
    int client = connect_client();
    say(client, "PUT /a HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n");
    assert_string_equal(hear(client), REFUSED);
    assert_int_equal(f.refusal, HTTP_REFUSE_EXPECT);
    close(client);
    client = connect_client();
    say(client, "PUT /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab");
    assert_string_equal(hear(client), ANSWER(9, "PUT /a ab"));
    close(client);
}

/* ---- limits ---- */

static void test_what_is_too_large_or_malformed_is_refused_and_closes(void **state)
{
    char long_head[5000];
    memset(long_head, 'a', sizeof long_head - 1);
    memcpy(long_head, "GET /", 5);
    long_head[sizeof long_head - 1] = '\0';
    const struct {
        const char *text;
        enum http_refusal why;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n" GET("/b"), HTTP_REFUSE_SYNTAX},
        {"GET / HTTP/1.1\nHost: x\n\n" GET("/b"), HTTP_REFUSE_SYNTAX},
        {"GET / HTTP/2.0\r\nHost: x\r\n\r\n" GET("/b"), HTTP_REFUSE_VERSION},
        {long_head, HTTP_REFUSE_HEAD_SIZE},
        {"POST /limit-5 HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\n", HTTP_REFUSE_BODY_SIZE},
        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\n",
         HTTP_REFUSE_BODY_SIZE},
        {"POST /limit-5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n",
         HTTP_REFUSE_BODY_SIZE},
        {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n" GET("/b"),
         HTTP_REFUSE_SYNTAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int client = connect_client();
        say(client, cases[i].text);
        assert_string_equal(hear(client), REFUSED);
        assert_int_equal(f.refusals, i + 1);
        assert_int_equal(f.refusal, cases[i].why);
        assert_true(is_closed(client));
        close(client);
    }
    assert_int_equal(f.requests, 0);
    assert_int_equal(counter_get(&f.counters.bad_requests), f.refusals);
}

static void test_largest_body_is_taken_in_either_framing(void **state)
{
    int client = connect_client();
    say(client, "POST /limit-5 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde");
    assert_string_equal(hear(client), ANSWER(19, "POST /limit-5 abcde"));
    say(client, "POST /limit-5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                "2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n");
    assert_string_equal(hear(client), ANSWER(19, "POST /limit-5 abcde"));
    close(client);
}

/* A body of a few bytes in endless small chunks with extensions. */
static void test_chunk_framing_may_not_cost_more_than_the_largest_body(void **state)
{
    int client = connect_client();
    say(client, "POST /limit-10000 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    static const char piece[] = "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nb\r\n";
    size_t sent = 0;
    while (f.refusals == 0 && sent < 4 << 20) {
        say(client, piece);
        sent += sizeof piece - 1;
    }
    assert_int_equal(f.refusal, HTTP_REFUSE_BODY_SIZE);
    close(client);
}

static void test_memory_of_all_bodies_is_bounded_and_given_back(void **state)
{
    enum { CLIENTS = 40, PART = 40 * 1024 };
    static char part[PART];
    memset(part, 'b', sizeof part);
    int clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = connect_client();
        say(clients[i], "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
        say_bytes(clients[i], part, sizeof part);
        assert_true(gauge_get(&f.counters.body_bytes) <= 1 << 20);
    }
    assert_true(f.refusals > 0);
    assert_int_equal(f.refusal, HTTP_REFUSE_MEMORY);
    for (int i = 0; i < CLIENTS; i++) {
        close(clients[i]);
    }
    turns_run(4);
    assert_int_equal(gauge_get(&f.counters.body_bytes), 0);
    int client = connect_client();
    say(client, GET("/a"));
    assert_string_equal(hear(client), ANSWER(7, "GET /a "));
    close(client);
}

static void test_forgotten_request_holds_no_memory_but_for_what_follows(void **state)
{
    int client = connect_client();
    say(client, GET("/forget"));
    assert_int_equal(gauge_get(&f.counters.body_bytes), 0);
    answer(f.held, 200, "", true);
    hear(client);
    static char body[60000];
    memset(body, 'b', sizeof body);
    say(client, "POST /forget HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nea60\r\n");
    say_bytes(client, body, sizeof body);
    assert_true(gauge_get(&f.counters.body_bytes) >= 60000);
    say(client, "\r\n0\r\n\r\nGE"); /* the end, and the first two bytes of what follows */
    assert_int_equal(f.requests, 2);
    assert_true(gauge_get(&f.counters.body_bytes) <= 4096);
    answer(f.held, 200, "", true);
    hear(client);
    say(client, "T /c HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_string_equal(hear(client), ANSWER(7, "GET /c "));
    assert_int_equal(gauge_get(&f.counters.body_bytes), 0);
    close(client);
}

/* ---- time ---- */

static bool was_refused(void *ctx)
{
    return f.refusals > 0;
}

static bool is_empty(void *ctx)
{
    return f.server.open == 0;
}

static void test_slow_head_is_refused(void **state)
{
    f.server.limits.head_timeout_ns = NS_PER_MS;
    int client = connect_client();
    say(client, "GET / HT");
    turns_until(was_refused, NULL);
    assert_int_equal(f.refusal, HTTP_REFUSE_HEAD_TIMEOUT);
    assert_string_equal(hear(client), REFUSED);
    close(client);
}

static void test_slow_body_is_refused(void **state)
{
    f.server.limits.body_timeout_ns = NS_PER_MS;
    int client = connect_client();
    say(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab");
    turns_until(was_refused, NULL);
    assert_int_equal(f.refusal, HTTP_REFUSE_BODY_TIMEOUT);
    close(client);
}

static void test_idle_connection_is_closed_without_a_word(void **state)
{
    f.server.limits.idle_timeout_ns = NS_PER_MS;
    int client = connect_client();
    say(client, GET("/a"));
    turns_until(is_empty, NULL);
    assert_string_equal(hear(client), ANSWER(7, "GET /a "));
    assert_int_equal(f.refusals, 0);
    close(client);
}

static void test_half_a_next_request_is_a_slow_head_not_idleness(void **state)
{
    f.server.limits.idle_timeout_ns = NS_PER_MS;
    int client = connect_client();
    say(client, GET("/a") "GET");
    turns_until(was_refused, NULL);
    assert_int_equal(f.refusal, HTTP_REFUSE_HEAD_TIMEOUT);
    close(client);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_request_in_single_bytes_is_one_request),
        CASE(test_chunked_body_is_handed_over_whole_and_decoded),
        CASE(test_body_larger_than_many_reads_arrives_whole),
        CASE(test_thousand_pipelined_requests_are_answered_in_order_without_recursion),
        CASE(test_request_waits_behind_a_response_in_progress),
        CASE(test_continue_is_said_when_the_body_waits_for_it),
        CASE(test_continue_is_not_said_to_a_body_that_is_refused),
        CASE(test_unknown_expectation_is_refused_but_not_in_1_0),
        CASE(test_what_is_too_large_or_malformed_is_refused_and_closes),
        CASE(test_largest_body_is_taken_in_either_framing),
        CASE(test_chunk_framing_may_not_cost_more_than_the_largest_body),
        CASE(test_memory_of_all_bodies_is_bounded_and_given_back),
        CASE(test_forgotten_request_holds_no_memory_but_for_what_follows),
        CASE(test_slow_head_is_refused),
        CASE(test_slow_body_is_refused),
        CASE(test_idle_connection_is_closed_without_a_word),
        CASE(test_half_a_next_request_is_a_slow_head_not_idleness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
