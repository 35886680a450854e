/*
 * words.h - the engine and policy words for config_load(), from their tables.
 */
#pragma once

#include "config/config.h"

/* Static lifetime. Call before threads are started. */
const struct config_words *cmd_words(void);
