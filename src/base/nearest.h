/*
 * nearest.h - the word that somebody probably meant.
 */
#pragma once

#include <stddef.h>

#include "base/slice.h"

/*
 * The candidate with the fewest edits (insert, delete, replace, swap of neighbours; ASCII case is
 * ignored) from `word`, or NULL when none is near enough to be worth suggesting. Ties go to the
 * first. Words longer than 63 bytes are never near. Borrowed from `candidates`.
 */
const char *nearest_word(struct slice word, const char *const *candidates, size_t count);
