/*
 * main.c - finds the subcommand. One row per subcommand; its file is src/cmd/NAME.c.
 */
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "cmd/cmd.h"

static int cmd_help(int argc, char **argv);

static const struct command {
    const char *name;
    const char *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"serve", "run the gateway", cmd_serve},
    {"check", "say every mistake of a configuration file", cmd_check},
    {"version", "print the version", cmd_version},
    {"help", "print this, or the help of a command", cmd_help},
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static void print_help(FILE *out)
{
    fputs("usage: weir COMMAND [ARGUMENT]...\n\n"
          "weir is a gateway for LLM inference engines.\n\n"
          "commands:\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n'weir COMMAND --help' says more. To begin without a file:\n"
          "  weir serve --listen 127.0.0.1:8080 --backends http://127.0.0.1:8000\n",
          out);
}

static int refuse_unknown(const char *word)
{
    const char *names[COMMAND_COUNT];
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i].name;
    const char *near = nearest_word(slice_str(word), names, COMMAND_COUNT);

    fprintf(stderr, "weir: there is no command '%s'.", word);
    if (near)
        fprintf(stderr, " Did you mean '%s'?", near);
    fputs(" 'weir --help' lists them all.\n", stderr);
    return CMD_USAGE;
}

static int cmd_help(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        print_help(stdout);
        return CMD_OK;
    }
    const struct command *command = find_command(argv[1]);
    if (!command)
        return refuse_unknown(argv[1]);
    if (command->run == cmd_help) {
        print_help(stdout);
        return CMD_OK;
    }
    char help_flag[] = "--help";
    char *args[] = {argv[1], help_flag, NULL};
    return command->run(2, args);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CMD_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    else if (strcmp(word, "--version") == 0)
        word = "version";

    const struct command *command = find_command(word);
    return command ? command->run(argc - 1, argv + 1) : refuse_unknown(word);
}
