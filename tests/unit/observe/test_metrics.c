#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "observe/metric.h"

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

static struct slice write_page(struct fixture *f)
{
    buf_clear(&f->page);
    assert_int_equal(metrics_write(&f->in, &f->page), WEIR_OK);
    return buf_slice(&f->page);
}

static bool has_line(struct slice page, const char *line)
{
    char text[512];
    int len = snprintf(text, sizeof text, "\n%s\n", line);
    return slice_find(page, slice_of(text, (size_t)len)) != NULL;
}

static void expect_lines(struct fixture *f, const char *const *lines)
{
    struct slice page = write_page(f);
    for (; *lines; lines++)
        if (!has_line(page, *lines))
            fail_msg("missing on the page: %s", *lines);
}

#define EXPECT(f, ...) expect_lines(f, (const char *const[]){__VA_ARGS__, NULL})

static void test_counters_are_summed_over_workers_and_kept_per_pool(void **state)
{
    struct fixture *f = *state;
    struct model *llama = &f->fleet->models[0];
    fixture_serve(llama->pools[0].traffic, 0, OUTCOME_OK, 100, 10, 5);
    fixture_serve(llama->pools[0].traffic, 1, OUTCOME_OK, 600, 60, 5);
    fixture_serve(llama->pools[1].traffic, 1, OUTCOME_FAILED, 100, 10, 5);
    fixture_serve(llama->traffic, 0, OUTCOME_SHED, 0, 0, 1);
    EXPECT(f, "weir_requests_total{model=\"llama\",pool=\"gpu\",outcome=\"ok\"} 2",
           "weir_requests_total{model=\"llama\",pool=\"cpu\",outcome=\"failed\"} 1",
           "weir_requests_total{model=\"llama\",pool=\"\",outcome=\"shed\"} 1",
           "weir_requests_total{model=\"embed\",pool=\"default\",outcome=\"ok\"} 0",
           "weir_offered_requests_total{model=\"llama\",pool=\"gpu\"} 2",
           "weir_good_requests_total{model=\"llama\",pool=\"gpu\"} 1",
           "weir_late_requests_total{model=\"llama\",pool=\"gpu\",promise=\"ttft\"} 1",
           "weir_late_requests_total{model=\"llama\",pool=\"gpu\",promise=\"tpot\"} 1",
           "weir_tokens_total{model=\"llama\",pool=\"gpu\",direction=\"in\"} 20",
           "weir_tokens_total{model=\"llama\",pool=\"gpu\",direction=\"out\"} 10",
           "weir_tokens_total{model=\"llama\",pool=\"gpu\",direction=\"cached\"} 0",
           "weir_good_output_tokens_total{model=\"llama\",pool=\"gpu\"} 5");
}

static void test_goodput_is_per_model_with_its_promise_beside_it(void **state)
{
    struct fixture *f = *state;
    struct model *llama = &f->fleet->models[0];
    for (int i = 0; i < 6; i++)
        fixture_serve(llama->pools[i % 2].traffic, 0, OUTCOME_OK, 100, 10, 5);
    fixture_serve(llama->traffic, 0, OUTCOME_SHED, 0, 0, 1);
    fixture_serve(llama->traffic, 0, OUTCOME_ABANDONED, 0, 0, 1);
    fixture_serve(llama->pools[0].traffic, 0, OUTCOME_OK, 501, 10, 5);
    fixture_sample_after(f, 2);
    EXPECT(f, "weir_goodput_requests_per_second{model=\"llama\",window=\"10s\"} 3",
           "weir_offered_requests_per_second{model=\"llama\",window=\"1m\"} 4",
           "weir_slo_attainment_ratio{model=\"llama\",window=\"5m\"} 0.75",
           "weir_slo_attainment_ratio{model=\"embed\",window=\"5m\"} 1",
           "weir_good_tokens_per_second{model=\"llama\",window=\"10s\"} 15",
           "weir_slo_ttft_seconds{model=\"llama\"} 0.5",
           "weir_slo_tpot_seconds{model=\"llama\"} 0.05");
    assert_null(slice_find(buf_slice(&f->page), SLICE("weir_slo_ttft_seconds{model=\"embed\"")));
}

static void test_histogram_bounds_are_exact_to_the_microsecond(void **state)
{
    struct fixture *f = *state;
    struct traffic *t = f->fleet->models[0].pools[0].traffic;
    histogram_record(&t->shards[0].ttft, 1023);
    histogram_record(&t->shards[0].ttft, 1024);
    histogram_record(&t->shards[1].ttft, 1535);
    histogram_record(&t->shards[1].ttft, 1536);
    histogram_record(&t->shards[1].ttft, 1000000000);
#define TTFT "weir_time_to_first_token_seconds"
#define GPU  "{model=\"llama\",pool=\"gpu\""
    EXPECT(f, TTFT "_bucket" GPU ",le=\"0.001024\"} 1", TTFT "_bucket" GPU ",le=\"0.001536\"} 3",
           TTFT "_bucket" GPU ",le=\"0.002048\"} 4", TTFT "_bucket" GPU ",le=\"268.435456\"} 4",
           TTFT "_bucket" GPU ",le=\"+Inf\"} 5", TTFT "_sum" GPU "} 1000.005118",
           TTFT "_count" GPU "} 5");
}

static void test_all_histogram_bounds_are_cell_edges(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < metric_count; i++) {
        const struct metric *m = &metric_table[i];
        if (m->type != TYPE_HISTOGRAM || m->per != PER_TRAFFIC)
            continue;
        struct metric_buckets b = {0};
        struct metric_subject s = {.in = &f->in, .traffic = f->fleet->models[0].traffic};
        assert_true(m->buckets(&s, 0, &b));
        assert_true(b.bound_count > 10 && b.bound_count <= METRIC_MAX_BOUNDS);
        for (size_t k = 0; k < b.bound_count; k++)
            assert_true(histogram_cell_upper(histogram_cell(b.bounds_us[k] - 1)) ==
                        b.bounds_us[k] - 1);
    }
}

static void test_opentelemetry_histograms_are_per_model_and_exact(void **state)
{
    struct fixture *f = *state;
    struct model *llama = &f->fleet->models[0];
    fixture_serve(llama->pools[0].traffic, 0, OUTCOME_OK, 100, 10, 5);
    fixture_serve(llama->pools[1].traffic, 1, OUTCOME_OK, 101, 10, 5);
    fixture_serve(llama->traffic, 0, OUTCOME_SHED, 0, 0, 1);
#define WHO                                                                                        \
    "{gen_ai_request_model=\"llama\",gen_ai_provider_name=\"weir\",gen_ai_operation_name=\"chat\""
    EXPECT(f, "gen_ai_server_time_to_first_token_seconds_bucket" WHO ",le=\"0.08\"} 0",
           "gen_ai_server_time_to_first_token_seconds_bucket" WHO ",le=\"0.1\"} 1",
           "gen_ai_server_time_to_first_token_seconds_bucket" WHO ",le=\"0.25\"} 2",
           "gen_ai_server_time_to_first_token_seconds_sum" WHO "} 0.201",
           "gen_ai_server_time_per_output_token_seconds_bucket" WHO ",le=\"0.01\"} 2",
           "gen_ai_server_request_duration_seconds_count" WHO "} 2",
           "gen_ai_server_request_duration_seconds_count" WHO ",error_type=\"shed\"} 1");
    struct slice page = buf_slice(&f->page);
    assert_null(slice_find(page, SLICE("error_type=\"failed\"")));
    assert_null(slice_find(page, SLICE("gen_ai_request_model=\"embed\"")));
}

static struct replica *replica_named(struct fixture *f, const char *name)
{
    for (size_t i = 0; i < 2; i++)
        if (strcmp(f->fleet->models[0].pools[0].replicas[i]->name, name) == 0)
            return f->fleet->models[0].pools[0].replicas[i];
    return NULL;
}

static void test_replica_shows_state_load_and_report(void **state)
{
    struct fixture *f = *state;
    struct replica *r = replica_named(f, "http://a:8000");
    r->state = REPLICA_READY;
    r->load.requests = 7;
    r->speed_mtok_s = 52500;
    r->report.taken_ns = f->in.now_ns - 1500 * NS_PER_MS;
    r->report.running = 5;
    r->report.waiting = 2;
    r->report.kv_used_ppm = 250000;
    r->report.kv_tokens = 65536;
    r->report.prefix_queries = 1000;
    r->report.prefix_hits = 400;
    r->health.ejected_until_ns = f->in.now_ns + 1;
#define REPLICA_A "{model=\"llama\",pool=\"gpu\",replica=\"http://a:8000\""
    EXPECT(f, "weir_replica_state" REPLICA_A ",state=\"ready\"} 1",
           "weir_replica_state" REPLICA_A ",state=\"down\"} 0",
           "weir_replica_ejected" REPLICA_A "} 1",
           "weir_replica_requests_in_flight" REPLICA_A "} 7",
           "weir_replica_speed_tokens_per_second" REPLICA_A "} 52.5",
           "weir_replica_report_age_seconds" REPLICA_A "} 1.5",
           "weir_replica_reported_running" REPLICA_A "} 5",
           "weir_replica_reported_waiting" REPLICA_A "} 2",
           "weir_replica_kv_used_ratio" REPLICA_A "} 0.25",
           "weir_replica_kv_size_tokens" REPLICA_A "} 65536",
           "weir_replica_prefix_hit_ratio" REPLICA_A "} 0.4",
           "weir_replica_prefix_queries_tokens_total" REPLICA_A "} 1000",
           "weir_replica_prefix_hits_tokens_total" REPLICA_A "} 400");
}

static void test_replica_that_was_never_asked_has_no_report(void **state)
{
    struct slice page = write_page(*state);
    assert_true(has_line(page, "weir_replica_ejected{model=\"llama\",pool=\"cpu\",replica=\""
                               "http://c:8080\"} 0"));
    assert_null(slice_find(page, SLICE("weir_replica_kv_used_ratio{")));
    assert_null(slice_find(page, SLICE("weir_replica_prefix_hit_ratio{")));
    assert_null(slice_find(page, SLICE("weir_replica_report_age_seconds{")));
    assert_null(slice_find(page, SLICE("weir_replica_speed_tokens_per_second{")));
}

static void test_process_counters_are_summed_over_workers(void **state)
{
    struct fixture *f = *state;
    f->workers[0].connections_accepted = 10;
    f->workers[1].connections_accepted = 5;
    f->workers[0].connections_open = 3;
    f->workers[1].refused_unknown_model = 4;
    f->workers[1].refused_other = 1;
    f->in.access_log_lost = 9;
    EXPECT(f, "weir_connections_accepted_total 15", "weir_connections_open 3",
           "weir_refused_requests_total{reason=\"unknown_model\"} 4",
           "weir_refused_requests_total{reason=\"other\"} 1", "weir_access_log_lost_lines_total 9",
           "weir_config_generation 3", "weir_build_info{version=\"0.1.0\"} 1",
           "weir_uptime_seconds 100", "process_start_time_seconds 1796122487.123");
}

static void test_label_values_are_escaped(void **state)
{
    struct fixture *f = *state;
    traffic_get(f->registry, SLICE("a\"b\\c\nd"), SLICE("p"));
    EXPECT(f, "weir_retries_total{model=\"a\\\"b\\\\c\\nd\",pool=\"p\"} 0");
}

static void test_page_that_does_not_fit_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct slice page = write_page(f);
    size_t steady =
        page.len - page.len / 16; /* process figures differ in length from page to page */
    for (size_t max = 0; max < steady; max += steady / 50) {
        struct buf small;
        buf_init(&small, max);
        assert_int_equal(metrics_write(&f->in, &small), WEIR_ELIMIT);
        buf_free(&small);
    }
}

/* What a scraper insists on: each family once, with help and type before its samples, which follow.
 */
static void test_page_has_the_form_that_scrapers_insist_on(void **state)
{
    struct fixture *f = *state;
    fixture_serve(f->fleet->models[0].pools[0].traffic, 0, OUTCOME_OK, 100, 10, 5);
    struct slice page = write_page(f);
    size_t family = (size_t)-1;
    while (page.len > 0) {
        const char *end = memchr(page.ptr, '\n', page.len);
        assert_non_null(end);
        struct slice line = slice_of(page.ptr, (size_t)(end - page.ptr));
        page = slice_from(page, line.len + 1);
        if (slice_starts(line, SLICE("# HELP "))) {
            family++;
            assert_true(family < metric_count);
            assert_true(slice_starts(slice_from(line, 7), slice_str(metric_table[family].name)));
        } else if (!slice_starts(line, SLICE("# TYPE "))) {
            assert_true(slice_starts(line, slice_str(metric_table[family].name)));
            const char *value = memrchr(line.ptr, ' ', line.len);
            assert_true(value && value[1] >= '0' && value[1] <= '9'); /* never NaN or Inf */
        }
    }
    assert_int_equal(family, metric_count - 1);
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static void test_names_follow_prometheus_conventions(void **state)
{
    for (size_t i = 0; i < metric_count; i++) {
        const struct metric *m = &metric_table[i];
        assert_int_equal(ends_with(m->name, "_total"), m->type == TYPE_COUNTER);
        if (strcmp(m->unit, "seconds") == 0 || strcmp(m->unit, "bytes") == 0 ||
            strcmp(m->unit, "ratio") == 0 || strcmp(m->unit, "per_second") == 0)
            assert_non_null(strstr(m->name, m->unit));
        assert_true(m->help[0] >= 'A' && m->help[0] <= 'Z');
        assert_false(ends_with(m->help, "."));
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(m->name, metric_table[k].name);
    }
}

static void test_reference_has_a_row_per_metric(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(metrics_write_reference(&f->page), WEIR_OK);
    struct slice page = buf_slice(&f->page);
    assert_non_null(slice_find(page, SLICE("| `weir_requests_total` | counter | model, pool, "
                                           "outcome | requests | ")));
    assert_non_null(slice_find(page, SLICE("| `weir_build_info` | gauge | version |  | ")));
    size_t lines = 0;
    for (size_t i = 0; i < page.len; i++)
        lines += page.ptr[i] == '\n';
    assert_int_equal(lines, metric_count + 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_counters_are_summed_over_workers_and_kept_per_pool),
        TEST(test_goodput_is_per_model_with_its_promise_beside_it),
        TEST(test_histogram_bounds_are_exact_to_the_microsecond),
        TEST(test_all_histogram_bounds_are_cell_edges),
        TEST(test_opentelemetry_histograms_are_per_model_and_exact),
        TEST(test_replica_shows_state_load_and_report),
        TEST(test_replica_that_was_never_asked_has_no_report),
        TEST(test_process_counters_are_summed_over_workers),
        TEST(test_label_values_are_escaped),
        TEST(test_page_that_does_not_fit_is_an_error),
        TEST(test_page_has_the_form_that_scrapers_insist_on),
        TEST(test_names_follow_prometheus_conventions),
        TEST(test_reference_has_a_row_per_metric),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
