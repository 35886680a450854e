/*
 * fuzz_json_scan.c - the body scanner against the JSON parser: one verdict, the same members.
 *
 * The parser is older and more used than the scanner; where they differ, weir would edit or
 * authorise something else than what the engine reads. Known differences, none of them counted
 * here: the scanner takes objects only, and the parser has a maximum of 64 MiB.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#include "../unit/base/json_scan_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *difference = json_scan_disagreement(slice_of((const char *)data, size));
    if (difference)
        WEIR_BUG("%s", difference);

    /* Any bytes at all: they must only stay in bounds and agree with each other. */
    struct slice raw = slice_of((const char *)data, size);
    char *plain = heap_alloc(size);
    size_t len = json_unescape(raw, plain);
    if (len > size || !json_spells(raw, slice_of(plain, len)))
        WEIR_BUG("json_unescape and json_spells differ");
    heap_free(plain);
    return 0;
}
