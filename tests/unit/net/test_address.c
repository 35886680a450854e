#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/socket.h>

#include "base/heap.h"
#include "net/address.h"

static const char *format(const struct endpoint *endpoint)
{
    static char text[128];
    address_format(endpoint, text, sizeof text);
    return text;
}

/* ---- URLs of engines ---- */

static void test_urls_are_taken_apart(void **state)
{
    static const struct {
        const char *text, *host, *authority, *path;
        uint16_t port;
    } cases[] = {
        {"http://engine", "engine", "engine", "", 80},
        {"http://engine:8000", "engine", "engine:8000", "", 8000},
        {"http://engine:8000/", "engine", "engine:8000", "", 8000},
        {"http://engine:8000/v1", "engine", "engine:8000", "", 8000},
        {"http://engine:8000/v1/", "engine", "engine:8000", "", 8000},
        {"http://engine:8000/v1//", "engine", "engine:8000", "", 8000},
        {"http://engine:8000/a/b", "engine", "engine:8000", "/a/b", 8000},
        {"http://engine:8000/a/v1", "engine", "engine:8000", "/a", 8000},
        {"http://engine:8000/v1/a", "engine", "engine:8000", "/v1/a", 8000},
        {"http://engine:8000/av1", "engine", "engine:8000", "/av1", 8000},
        {"http://10.0.0.1:65535", "10.0.0.1", "10.0.0.1:65535", "", 65535},
        {"http://a_b-c.d.svc.cluster.local:1", "a_b-c.d.svc.cluster.local",
         "a_b-c.d.svc.cluster.local:1", "", 1},
        {"http://[::1]:8000", "::1", "[::1]:8000", "", 8000},
        {"http://[fd00::1]:8000/v1", "fd00::1", "[fd00::1]:8000", "", 8000},
        {"http://[::1]", "::1", "[::1]", "", 80},
        {"http://[::ffff:10.0.0.1]:80/x", "::ffff:10.0.0.1", "[::ffff:10.0.0.1]:80", "/x", 80},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct base_url url;
        struct error err = {0};
        if (base_url_parse(slice_str(cases[i].text), &url, &err) != WEIR_OK ||
            !slice_eq(url.host, slice_str(cases[i].host)) ||
            !slice_eq(url.authority, slice_str(cases[i].authority)) ||
            !slice_eq(url.path, slice_str(cases[i].path)) || url.port != cases[i].port ||
            url.is_unix) {
            fail_msg("%s: %s; host \"%.*s\", authority \"%.*s\", port %u, path \"%.*s\"",
                     cases[i].text, err.text, SLICE_ARG(url.host), SLICE_ARG(url.authority),
                     url.port, SLICE_ARG(url.path));
        }
    }
}

static void test_url_of_a_unix_socket(void **state)
{
    struct base_url url;
    struct error err;
    assert_int_equal(base_url_parse(SLICE("unix:/run/engine.sock"), &url, &err), WEIR_OK);
    assert_true(url.is_unix);
    assert_true(slice_eq(url.host, SLICE("/run/engine.sock")));
    assert_true(slice_eq(url.authority, SLICE("localhost")));
    assert_int_equal(url.path.len, 0);
    char text[200] = "unix:/";
    memset(text + 6, 'a', 106); /* 107 bytes of path: the most */
    assert_int_equal(base_url_parse(slice_str(text), &url, &err), WEIR_OK);
    text[112] = 'a';
    assert_int_equal(base_url_parse(slice_str(text), &url, &err), WEIR_EINVAL);
    assert_int_equal(base_url_parse(SLICE("unix:relative.sock"), &url, &err), WEIR_EINVAL);
    assert_int_equal(base_url_parse(SLICE("unix:"), &url, &err), WEIR_EINVAL);
}

/* An exact copy on the heap, so that a sanitizer sees one byte too far. */
static enum weir_err parse_copy(const char *text, struct error *err)
{
    size_t len = strlen(text);
    char *copy = heap_alloc(len ? len : 1);
    memcpy(copy, text, len);
    struct base_url url;
    enum weir_err result = base_url_parse(slice_of(copy, len), &url, err);
    heap_free(copy);
    return result;
}

static void test_urls_that_mean_something_else_are_refused_in_words(void **state)
{
    static const char *const bad[] = {
        "",
        "engine:8000",
        "http:/engine",
        "http://",
        "http://:8000",
        "http:///path",
        "HTTP://engine",
        "ftp://engine",
        "https://engine",
        "http://engine:",
        "http://engine:0",
        "http://engine:65536",
        "http://engine:99999999999",
        "http://engine:-1",
        "http://engine:+80",
        "http://engine:80a",
        "http://engine: 80",
        "http://engine:80:81",
        "http://::1:8000",
        "http://fe80::1:8000",
        "http://[::1",
        "http://[::1]8000",
        "http://[::1]:",
        "http://[]:8000",
        "http://[engine]:8000",
        "http://engine:8000@3",
        "http://engine@3:8000",
        "http://user:secret@engine",
        "http://[::1]:8000@3",
        "http://en gine",
        "http://engine\r\nX: y",
        "http://engine/a b",
        "http://engine/a?b=c",
        "http://engine/a#b",
        "http://engine/\x01",
        "http://engine?x",
        "http://en*gine",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = {0};
        if (parse_copy(bad[i], &err) == WEIR_OK) {
            fail_msg("taken: %s", bad[i]);
        }
        assert_true(err.text[0] != '\0');
    }
}

static void test_rank_and_key_in_a_url_are_explained(void **state)
{
    struct error err;
    assert_int_equal(parse_copy("http://host:8000@3", &err), WEIR_EINVAL);
    assert_non_null(strstr(err.text, "rank"));
    assert_non_null(strstr(err.text, "api_key_file"));
    assert_int_equal(parse_copy("https://host", &err), WEIR_EUNSUPPORTED);
}

/* ---- addresses to listen on ---- */

static void test_listen_addresses(void **state)
{
    static const struct {
        const char *text, *formatted;
    } cases[] = {
        {"127.0.0.1:8080", "127.0.0.1:8080"},
        {"0.0.0.0:1", "0.0.0.0:1"},
        {"*:8080", "0.0.0.0:8080"},
        {":8080", "0.0.0.0:8080"},
        {"8080", "0.0.0.0:8080"},
        {"localhost:65535", "127.0.0.1:65535"},
        {"[::1]:8080", "[::1]:8080"},
        {"[::]:8080", "[::]:8080"},
        {"[2001:DB8::1]:8080", "[2001:db8::1]:8080"},
        {"unix:/run/weir.sock", "unix:/run/weir.sock"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct endpoint endpoint;
        struct error err = {0};
        if (address_parse_listen(slice_str(cases[i].text), &endpoint, &err) != WEIR_OK) {
            fail_msg("%s: %s", cases[i].text, err.text);
        }
        assert_string_equal(format(&endpoint), cases[i].formatted);
    }
}

static void test_addresses_that_nobody_can_listen_on_are_refused_in_words(void **state)
{
    static const char *const bad[] = {
        "",         ":",        "127.0.0.1",    "127.0.0.1:",  "127.0.0.1:0",     "127.0.0.1:65536",
        "host:80",  "1.2.3:80", "256.0.0.1:80", "::1:8080",    "[::1]",           "[::1",
        "[::g]:80", "unix:",    "[127.0.0.1]:", "127.0.0.1:x", "127.0.0.1:80:80", "*:",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct endpoint endpoint;
        struct error err = {0};
        if (address_parse_listen(slice_str(bad[i]), &endpoint, &err) == WEIR_OK) {
            fail_msg("taken: %s", bad[i]);
        }
        assert_true(err.text[0] != '\0');
    }
}

/* ---- hosts ---- */

static void test_numeric_hosts_need_no_resolver_and_names_do(void **state)
{
    struct endpoint endpoint;
    assert_int_equal(address_from_host(SLICE("10.1.2.3"), 80, false, &endpoint), WEIR_OK);
    assert_int_equal(endpoint.family, AF_INET);
    assert_string_equal(format(&endpoint), "10.1.2.3:80");
    assert_int_equal(address_from_host(SLICE("fd00::1"), 80, false, &endpoint), WEIR_OK);
    assert_int_equal(endpoint.family, AF_INET6);
    assert_string_equal(format(&endpoint), "[fd00::1]:80");
    static const char *const names[] = {
        "localhost",
        "10.1.2",
        "10.1.2.3.",
        "10.1.2.3.4",
        "",
        "::1%eth0",
        "a-name-longer-than-any-numeric-address-could-ever-be.example"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(address_from_host(slice_str(names[i]), 80, false, &endpoint),
                         WEIR_ENOTFOUND);
    }
}

static void test_unknown_family_is_formatted_as_unknown_and_short_buffers_hold(void **state)
{
    struct endpoint none = {0};
    assert_string_equal(format(&none), "unknown");
    struct endpoint endpoint;
    struct error err;
    assert_int_equal(address_parse_listen(SLICE("[2001:db8::1]:8080"), &endpoint, &err), WEIR_OK);
    char text[8];
    address_format(&endpoint, text, sizeof text);
    assert_string_equal(text, "[2001:d");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls_are_taken_apart),
        cmocka_unit_test(test_url_of_a_unix_socket),
        cmocka_unit_test(test_urls_that_mean_something_else_are_refused_in_words),
        cmocka_unit_test(test_rank_and_key_in_a_url_are_explained),
        cmocka_unit_test(test_listen_addresses),
        cmocka_unit_test(test_addresses_that_nobody_can_listen_on_are_refused_in_words),
        cmocka_unit_test(test_numeric_hosts_need_no_resolver_and_names_do),
        cmocka_unit_test(test_unknown_family_is_formatted_as_unknown_and_short_buffers_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
