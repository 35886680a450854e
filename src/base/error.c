#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [WEIR_OK] = "ok",          [WEIR_EAGAIN] = "again",     [WEIR_ECLOSED] = "closed",
    [WEIR_EIO] = "io",         [WEIR_ETIMEOUT] = "timeout", [WEIR_ELIMIT] = "limit",
    [WEIR_ESYNTAX] = "syntax", [WEIR_EINVAL] = "invalid",   [WEIR_ENOTFOUND] = "not-found",
    [WEIR_EEXIST] = "exists",  [WEIR_EBUSY] = "busy",       [WEIR_EUNSUPPORTED] = "unsupported",
};

/* The header promises one line, and the arguments may be somebody else's text. */
static void flatten(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
}

static void fill(struct error *err, enum weir_err code, const char *fmt, va_list args)
{
    char text[sizeof err->text]; /* apart from `err`, whose own text may be an argument */
    vsnprintf(text, sizeof text, fmt, args);
    flatten(text);
    err->code = code;
    memcpy(err->text, text, sizeof text);
    err->file[0] = '\0';
    err->line = 0;
    err->column = 0;
}

enum weir_err error_set(struct error *err, enum weir_err code, const char *fmt, ...)
{
    if (!err)
        return code;
    va_list args;
    va_start(args, fmt);
    fill(err, code, fmt, args);
    va_end(args);
    return code;
}

enum weir_err error_set_errno(struct error *err, int errnum, const char *fmt, ...)
{
    if (!err)
        return WEIR_EIO;
    va_list args;
    va_start(args, fmt);
    fill(err, WEIR_EIO, fmt, args);
    va_end(args);

    char reason[80];
    size_t used = strlen(err->text);
    const char *text = strerror_r(errnum, reason, sizeof reason); /* the GNU form returns text */
    snprintf(err->text + used, sizeof err->text - used, ": %s", text);
    return WEIR_EIO;
}

const char *weir_err_name(enum weir_err code)
{
    if ((size_t)code >= sizeof names / sizeof *names)
        return "unknown";
    return names[code];
}

_Noreturn void weir_bug(const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "weir: bug at %s:%d: ", file, line);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}
