#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "version.h"

int cmd_version(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts("usage: weir version\n\nPrints the version and exits.");
        return CMD_OK;
    }
    if (argc != 1) {
        fprintf(stderr, "weir version: takes no argument, got '%s'\n", argv[1]);
        return CMD_USAGE;
    }
    puts("weir " WEIR_VERSION);
    return CMD_OK;
}
