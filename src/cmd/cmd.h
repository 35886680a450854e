/*
 * cmd.h - the subcommands of weir: one file each, arguments and calls, no logic.
 *
 * argv[0] is the subcommand's own word. The value returned is the exit status: one of the three
 * below. To add one: src/cmd/NAME.c with `int cmd_NAME(int argc, char **argv)`, its line here, and
 * a row in main.c.
 */
#pragma once

enum {
    CMD_OK = 0,
    CMD_REFUSED = 1, /* understood, and refused or failed; stderr says why */
    CMD_USAGE = 2    /* wrong usage; stderr says what is right */
};

int cmd_check(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_version(int argc, char **argv);
