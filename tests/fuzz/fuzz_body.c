/*
 * fuzz_body.c - request bodies: whatever is accepted is JSON for the strict parser too, and after
 * the edits says exactly what it should (edited_body.h); whatever is refused is refused in words.
 *
 * Input: one byte that picks surface and edits, then the body.
 */
#include <stdint.h>

#include "../unit/dialects/edited_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"", "m", "org/model:tag", "a \"quoted\" \\ name"};
    if (size < 1)
        return 0;
    enum surface surface = (enum surface)(data[0] % SURFACE_MODELS);
    struct slice name = slice_str(names[data[0] >> 5 & 3]);
    struct slice body = slice_of((const char *)data + 1, size - 1);

    struct arena arena;
    struct body_info info;
    struct api_error why = {.kind = API_ERROR_KINDS};
    arena_init(&arena, 1024, 1 << 20);
    if (body_inspect(surface, body, &arena, &info, &why)) {
        if (api_error_status(&why, false) != 400 || !why.text[0])
            WEIR_BUG("refused without words");
    } else if (!edited_body_holds(surface, body, &info, name, data[0] >> 7, &arena)) {
        WEIR_BUG("the edited body says something else");
    }
    arena_free(&arena);
    return 0;
}
