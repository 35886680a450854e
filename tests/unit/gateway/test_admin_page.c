#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../observe/fixture.h"
#include "base/json.h"
#include "gateway/admin_page.h"

static int set_up(void **state)
{
    static struct fixture f;
    fixture_init(&f);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture_free(*state);
    return 0;
}

static struct json_doc *read_status(struct fixture *f)
{
    buf_clear(&f->page);
    assert_int_equal(admin_write_status(&f->in, &f->page), WEIR_OK);
    struct json_doc *doc = json_parse(buf_slice(&f->page));
    assert_non_null(doc);
    return doc;
}

/* Follows "models.0.pools.1.name": a number is an index. */
static const struct json_value *find(const struct json_doc *doc, const char *path)
{
    const struct json_value *v = json_root(doc);
    char key[64];
    for (const char *p = path; *p; p += *p == '.') {
        size_t len = strcspn(p, ".");
        assert_true(len < sizeof key);
        memcpy(key, p, len);
        key[len] = 0;
        v = json_is_array(v) ? json_at(v, strtoul(key, NULL, 10)) : json_get(v, key);
        p += len;
    }
    if (!v)
        fail_msg("missing: %s", path);
    return v;
}

static double number_at(const struct json_doc *doc, const char *path)
{
    return json_number(find(doc, path), -1);
}

static bool is_null_at(const struct json_doc *doc, const char *path)
{
    return json_is_null(find(doc, path));
}

static void expect_text(const struct json_doc *doc, const char *path, const char *expected)
{
    struct slice text = json_string(find(doc, path));
    if (!slice_eq(text, slice_str(expected)))
        fail_msg("%s is '%.*s'", path, SLICE_ARG(text));
}

static void test_fleet_at_rest_has_nulls_where_nothing_was_measured(void **state)
{
    struct json_doc *doc = read_status(*state);
    expect_text(doc, "version", "0.1.0");
    assert_true(number_at(doc, "uptime_s") == 100);
    assert_int_equal(json_count(find(doc, "models")), 2);
    expect_text(doc, "models.0.name", "llama");
    assert_true(number_at(doc, "models.0.slo.ttft_ms") == 500);
    assert_true(is_null_at(doc, "models.1.slo.ttft_ms"));
    assert_true(is_null_at(doc, "models.0.ttft_ms.p50"));
    assert_true(is_null_at(doc, "models.0.windows.10s.attainment"));
    assert_int_equal(json_count(find(doc, "models.0.pools")), 2);
    assert_true(is_null_at(doc, "models.0.pools.0.policy"));
    assert_int_equal(json_count(find(doc, "models.0.pools.0.replicas")), 2);
    expect_text(doc, "models.0.pools.1.replicas.0.name", "http://c:8080");
    expect_text(doc, "models.0.pools.1.replicas.0.engine", "vllm");
    expect_text(doc, "models.0.pools.1.replicas.0.state", "unknown");
    assert_true(is_null_at(doc, "models.0.pools.1.replicas.0.running"));
    assert_int_equal(json_count(find(doc, "models.1.pools.0.replicas")), 0);
    json_doc_free(doc);
}

static void test_model_adds_up_its_pools_and_pools_stay_apart(void **state)
{
    struct fixture *f = *state;
    struct model *llama = &f->fleet->models[0];
    fixture_serve(llama->pools[0].traffic, 0, OUTCOME_OK, 100, 10, 5);
    fixture_serve(llama->pools[1].traffic, 1, OUTCOME_OK, 600, 10, 5);
    fixture_serve(llama->traffic, 0, OUTCOME_SHED, 0, 0, 1);
    fixture_sample_after(f, 1);
    struct json_doc *doc = read_status(f);
    assert_true(number_at(doc, "models.0.requests.ok") == 2);
    assert_true(number_at(doc, "models.0.requests.shed") == 1);
    assert_true(number_at(doc, "models.0.requests.offered") == 3);
    assert_true(number_at(doc, "models.0.requests.good") == 1);
    assert_true(number_at(doc, "models.0.requests.late_ttft") == 1);
    assert_true(number_at(doc, "models.0.tokens.in") == 30);
    assert_true(number_at(doc, "models.0.windows.10s.good_per_s") == 1);
    assert_true(number_at(doc, "models.0.windows.10s.offered_per_s") == 3);
    double attainment = number_at(doc, "models.0.windows.5m.attainment");
    assert_true(attainment > 0.333 && attainment < 0.334);
    /* Quantiles are cell edges: at most an eighth above. */
    double cpu_p50 = number_at(doc, "models.0.pools.1.ttft_ms.p50");
    assert_true(cpu_p50 >= 600 && cpu_p50 <= 675);
    assert_true(number_at(doc, "models.0.pools.0.ttft_ms.p99") < 113);
    assert_true(number_at(doc, "models.0.ttft_ms.p99") == cpu_p50);
    assert_true(number_at(doc, "models.1.requests.ok") == 0);
    json_doc_free(doc);
}

static void test_replica_shows_what_it_reported(void **state)
{
    struct fixture *f = *state;
    struct replica *r = f->fleet->models[0].pools[1].replicas[0];
    r->state = REPLICA_READY;
    r->load.requests = 2;
    r->speed_mtok_s = 1500;
    r->max_context_tokens = 8192;
    r->report.taken_ns = f->in.now_ns - NS_PER_S;
    r->report.running = 3;
    r->report.kv_used_ppm = 500000;
    r->report.prefix_queries = 4;
    r->report.prefix_hits = 1;
    r->health.ejected_until_ns = f->in.now_ns + 1;
    struct json_doc *doc = read_status(f);
#define R "models.0.pools.1.replicas.0."
    expect_text(doc, R "state", "ready");
    assert_true(json_bool(find(doc, R "ejected"), false));
    assert_true(number_at(doc, R "in_flight") == 2);
    assert_true(number_at(doc, R "tokens_per_s") == 1.5);
    assert_true(number_at(doc, R "max_context_tokens") == 8192);
    assert_true(number_at(doc, R "report_age_s") == 1);
    assert_true(number_at(doc, R "running") == 3);
    assert_true(number_at(doc, R "waiting") == 0);
    assert_true(number_at(doc, R "kv_used") == 0.5);
    assert_true(number_at(doc, R "prefix_hit_ratio") == 0.25);
    assert_true(is_null_at(doc, R "kv_tokens"));
    json_doc_free(doc);
}

static void test_process_is_summed_over_workers(void **state)
{
    struct fixture *f = *state;
    f->workers[0].connections_open = 4;
    f->workers[1].connections_open = 3;
    f->workers[1].requests_in_flight = 2;
    struct json_doc *doc = read_status(f);
    assert_true(number_at(doc, "connections") == 7);
    assert_true(number_at(doc, "in_flight") == 2);
    assert_true(number_at(doc, "workers") == 2);
    json_doc_free(doc);
}

static void test_status_that_does_not_fit_is_an_error(void **state)
{
    struct fixture *f = *state;
    json_doc_free(read_status(f));
    size_t whole = buf_len(&f->page);
    for (size_t max = 0; max < whole; max += 13) {
        struct buf small;
        buf_init(&small, max);
        assert_int_equal(admin_write_status(&f->in, &small), WEIR_ELIMIT);
        buf_free(&small);
    }
}

static void test_page_is_whole_and_needs_nothing_from_elsewhere(void **state)
{
    struct slice html = admin_page_html();
    assert_true(slice_starts(html, SLICE("<!doctype html>\n")));
    assert_non_null(slice_find(html, SLICE("</html>\n")));
    assert_non_null(slice_find(html, SLICE("/status.json")));
    assert_null(slice_find(html, SLICE("http:")));
    assert_null(slice_find(html, SLICE("https:")));
    assert_null(slice_find(html, SLICE("innerHTML"))); /* names are text, never markup */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_fleet_at_rest_has_nulls_where_nothing_was_measured),
        TEST(test_model_adds_up_its_pools_and_pools_stay_apart),
        TEST(test_replica_shows_what_it_reported),
        TEST(test_process_is_summed_over_workers),
        TEST(test_status_that_does_not_fit_is_an_error),
        TEST(test_page_is_whole_and_needs_nothing_from_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
