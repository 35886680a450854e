/*
 * error.h - how a function says that it failed.
 *
 * Functions that can fail return `enum weir_err`; WEIR_OK is 0. Detail for people goes into a
 * `struct error` that the caller supplies (it may pass NULL when nobody will read it).
 * What traffic can cause is an event or a state, never an error that is logged as one.
 */
#pragma once

#include <stdarg.h>
#include <stdint.h>

#define WEIR_MUST_USE          __attribute__((warn_unused_result))
#define WEIR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

enum weir_err {
    WEIR_OK = 0,
    WEIR_EAGAIN,      /* not now; wait for the event and call again */
    WEIR_ECLOSED,     /* the peer closed */
    WEIR_EIO,         /* the system refused; `struct error` says what and why */
    WEIR_ETIMEOUT,    /* a bound in time was reached */
    WEIR_ELIMIT,      /* a bound in size, depth or count was reached */
    WEIR_ESYNTAX,     /* bytes that do not follow their grammar */
    WEIR_EINVAL,      /* well formed, but not allowed here */
    WEIR_ENOTFOUND,   /* no such thing */
    WEIR_EEXIST,      /* there is one already */
    WEIR_EBUSY,       /* the resource is taken */
    WEIR_EUNSUPPORTED /* known, but not by this build or engine */
};

/* Where a mistake stands, for files that people write. line and column are 1-based; 0: unknown. */
struct error {
    enum weir_err code;
    char text[200]; /* one sentence, no newline, always terminated */
    char file[200];
    uint32_t line;
    uint32_t column;
};

/* Fills `err` (may be NULL) and returns `code`, so that a failing function ends in one line. */
enum weir_err error_set(struct error *err, enum weir_err code, const char *fmt, ...)
    WEIR_PRINTF(3, 4);

/* The same, with ": " and the text of `errnum` (an errno value) appended. */
enum weir_err error_set_errno(struct error *err, int errnum, const char *fmt, ...)
    WEIR_PRINTF(3, 4);

/* Short lower-case name of a code, for logs. Static lifetime. */
const char *weir_err_name(enum weir_err code);

/*
 * A programmer's fault. Aborts after writing the text and the place to stderr: what follows
 * could be another client's bytes.
 */
#define WEIR_BUG(...) weir_bug(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void weir_bug(const char *file, int line, const char *fmt, ...) WEIR_PRINTF(3, 4);
