#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/processes.h"

static void test_a_command_name_cannot_forge_the_fields_behind_it(void **state)
{
    struct process p;
    assert_true(process_parse_stat(SLICE("812 (sh) S 7 800 800 0 -1"), &p));
    assert_int_equal(p.pid, 812);
    assert_int_equal(p.state, 'S');
    assert_int_equal(p.parent, 7);
    assert_int_equal(p.group, 800);

    assert_true(process_parse_stat(SLICE("9 (x) Z 1 1 1) R 2 3 3 0 -1"), &p));
    assert_int_equal(p.state, 'R');
    assert_int_equal(p.parent, 2);
    assert_int_equal(p.group, 3);
}

static void test_lines_that_are_cut_are_refused(void **state)
{
    static const char whole[] = "812 (sh) S 7 800 ";
    struct process p;
    for (size_t len = 0; len < strlen("812 (sh) S 7 8"); len++)
        assert_false(process_parse_stat(slice_of(whole, len), &p));
    assert_false(process_parse_stat(SLICE("x (sh) S 7 800 "), &p));
    assert_false(process_parse_stat(SLICE("812 (sh) S -7 800 "), &p));
}

static void test_the_parent_has_this_process_below_it(void **state)
{
    struct process_list below = {0};
    bool found = false;
    processes_below(getppid(), &below);
    for (size_t i = 0; i < below.count; i++) {
        assert_int_not_equal(below.items[i].pid, getppid());
        found = found || below.items[i].pid == getpid();
    }
    assert_true(found);
    process_list_free(&below);
}

/* /proc shows the environment as it was at exec, so the test looks at what was there already. */
static void test_only_whole_environment_entries_count(void **state)
{
    const char *entry = NULL;
    for (char **e = environ; *e && !entry; e++)
        if (strlen(*e) > 2 && strlen(*e) < PROCESS_ENTRY_MAX)
            entry = *e;
    assert_non_null(entry);

    char cut[PROCESS_ENTRY_MAX + 1];
    snprintf(cut, sizeof(cut), "%.*s", (int)strlen(entry) - 1, entry);
    assert_int_equal(process_environment(getpid(), entry), ENVIRONMENT_HAS);
    assert_int_equal(process_environment(getpid(), cut), ENVIRONMENT_LACKS);
    assert_int_equal(process_environment(getpid(), entry + 1), ENVIRONMENT_LACKS);
    assert_int_equal(process_environment(getpid(), "WEIR_NO_SUCH=1"), ENVIRONMENT_LACKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_command_name_cannot_forge_the_fields_behind_it),
        cmocka_unit_test(test_lines_that_are_cut_are_refused),
        cmocka_unit_test(test_the_parent_has_this_process_below_it),
        cmocka_unit_test(test_only_whole_environment_entries_count),
    };
    return cmocka_run_group_tests_name("processes", tests, NULL, NULL);
}
