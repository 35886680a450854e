#include "config/quantity.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

struct unit {
    const char *name;
    uint64_t scale;
    bool shown; /* may be used to write a value */
};

/* Largest first. The last entry ends the table. */
static const struct unit size_units[] = {
    {"TiB", 1ull << 40, true}, {"TB", 1000000000000, false},
    {"GiB", 1 << 30, true},    {"GB", 1000000000, false},
    {"MiB", 1 << 20, true},    {"MB", 1000000, false},
    {"KiB", 1 << 10, true},    {"kB", 1000, false},
    {"KB", 1000, false},       {"B", 1, true},
    {NULL, 0, false},
};
static const struct unit duration_units[] = {
    {"h", 3600000000000, true}, {"m", 60000000000, true}, {"s", 1000000000, true},
    {"ms", 1000000, true},      {"us", 1000, true},       {"ns", 1, true},
    {NULL, 0, false},
};

/* What people write who mean one of the units above. */
struct nickname {
    const char *name, *unit;
};
static const struct nickname size_nicknames[] = {
    {"k", "KiB"},   {"ki", "KiB"}, {"kib", "KiB"}, {"kb", "KiB"}, {"m", "MiB"},   {"mi", "MiB"},
    {"mib", "MiB"}, {"mb", "MiB"}, {"g", "GiB"},   {"gi", "GiB"}, {"gib", "GiB"}, {"gb", "GiB"},
    {"t", "TiB"},   {"ti", "TiB"}, {"bytes", "B"}, {"b", "B"},    {NULL, NULL},
};
static const struct nickname duration_nicknames[] = {
    {"", "s"},        {"sec", "s"},           {"secs", "s"},       {"second", "s"},
    {"seconds", "s"}, {"min", "m"},           {"mins", "m"},       {"minute", "m"},
    {"minutes", "m"}, {"hour", "h"},          {"hours", "h"},      {"hr", "h"},
    {"msec", "ms"},   {"milliseconds", "ms"}, {"\xc2\xb5s", "us"}, {NULL, NULL},
};

enum { MAX_FRACTION = 6 }; /* 10^6 times the largest unit still fits 64 bits */

static size_t count_digits(struct slice s)
{
    size_t n = 0;
    while (n < s.len && s.ptr[n] >= '0' && s.ptr[n] <= '9')
        n++;
    return n;
}

struct decimal {
    struct slice whole, fraction; /* digits */
    struct slice written;         /* both, and the point */
    struct slice unit;            /* what follows, without spaces */
};

static bool split(struct slice text, struct decimal *d)
{
    d->whole = slice_of(text.ptr, count_digits(text));
    struct slice rest = slice_from(text, d->whole.len);
    d->fraction = (struct slice){0};
    if (rest.len && rest.ptr[0] == '.') {
        rest = slice_from(rest, 1);
        d->fraction = slice_of(rest.ptr, count_digits(rest));
        rest = slice_from(rest, d->fraction.len);
        if (d->fraction.len == 0 || d->fraction.len > MAX_FRACTION)
            return false;
    }
    d->written = slice_of(text.ptr, text.len - rest.len);
    d->unit = slice_trim(rest);
    return d->whole.len > 0;
}

static enum weir_err scale(const struct decimal *d, uint64_t unit, uint64_t *value)
{
    uint64_t whole, fraction = 0;
    if (!slice_to_u64(d->whole, &whole) || __builtin_mul_overflow(whole, unit, &whole))
        return WEIR_ELIMIT;
    if (d->fraction.len && slice_to_u64(d->fraction, &fraction)) {
        fraction *= unit;
        for (size_t i = 0; i < d->fraction.len; i++)
            fraction /= 10;
    }
    return __builtin_add_overflow(whole, fraction, value) ? WEIR_ELIMIT : WEIR_OK;
}

static bool is_zero(const struct decimal *d)
{
    uint64_t whole;
    return d->unit.len == 0 && d->fraction.len == 0 && slice_to_u64(d->whole, &whole) && whole == 0;
}

static enum weir_err read_quantity(struct slice text, const struct unit *units,
                                   const struct nickname *nicknames, uint64_t *value, char *hint)
{
    struct decimal d;
    hint[0] = '\0';
    if (!split(text, &d))
        return WEIR_ESYNTAX;
    if (is_zero(&d)) {
        *value = 0;
        return WEIR_OK;
    }
    for (; units->name; units++)
        if (slice_eq(d.unit, slice_str(units->name)))
            return scale(&d, units->scale, value);
    for (; nicknames->name; nicknames++)
        if (slice_eq_nocase(d.unit, slice_str(nicknames->name)) && d.written.len < 32) {
            snprintf(hint, QUANTITY_HINT, "%.*s%s", SLICE_ARG(d.written), nicknames->unit);
            break;
        }
    return WEIR_ESYNTAX;
}

enum weir_err quantity_read_size(struct slice text, uint64_t *bytes, char *hint)
{
    return read_quantity(text, size_units, size_nicknames, bytes, hint);
}

enum weir_err quantity_read_duration(struct slice text, uint64_t *ns, char *hint)
{
    return read_quantity(text, duration_units, duration_nicknames, ns, hint);
}

static enum weir_err put_quantity(struct buf *out, uint64_t value, const struct unit *unit)
{
    while (!unit->shown || value % unit->scale)
        unit++; /* ends: everything is a multiple of the smallest unit */
    return buf_printf(out, "%" PRIu64 "%s", value / unit->scale, unit->name);
}

enum weir_err quantity_put_size(struct buf *out, uint64_t bytes)
{
    return bytes ? put_quantity(out, bytes, size_units) : buf_append(out, SLICE("0B"));
}

enum weir_err quantity_put_duration(struct buf *out, uint64_t ns)
{
    return ns ? put_quantity(out, ns, duration_units) : buf_append(out, SLICE("0s"));
}
