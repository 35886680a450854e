/*
 * Real processes, small ones: what must hold is that nothing is left, in every way of ending. The
 * test is a sub-reaper, so whatever escaped would show below it. It waits for conditions, up to a
 * bound that only a failure reaches; back-off runs on time that is handed in.
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "config/config.h"
#include "launch/launch.h"
#include "launch/processes.h"

enum { TICK_MS = 5, TICKS_MAX = 6000 }; /* half a minute */

struct watch {
    struct launcher *launcher;
    uint64_t now_ns;
    struct launch_event last; /* of the engine with id 1 */
    char reason[256];
    enum weir_err status;
};

static void on_event(void *ctx, const struct launch_event *event)
{
    struct watch *w = ctx;
    if (event->id != 1)
        return;
    w->last = *event;
    snprintf(w->reason, sizeof(w->reason), "%s", event->reason ? event->reason : "");
}

static void pump(struct watch *w)
{
    w->status = launcher_pump(w->launcher, w->now_ns, on_event, w);
}

static void wait_state(struct watch *w, enum launch_state state, bool has_pid)
{
    for (int i = 0; i < TICKS_MAX; i++) {
        pump(w);
        if (w->last.state == state && (w->last.pid != 0) == has_pid)
            return;
        poll(NULL, 0, TICK_MS);
    }
    fail_msg("no state %s; it is %s", launch_state_name(state), launch_state_name(w->last.state));
}

static size_t count_below(bool guard_too)
{
    struct process_list below = {0};
    size_t count = 0;
    processes_below(getpid(), &below);
    for (size_t i = 0; i < below.count; i++)
        if (below.items[i].state != 'Z' && (guard_too || below.items[i].parent != getpid()))
            count++;
    process_list_free(&below);
    return count;
}

static void wait_below(size_t expected, bool guard_too)
{
    size_t count = 0;
    for (int i = 0; i < TICKS_MAX; i++) {
        count = count_below(guard_too);
        if (count == expected)
            return;
        poll(NULL, 0, TICK_MS);
    }
    fail_msg("%zu processes, expected %zu", count, expected);
}

static pid_t guard_pid(void)
{
    struct process_list below = {0};
    pid_t guard = 0;
    processes_below(getpid(), &below);
    for (size_t i = 0; i < below.count; i++)
        if (below.items[i].parent == getpid() && below.items[i].state != 'Z')
            guard = below.items[i].pid;
    process_list_free(&below);
    return guard;
}

static void run_script(struct watch *w, uint32_t id, const char *script, const char *log_dir,
                       uint64_t stop_timeout_ns)
{
    const char *command[] = {"sh", "-c", script, NULL};
    const char *environment[] = {"ENGINE_PORT={port}", NULL};
    struct config_launch launch = {
        .command = command,
        .environment = environment,
        .log_dir = log_dir,
        .stop_timeout_ns = stop_timeout_ns,
    };
    struct error err = {0};
    if (launcher_run(w->launcher, id, &launch, "org/m", 2, 4711, &err) != WEIR_OK)
        fail_msg("%s", err.text);
}

static void start(struct watch *w)
{
    struct error err = {0};
    *w = (struct watch){.now_ns = 1000 * NS_PER_S};
    assert_int_equal(launcher_start(&w->launcher, &err), WEIR_OK);
}

static const uint64_t patient_ns = 60 * NS_PER_S; /* longer than any test waits */
static const uint64_t hasty_ns = 50 * NS_PER_MS;

/* A shell that lets SIGTERM pass by, a child in its group, and a grandchild that left group and
 * session. The engine counts as three processes. */
static const char stubborn[] = "trap '' TERM; setsid sleep 1000 & sleep 1000 & "
                               "while :; do wait; sleep 0.01; done";

/* -- what the engine gets -- */

static void read_log(const char *dir, char *out, size_t size)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/org_m-2.log", dir);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t got = read(fd, out, size - 1);
    assert_true(got >= 0);
    out[got] = '\0';
    close(fd);
    unlink(path);
}

static void test_engine_gets_its_words_and_a_log_and_no_descriptor(void **state)
{
    char dir[] = "/tmp/weir-launch-XXXXXX", logs[64], text[256];
    struct watch w;
    assert_non_null(mkdtemp(dir));
    snprintf(logs, sizeof(logs), "%s/logs", dir);
    assert_int_equal(dup2(STDERR_FILENO, 9), 9); /* stays open across exec unless it is closed */
    start(&w);
    run_script(&w, 1,
               "echo {model} {index} {port} $ENGINE_PORT {x}; echo err >&2; "
               "[ -e /proc/self/fd/9 ] && echo open; exit 3",
               logs, patient_ns);
    wait_state(&w, LAUNCH_BACKOFF, false);
    assert_int_equal(WEXITSTATUS(w.last.exit_status), 3);
    read_log(logs, text, sizeof(text));
    assert_string_equal(text, "org/m 2 4711 4711 {x}\nerr\n");
    launcher_end(w.launcher);
    close(9);
    rmdir(logs);
    rmdir(dir);
}

static void test_a_program_that_is_missing_is_named(void **state)
{
    const char *command[] = {"/no/such/engine", NULL};
    struct config_launch launch = {.command = command};
    struct watch w;
    start(&w);
    assert_int_equal(launcher_run(w.launcher, 1, &launch, "m", 0, 1, NULL), WEIR_OK);
    wait_state(&w, LAUNCH_BACKOFF, false);
    assert_non_null(strstr(w.reason, "/no/such/engine"));
    assert_non_null(strstr(w.reason, "No such file"));
    launcher_end(w.launcher);
}

static void test_an_id_in_use_and_a_command_too_long_are_refused(void **state)
{
    static char word[70000];
    memset(word, 'x', sizeof(word) - 1);
    const char *command[] = {"sleep", "1000", NULL}, *endless[] = {"echo", word, NULL};
    struct config_launch launch = {.command = command}, too_long = {.command = endless};
    struct watch w;
    start(&w);
    assert_int_equal(launcher_run(w.launcher, 1, &launch, "m", 0, 1, NULL), WEIR_OK);
    assert_int_equal(launcher_run(w.launcher, 1, &launch, "m", 0, 1, NULL), WEIR_EEXIST);
    assert_int_equal(launcher_run(w.launcher, 2, &too_long, "m", 0, 1, NULL), WEIR_ELIMIT);
    launcher_end(w.launcher);
    assert_int_equal(count_below(true), 0);
}

/* -- life -- */

static void test_an_engine_that_ends_comes_back_after_growing_pauses(void **state)
{
    struct watch w;
    start(&w);
    run_script(&w, 1, "exit 1", NULL, patient_ns);
    for (unsigned pause_s = 1, round = 0; round < 3; round++, pause_s *= 2) {
        wait_state(&w, LAUNCH_BACKOFF, false);
        assert_int_equal(w.last.restarts, round);
        assert_int_equal(w.last.retry_ns, pause_s * NS_PER_S);
        w.last.restarts = UINT32_MAX;
        w.now_ns += pause_s * NS_PER_S - 1;
        pump(&w);
        assert_int_equal(w.last.restarts, UINT32_MAX); /* too early: nothing was told */
        w.now_ns += 1;
        w.last.state = LAUNCH_STARTING;
    }
    launcher_end(w.launcher);
}

static void wait_for_output(const char *path)
{
    struct stat st;
    for (int i = 0; i < TICKS_MAX; i++) {
        if (stat(path, &st) == 0 && st.st_size > 0)
            return;
        poll(NULL, 0, TICK_MS);
    }
    fail_msg("nothing was written to %s", path);
}

static void test_stop_is_sigterm_and_the_engine_is_not_started_again(void **state)
{
    char dir[] = "/tmp/weir-launch-XXXXXX", path[64];
    struct watch w;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/org_m-2.log", dir);
    start(&w);
    run_script(&w, 1, "trap 'exit 7' TERM; echo; while :; do sleep 0.01; done", dir, patient_ns);
    wait_state(&w, LAUNCH_STARTING, true);
    launcher_ready(w.launcher, 1);
    wait_state(&w, LAUNCH_RUNNING, true);
    wait_for_output(path); /* the trap stands */
    launcher_stop(w.launcher, 1);
    wait_state(&w, LAUNCH_STOPPED, false);
    assert_int_equal(WEXITSTATUS(w.last.exit_status), 7);
    w.now_ns += 3600 * NS_PER_S;
    pump(&w);
    assert_int_equal(w.last.state, LAUNCH_STOPPED);
    assert_int_equal(count_below(false), 0);
    launcher_end(w.launcher);
    unlink(path);
    rmdir(dir);
}

static void test_stop_in_backoff_needs_no_process(void **state)
{
    struct watch w;
    start(&w);
    run_script(&w, 1, "exit 1", NULL, patient_ns);
    wait_state(&w, LAUNCH_BACKOFF, false);
    launcher_stop(w.launcher, 1);
    wait_state(&w, LAUNCH_STOPPED, false);
    run_script(&w, 1, "exec sleep 1000", NULL, patient_ns); /* the id is free again */
    wait_state(&w, LAUNCH_STARTING, true);
    launcher_end(w.launcher);
}

static void test_an_engine_that_does_not_get_ready_is_started_anew(void **state)
{
    const char *command[] = {"sleep", "1000", NULL};
    struct config_launch launch = {
        .command = command,
        .ready_timeout_ns = 100 * NS_PER_S,
        .stop_timeout_ns = patient_ns,
    };
    struct watch w;
    start(&w);
    assert_int_equal(launcher_run(w.launcher, 1, &launch, "m", 0, 1, NULL), WEIR_OK);
    wait_state(&w, LAUNCH_STARTING, true);
    int first = w.last.pid;
    w.now_ns += launch.ready_timeout_ns - 1;
    pump(&w);
    assert_int_equal(w.last.state, LAUNCH_STARTING);
    w.now_ns += 1;
    wait_state(&w, LAUNCH_BACKOFF, false);
    assert_string_equal(w.reason, "was not ready in time");
    w.now_ns += w.last.retry_ns;
    wait_state(&w, LAUNCH_STARTING, true);
    assert_int_not_equal(w.last.pid, first);

    launcher_ready(w.launcher, 1);
    wait_state(&w, LAUNCH_RUNNING, true);
    w.now_ns += 10 * launch.ready_timeout_ns; /* once ready, it has all the time */
    pump(&w);
    assert_int_equal(w.last.state, LAUNCH_RUNNING);
    launcher_end(w.launcher);
}

static void test_a_late_engine_that_is_stopped_stays_stopped(void **state)
{
    const char *command[] = {"sleep", "1000", NULL};
    struct config_launch launch = {
        .command = command, .ready_timeout_ns = NS_PER_S, .stop_timeout_ns = patient_ns};
    struct watch w;
    start(&w);
    assert_int_equal(launcher_run(w.launcher, 1, &launch, "m", 0, 1, NULL), WEIR_OK);
    wait_state(&w, LAUNCH_STARTING, true);
    w.now_ns += 2 * NS_PER_S;
    pump(&w);
    assert_int_equal(w.last.state, LAUNCH_STOPPING);
    launcher_stop(w.launcher, 1);
    wait_state(&w, LAUNCH_STOPPED, false);
    launcher_end(w.launcher);
}

/* -- nothing is left -- */

static void test_an_engine_that_ignores_sigterm_is_killed_with_all_it_forked(void **state)
{
    struct watch w;
    start(&w);
    run_script(&w, 1, stubborn, NULL, hasty_ns);
    wait_state(&w, LAUNCH_STARTING, true);
    wait_below(3, false);
    launcher_stop(w.launcher, 1);
    wait_state(&w, LAUNCH_STOPPED, false);
    assert_int_equal(WTERMSIG(w.last.exit_status), SIGKILL);
    assert_int_equal(count_below(false), 0);
    launcher_end(w.launcher);
}

static void test_what_an_engine_left_is_ended_before_it_starts_again(void **state)
{
    struct watch w;
    start(&w);
    run_script(&w, 1, "setsid sh -c 'sleep 1000 & sleep 1000' & sleep 0.05; exit 3", NULL,
               patient_ns);
    run_script(&w, 2, "exec sleep 1000", NULL,
               patient_ns); /* an engine that is none of this business */
    wait_state(&w, LAUNCH_BACKOFF, false);
    assert_int_equal(WEXITSTATUS(w.last.exit_status), 3);
    assert_int_equal(count_below(false), 1);
    launcher_end(w.launcher);
    assert_int_equal(count_below(true), 0);
}

static void test_end_leaves_nothing(void **state)
{
    struct watch w;
    start(&w);
    run_script(&w, 1, stubborn, NULL, hasty_ns);
    run_script(&w, 2, "exec sleep 1000", NULL, hasty_ns);
    wait_below(4, false);
    launcher_end(w.launcher);
    assert_int_equal(count_below(true), 0);
}

static void test_end_ends_what_hid_its_mark(void **state)
{
    struct watch w;
    start(&w);
    run_script(&w, 1, "setsid env -i sleep 1000 & exec sleep 1000", NULL, hasty_ns);
    wait_below(2, false);
    launcher_end(w.launcher);
    assert_int_equal(count_below(true), 0);
}

/* A weir of its own that starts engines and then ends in its own way. */
static void lose_weir(bool by_kill)
{
    pid_t weir = fork();
    if (weir == 0) {
        struct watch w;
        start(&w);
        run_script(&w, 1, stubborn, NULL, hasty_ns);
        run_script(&w, 2, "exec sleep 1000", NULL, hasty_ns);
        wait_below(4, false);
        if (!by_kill)
            _exit(0);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(weir, &status, 0), weir);
    assert_true(by_kill ? WIFSIGNALED(status) : WIFEXITED(status));
    wait_below(0, true);
}

static void test_weir_killed_leaves_nothing(void **state)
{
    lose_weir(true);
}

static void test_weir_exiting_without_a_word_leaves_nothing(void **state)
{
    lose_weir(false);
}

static void test_guard_killed_leaves_nothing_and_is_reported(void **state)
{
    struct watch w;
    start(&w);
    run_script(&w, 1, stubborn, NULL, patient_ns);
    wait_state(&w, LAUNCH_STARTING, true);
    wait_below(3, false);
    kill(guard_pid(), SIGKILL);
    wait_state(&w, LAUNCH_STOPPED, false);
    assert_int_equal(w.status, WEIR_ECLOSED);
    assert_int_equal(count_below(true), 0);
    const char *command[] = {"true", NULL};
    struct config_launch launch = {.command = command};
    assert_int_equal(launcher_run(w.launcher, 1, &launch, "m", 0, 1, NULL), WEIR_ECLOSED);
    launcher_end(w.launcher);
}

static void test_guard_takes_its_orders_from_weir_alone(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct watch w;
    start(&w);
    run_script(&w, 1, "exec sleep 1000", NULL, patient_ns);
    wait_state(&w, LAUNCH_STARTING, true);
    pid_t engine = w.last.pid;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        kill(guard_pid(), signals[i]);
    assert_int_not_equal(getpgid(guard_pid()), getpgid(0)); /* Ctrl-C goes to the whole group */
    launcher_stop(w.launcher, 1);
    wait_state(&w, LAUNCH_STOPPED, false);
    assert_int_equal(w.status, WEIR_OK);
    assert_true(engine != 0 && WTERMSIG(w.last.exit_status) == SIGTERM);
    launcher_end(w.launcher);
}

static void test_free_ports_differ(void **state)
{
    uint16_t first = launcher_free_port(), second = launcher_free_port();
    assert_int_not_equal(first, 0);
    assert_int_not_equal(second, 0);
    assert_int_not_equal(first, second);
}

/* A test that failed halfway must not make the next ones fail. */
static int end_leftovers(void **state)
{
    struct process_list below = {0};
    do {
        processes_below(getpid(), &below);
        for (size_t i = 0; i < below.count; i++)
            kill(below.items[i].pid, SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
    } while (below.count > 0);
    process_list_free(&below);
    return 0;
}

#define launch_test(test) cmocka_unit_test_teardown(test, end_leftovers)

int main(void)
{
    const struct CMUnitTest tests[] = {
        launch_test(test_engine_gets_its_words_and_a_log_and_no_descriptor),
        launch_test(test_a_program_that_is_missing_is_named),
        launch_test(test_an_id_in_use_and_a_command_too_long_are_refused),
        launch_test(test_an_engine_that_ends_comes_back_after_growing_pauses),
        launch_test(test_stop_is_sigterm_and_the_engine_is_not_started_again),
        launch_test(test_stop_in_backoff_needs_no_process),
        launch_test(test_an_engine_that_does_not_get_ready_is_started_anew),
        launch_test(test_a_late_engine_that_is_stopped_stays_stopped),
        launch_test(test_an_engine_that_ignores_sigterm_is_killed_with_all_it_forked),
        launch_test(test_what_an_engine_left_is_ended_before_it_starts_again),
        launch_test(test_end_leaves_nothing),
        launch_test(test_end_ends_what_hid_its_mark),
        launch_test(test_weir_killed_leaves_nothing),
        launch_test(test_weir_exiting_without_a_word_leaves_nothing),
        launch_test(test_guard_killed_leaves_nothing_and_is_reported),
        launch_test(test_guard_takes_its_orders_from_weir_alone),
        launch_test(test_free_ports_differ),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
