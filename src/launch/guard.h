/*
 * guard.h - the process that outlives weir by just long enough to end its engines.
 */
#pragma once

/*
 * The life of the guard, in the forked child: serves `sock` (wire.h) until it closes, then ends all
 * that descends from this process, and exits. Single-threaded; knows no configuration.
 */
_Noreturn void guard_main(int sock);
