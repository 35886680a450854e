#define _GNU_SOURCE 1 /* explicit_bzero */
#include "config/secret.h"

#include <stdlib.h>
#include <string.h>

#include "config/file.h"

static void wipe(void *secret)
{
    explicit_bzero(secret, strlen(secret));
}

static const char *keep_secret(struct slice text, struct arena *arena)
{
    char *copy = arena_strdup(arena, text);
    arena_on_reset(arena, wipe, copy);
    return copy;
}

static bool is_white(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct slice trim(struct slice s)
{
    while (s.len && is_white(s.ptr[0]))
        s = slice_from(s, 1);
    while (s.len && is_white(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* A control character inside would let the key forge headers. */
static const char *accept(struct slice text, const char *source, const char *name,
                          struct arena *arena, struct complaint *why)
{
    text = trim(text);
    if (text.len == 0) {
        complain(why, "the %s `%s` is empty", source, name);
        advise(why, "put the key there");
        return NULL;
    }
    for (size_t i = 0; i < text.len; i++) {
        if ((unsigned char)text.ptr[i] < 0x20 || text.ptr[i] == 0x7f) {
            complain(why, "the %s `%s` holds more than one line", source, name);
            advise(why, "it must hold the key and nothing else");
            return NULL;
        }
    }
    return keep_secret(text, arena);
}

const char *secret_from_file(const char *path, struct arena *arena, struct complaint *why)
{
    struct buf text;
    struct error err = {0};
    const char *secret = NULL;
    buf_init(&text, SECRET_MAX);
    if (file_read(path, true, &text, &err) == WEIR_OK) {
        secret = accept(buf_slice(&text), "key file", path, arena, why);
    } else {
        complain(why, "the key file `%s` %s", path, err.text);
        advise(why, "it must be a file with the key and nothing else that weir's user may read");
    }
    if (text.ptr)
        explicit_bzero(text.ptr, text.cap);
    buf_free(&text);
    return secret;
}

const char *secret_from_environment(const char *name, struct arena *arena, struct complaint *why)
{
    const char *value = getenv(name);
    if (!value) {
        complain(why, "the environment variable `%s` is not set", name);
        advise(why, "set it where weir is started, or use api_key_file");
        return NULL;
    }
    if (strlen(value) > SECRET_MAX) {
        complain(why, "the environment variable `%s` is longer than %d bytes", name, SECRET_MAX);
        return NULL;
    }
    return accept(slice_str(value), "environment variable", name, arena, why);
}

const char *secret_copy(const char *secret, struct arena *arena)
{
    return secret ? keep_secret(slice_str(secret), arena) : NULL;
}
