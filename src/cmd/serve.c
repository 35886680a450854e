#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/words.h"
#include "config/config.h"
#include "gateway/backends.h"
#include "gateway/control.h"

static const char help[] =
    "usage: weir serve --config FILE\n"
    "       weir serve --backends URL[,URL...] [--listen ADDRESS[,ADDRESS...]]\n"
    "\n"
    "Runs the gateway. With a file it serves what the file says; without one it asks each backend\n"
    "what it is (vLLM, SGLang, TensorRT-LLM, llama.cpp, anything OpenAI-compatible) and which "
    "models\n"
    "it has, and serves those.\n"
    "\n"
    "  --config FILE         configuration; `weir check FILE` says every mistake in it\n"
    "  --backends URLS       engines, with commas between: "
    "http://10.0.0.1:8000,http://10.0.0.2:8000\n"
    "  --listen ADDRESSES    for clients: 127.0.0.1:8080 (default), [::1]:8080, *:8080, "
    "unix:/path\n"
    "  --admin-listen ADDR   for the admin API and /metrics: 127.0.0.1:9090 (default), or off\n"
    "  --workers N           threads that serve; default: one per CPU\n"
    "  --policy WORD         routing policy; `weir check --list policies` names them\n"
    "  --access-log FILE     one line per request; - is standard output\n"
    "  --wait SECONDS        how long to ask backends that are still starting; default 60\n"
    "  --print-config        print the configuration that says the same, and exit\n"
    "\n"
    "Signals: HUP reads the file again (a bad one changes nothing), USR1 opens the access log "
    "again,\n"
    "TERM and INT drain; a second one ends at once.\n"
    "\n"
    "Try it:\n"
    "  weir serve --backends http://127.0.0.1:8000\n"
    "  curl http://127.0.0.1:8080/v1/models\n";

struct arguments {
    const char *file;
    struct config_flags flags;
    bool has_flags; /* one that a file would answer */
    bool print_config;
    unsigned wait_s;
};

static int refuse(const char *text, const char *word)
{
    fprintf(stderr, "weir serve: %s%s%s. 'weir serve --help' says more.\n", text, *word ? ": " : "",
            word);
    return CMD_USAGE;
}

static bool read_number(const char *text, unsigned max, unsigned *out)
{
    uint64_t value;
    if (!slice_to_u64(slice_str(text), &value) || value > max) {
        return false;
    }
    *out = (unsigned)value;
    return true;
}

enum {
    OPT_HELP = 'h',
    OPT_CONFIG = 'c',
    OPT_BACKENDS = 256,
    OPT_LISTEN,
    OPT_ADMIN,
    OPT_WORKERS,
    OPT_POLICY,
    OPT_ACCESS_LOG,
    OPT_WAIT,
    OPT_PRINT
};

static const struct option options[] = {
    {"help", no_argument, NULL, OPT_HELP},
    {"config", required_argument, NULL, OPT_CONFIG},
    {"backends", required_argument, NULL, OPT_BACKENDS},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"admin-listen", required_argument, NULL, OPT_ADMIN},
    {"workers", required_argument, NULL, OPT_WORKERS},
    {"policy", required_argument, NULL, OPT_POLICY},
    {"access-log", required_argument, NULL, OPT_ACCESS_LOG},
    {"wait", required_argument, NULL, OPT_WAIT},
    {"print-config", no_argument, NULL, OPT_PRINT},
    {NULL, 0, NULL, 0},
};

/* CMD_OK, or the exit status; -1: help was printed. */
static int read_arguments(int argc, char **argv, struct arguments *a)
{
    optind = 1;
    for (int o; (o = getopt_long(argc, argv, "hc:", options, NULL)) != -1;) {
        const char **text = NULL;
        switch (o) {
        case OPT_HELP:
            fputs(help, stdout);
            return -1;
        case OPT_CONFIG:
            a->file = optarg;
            continue;
        case OPT_PRINT:
            a->print_config = true;
            continue;
        case OPT_WAIT:
            if (!read_number(optarg, 3600, &a->wait_s)) {
                return refuse("--wait takes seconds, 0 to 3600", optarg);
            }
            continue;
        case OPT_WORKERS:
            if (!read_number(optarg, 1024, &a->flags.workers) || a->flags.workers == 0) {
                return refuse("--workers takes a number, 1 to 1024", optarg);
            }
            a->has_flags = true;
            continue;
        case OPT_BACKENDS:
            text = &a->flags.backends;
            break;
        case OPT_LISTEN:
            text = &a->flags.listen;
            break;
        case OPT_ADMIN:
            text = &a->flags.admin_listen;
            break;
        case OPT_POLICY:
            text = &a->flags.policy;
            break;
        case OPT_ACCESS_LOG:
            text = &a->flags.access_log;
            break;
        default:
            return CMD_USAGE; /* getopt has said why */
        }
        *text = optarg;
        a->has_flags = true;
    }
    if (optind < argc && !a->file && !a->has_flags) {
        a->file = argv[optind++];
    }
    if (optind < argc) {
        return refuse("an argument that is not understood", argv[optind]);
    }
    if (a->file && a->has_flags) {
        return refuse("with --config everything else is written in the file", "");
    }
    if (!a->file && !a->flags.backends) {
        return refuse("say what to serve, with --config FILE or --backends URL", "");
    }
    return CMD_OK;
}

static struct config *read_config(const struct arguments *a)
{
    struct config_errors errors;
    config_errors_init(&errors);
    struct config *config = a->file ? config_load(a->file, cmd_words(), &errors)
                                    : config_from_flags(&a->flags, cmd_words(), &errors);
    if (!config) {
        struct slice report = buf_slice(&errors.report);
        fprintf(stderr, "%.*s", SLICE_ARG(report));
    }
    config_errors_free(&errors);
    return config;
}

/* Replaces the config by one whose backends are models. */
static struct config *ask_backends(struct config *config, unsigned wait_s)
{
    if (config->backend_count == 0) {
        return config;
    }
    log_setup(config->log_level, config->log_json);
    struct error err;
    struct config *full = backends_discover(config, wait_s * NS_PER_S, &err);
    if (!full) {
        fprintf(stderr, "weir serve: no backend answers. %s\n", err.text);
    }
    config_free(config);
    return full;
}

static int print_config(struct config *config)
{
    struct buf out;
    buf_init(&out, 64 * 1024 * 1024);
    bool is_done = config_show(config, &out) == WEIR_OK;
    struct slice text = buf_slice(&out);
    is_done = is_done && fwrite(text.ptr, 1, text.len, stdout) == text.len && fflush(stdout) == 0;
    buf_free(&out);
    config_free(config);
    return is_done ? CMD_OK : CMD_REFUSED;
}

int cmd_serve(int argc, char **argv)
{
    struct arguments a = {.wait_s = 60};
    int status = read_arguments(argc, argv, &a);
    if (status != CMD_OK) {
        return status < 0 ? CMD_OK : status;
    }
    struct config *config = read_config(&a);
    config = config ? ask_backends(config, a.wait_s) : NULL;
    if (!config) {
        return CMD_REFUSED;
    }
    if (a.print_config) {
        return print_config(config);
    }
    struct error err = {0};
    enum weir_err result = control_run(
        &(struct control_options){
            .config = config, .words = cmd_words(), .started_wall_ns = clock_wall_ns()},
        &err);
    if (result != WEIR_OK) {
        fprintf(stderr, "weir serve: %s\n", err.text);
        return CMD_REFUSED;
    }
    return CMD_OK;
}
