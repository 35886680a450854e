#include "expect.h"

#include <dirent.h>
#include <inttypes.h>

#include "base/rng.h"
#include "config/file.h"

enum { MAX_TEXT = 1024 * 1024 };

static void show(const struct config *config, struct buf *out)
{
    buf_init(out, MAX_TEXT);
    assert_int_equal(config_show(config, out), WEIR_OK);
}

/* What is shown loads, and shows the same. */
static void assert_round_trip(struct slice text)
{
    struct buf once, twice;
    struct config *config = expect_config(text);
    show(config, &once);
    struct config *again = expect_config(buf_slice(&once));
    show(again, &twice);
    if (!slice_eq(buf_slice(&once), buf_slice(&twice)))
        fail_msg("shown first:\n%.*s\nthen:\n%.*s", SLICE_ARG(buf_slice(&once)),
                 SLICE_ARG(buf_slice(&twice)));
    config_free(config);
    config_free(again);
    buf_free(&once);
    buf_free(&twice);
}

static void test_defaults_are_a_file_that_says_what_no_file_says(void **state)
{
    struct buf defaults, from_defaults, from_little;
    buf_init(&defaults, MAX_TEXT);
    assert_int_equal(config_show_defaults(&defaults), WEIR_OK);
    assert_round_trip(buf_slice(&defaults));

    struct config *all = expect_config(buf_slice(&defaults));
    struct config *little =
        expect_config(SLICE("models: [{name: my-model, replicas: http://127.0.0.1:8000}]\n"));
    show(all, &from_defaults);
    show(little, &from_little);
    assert_true(slice_eq(buf_slice(&from_defaults), buf_slice(&from_little)));
    config_free(all);
    config_free(little);
    buf_free(&defaults);
    buf_free(&from_defaults);
    buf_free(&from_little);
}

/* Every line of the commented examples may be made a real one. */
static void test_commented_examples_load_too(void **state)
{
    struct buf defaults, real;
    buf_init(&defaults, MAX_TEXT);
    buf_init(&real, MAX_TEXT);
    assert_int_equal(config_show_defaults(&defaults), WEIR_OK);
    struct slice rest = buf_slice(&defaults);
    while (rest.len) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        struct slice line = slice_of(rest.ptr, (size_t)(end + 1 - rest.ptr));
        rest = slice_from(rest, line.len);
        size_t sign = 0;
        while (line.ptr[sign] == ' ')
            sign++;
        struct slice wanted[] = {SLICE("# slo:"), SLICE("#   ttft:"), SLICE("#   tpot:"),
                                 SLICE("# aliases:"), SLICE("# engine_model:")};
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            if (!slice_starts(slice_from(line, sign), wanted[i]))
                continue;
            assert_int_equal(buf_append(&real, slice_of(line.ptr, sign)), WEIR_OK);
            line = slice_from(line, sign + 2);
            break;
        }
        assert_int_equal(buf_append(&real, line), WEIR_OK);
    }
    struct config *config = expect_config(buf_slice(&real));
    assert_true(config->models[0].slo_ttft_ns == 500000000);
    assert_true(config->models[0].slo_tpot_ns == 50000000);
    assert_string_equal(config->models[0].aliases[0], "my-alias");
    assert_string_equal(config->models[0].pools[0].engine_model, "org/my-model");
    config_free(config);
    buf_free(&defaults);
    buf_free(&real);
}

/* The folder is found from this file's own path, relative to where it was compiled. */
static void test_examples_load_and_round_trip(void **state)
{
    char folder[512], path[1024];
    int len = (int)(strstr(__FILE__, "tests/unit/") - __FILE__);
    snprintf(folder, sizeof folder, "%.*sexamples", len, __FILE__);
    DIR *dir = opendir(folder);
    if (!dir)
        fail_msg("cannot open %s", folder);
    size_t loaded = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct slice name = slice_str(entry->d_name);
        struct buf text;
        if (name.len < 5 || !slice_eq(slice_from(name, name.len - 5), SLICE(".yaml")))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        buf_init(&text, MAX_TEXT);
        assert_int_equal(file_read(path, true, &text, NULL), WEIR_OK);
        printf("# %s\n", path);
        assert_round_trip(buf_slice(&text));
        buf_free(&text);
        loaded++;
    }
    closedir(dir);
    assert_true(loaded >= 2);
}

static void test_everything_that_can_be_said_comes_back(void **state)
{
    assert_round_trip(
        SLICE("listen: ['[::1]:80', unix:/tmp/s, '*:81']\nadmin: off\nworkers: 3\n"
              "access_log: {path: '-', format: text}\nhalf_close: yes\n"
              "timeouts: {request: 90s, connect: 1.5s}\n"
              "limits: {body: 1MB, head: 4097B}\n"
              "retry: {budget_ratio: 0.3333333333333333}\n"
              "models:\n"
              "  - name: \"null\"\n"
              "    aliases: ['true', 'a: b', '#c', \"\\u2028\\x9f\\xe9\", '\"', \"'\", '-', '{']\n"
              "    slo: {tpot: 1500us}\n"
              "    launch:\n"
              "      command: [a, '', \"x\\ny\\t\", \"{port}\", '\\']\n"
              "      first_port: 1\n"
              "      environment: {null: '', A: \"\\u00a0 x \", B: ~}\n"));
    assert_round_trip(SLICE("backends: [http://h:1, 'http://[::1]:2/v1']\n"));
}

/* Strings of characters that YAML has opinions about. */
static void test_any_text_comes_back_as_it_was(void **state)
{
    static const char *const pieces[] = {"a",
                                         ":",
                                         " ",
                                         "#",
                                         "-",
                                         "'",
                                         "\"",
                                         "\\",
                                         "\n",
                                         "\t",
                                         "[",
                                         "{",
                                         ",",
                                         "&",
                                         "*",
                                         "!",
                                         "|",
                                         ">",
                                         "%",
                                         "@",
                                         "`",
                                         "\xc2\x85",
                                         "\x7f",
                                         "\xe2\x80\xa9",
                                         "~",
                                         "?",
                                         "\r",
                                         "\x01",
                                         "0",
                                         "\xc3\xa9",
                                         "\xef\xbb\xbf",
                                         "="};
    uint64_t seed = 20261201;
    struct rng rng;
    rng_seed(&rng, seed);
    printf("# seed %" PRIu64 "\n", seed);
    for (int i = 0; i < 500; i++) {
        char word[64] = "";
        size_t len = 0;
        for (uint64_t n = rng_next(&rng) % 8; n > 0; n--)
            len += (size_t)snprintf(word + len, sizeof word - len, "%s",
                                    pieces[rng_next(&rng) % (sizeof pieces / sizeof pieces[0])]);
        const char *command[] = {"x", "{port}", word, NULL};
        struct config_launch launch = {
            .command = command, .replicas = 1, .ready_timeout_ns = 1000000000};
        struct config_pool pool = {
            .name = "p", .engine = "auto", .policy = "least-load", .launch = &launch};
        struct config_model model = {.name = "m", .pools = &pool, .pool_count = 1};
        struct config *base = expect_config(SLICE(SERVES));
        struct config *made = config_with_models(base, &model, 1);
        struct buf text;
        show(made, &text);
        struct config *back = expect_config(buf_slice(&text));
        assert_string_equal(back->models[0].pools[0].launch->command[2], word);
        config_free(base);
        config_free(made);
        config_free(back);
        buf_free(&text);
    }
}

static void test_a_full_buffer_is_said(void **state)
{
    struct buf whole, out;
    struct config *config = expect_config(SLICE(SERVES));
    show(config, &whole);
    for (size_t max = 0; max < buf_len(&whole); max += 37) {
        buf_init(&out, max);
        assert_int_equal(config_show(config, &out), WEIR_ELIMIT);
        buf_free(&out);
    }
    config_free(config);
    buf_free(&whole);
}

static void test_reference_and_list_have_every_option(void **state)
{
    struct buf page, list;
    buf_init(&page, MAX_TEXT);
    buf_init(&list, MAX_TEXT);
    assert_int_equal(config_write_reference(&page), WEIR_OK);
    assert_int_equal(config_list_options(&list), WEIR_OK);
    assert_non_null(slice_find(buf_slice(&page), SLICE("| `first_byte` | duration | `300s` |")));
    assert_non_null(slice_find(buf_slice(&page), SLICE("## `models[].pools[].launch`")));
    assert_non_null(slice_find(buf_slice(&list), SLICE("timeouts.first_byte ")));
    buf_free(&page);
    buf_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_a_file_that_says_what_no_file_says),
        cmocka_unit_test(test_commented_examples_load_too),
        cmocka_unit_test(test_examples_load_and_round_trip),
        cmocka_unit_test(test_everything_that_can_be_said_comes_back),
        cmocka_unit_test(test_any_text_comes_back_as_it_was),
        cmocka_unit_test(test_a_full_buffer_is_said),
        cmocka_unit_test(test_reference_and_list_have_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
