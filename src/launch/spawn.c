#include "launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    REPORT_FD = 3, /* where the child says that exec failed; closes by itself when it did not */
    FIRST_OTHER_FD = 4
};

/* Dispositions survive fork, ignored signals even exec: the engine starts with none of ours. */
static void restore_signals(void)
{
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* `output` may be one of the descriptors that are replaced here, so it is duplicated in order. */
static int arrange_descriptors(int output, int report)
{
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(output, STDERR_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 ||
        dup2(null, STDIN_FILENO) < 0)
        return -1;
    if (report != REPORT_FD && dup2(report, REPORT_FD) < 0)
        return -1;
    closefrom(FIRST_OTHER_FD);
    return fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC);
}

static void add_environment(const char *const *entries, const char *mark)
{
    for (; *entries; entries++)
        putenv((char *)*entries); /* replaces; the strings live until exec */
    putenv((char *)mark);
}

/* In the child: becomes the engine, or writes the errno to `report`. */
static _Noreturn void become(const struct wire_command *command, const char *mark, int output,
                             int report, pid_t guard)
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard)
        _exit(127); /* the guard died before the line above could work */
    restore_signals();
    if (arrange_descriptors(output, report) == 0) {
        report = REPORT_FD;
        add_environment((const char *const *)command->environment, mark);
        execvp(command->words[0], (char *const *)command->words);
    }
    int failure = errno;
    if (write(report, &failure, sizeof(failure)) < 0)
        _exit(126);
    _exit(127);
}

/* Waits until the child has become the program: end of file; or has failed: its errno. */
static int read_failure(int report)
{
    int failure = 0;
    ssize_t got;
    do
        got = read(report, &failure, sizeof(failure));
    while (got < 0 && errno == EINTR);
    return got == sizeof(failure) ? failure : 0;
}

static enum weir_err fork_command(const struct wire_command *command, const char *mark, int output,
                                  pid_t *pid, struct error *err)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0)
        return error_set_errno(err, errno, "cannot start '%s': no pipe", command->words[0]);

    pid_t guard = getpid();
    *pid = fork();
    if (*pid == 0)
        become(command, mark, output, report[1], guard);
    int failure = *pid < 0 ? errno : 0;
    close(report[1]);
    if (*pid > 0 && (failure = read_failure(report[0])) != 0)
        waitpid(*pid, NULL, 0);
    close(report[0]);
    if (failure != 0)
        return error_set_errno(err, failure, "cannot start '%s'", command->words[0]);
    return WEIR_OK;
}

enum weir_err spawn(const struct wire_command *command, const char *mark, pid_t *pid,
                    struct error *err)
{
    int output = STDERR_FILENO;
    if (command->log_path[0] != '\0') {
        output =
            open(command->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
        if (output < 0)
            return error_set_errno(err, errno, "cannot write the engine log '%s'",
                                   command->log_path);
    }
    enum weir_err status = fork_command(command, mark, output, pid, err);
    if (output != STDERR_FILENO)
        close(output);
    return status;
}
