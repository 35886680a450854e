#include "engines/prometheus.h"

#include <math.h>
#include <stdlib.h>

enum { NUMBER_MAX = 64 };

static const char total[] = "_total";

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':' || c == '.';
}

/* Takes one line off the front. */
static bool next_line(struct slice *rest, struct slice *line)
{
    if (rest->len == 0)
        return false;
    const char *end = memchr(rest->ptr, '\n', rest->len);
    size_t len = end ? (size_t)(end - rest->ptr) : rest->len;
    *line = slice_of(rest->ptr, len);
    *rest = slice_from(*rest, end ? len + 1 : len);
    return true;
}

/* Length of a quoted string at the front of `s`, both quotes included; 0 when it is not closed. */
static size_t quoted_length(struct slice s)
{
    for (size_t i = 1; i < s.len; i++) {
        if (s.ptr[i] == '\\')
            i++;
        else if (s.ptr[i] == '"')
            return i + 1;
    }
    return 0;
}

/* Length of `{…}` at the front of `s`; braces in quoted values do not count. 0: not closed. */
static size_t labels_length(struct slice s)
{
    for (size_t i = 1; i < s.len; i++) {
        if (s.ptr[i] == '}')
            return i + 1;
        if (s.ptr[i] == '"') {
            size_t quoted = quoted_length(slice_from(s, i));
            if (quoted == 0)
                return 0;
            i += quoted - 1;
        }
    }
    return 0;
}

/* A number that ends at a space or the end; what follows (time stamp, exemplar) is left alone. */
static bool parse_value(struct slice s, double *value)
{
    char text[NUMBER_MAX];
    size_t len = 0;
    while (len < s.len && s.ptr[len] != ' ' && s.ptr[len] != '\t' && s.ptr[len] != '\r')
        len++;
    if (len == 0 || len >= sizeof text)
        return false;
    memcpy(text, s.ptr, len);
    text[len] = '\0';
    char *end;
    *value = strtod(text, &end);
    return end == text + len && isfinite(*value) && *value >= 0;
}

static bool parse_line(struct slice line, struct metric_sample *sample)
{
    size_t len = 0;
    while (len < line.len && is_name_char(line.ptr[len]))
        len++;
    if (len == 0)
        return false;
    sample->name = slice_of(line.ptr, len);
    sample->labels = (struct slice){0};
    struct slice rest = slice_trim(slice_from(line, len));
    if (rest.len && rest.ptr[0] == '{') {
        size_t braces = labels_length(rest);
        if (braces == 0)
            return false;
        sample->labels = slice_of(rest.ptr + 1, braces - 2);
        rest = slice_trim(slice_from(rest, braces));
    }
    return parse_value(rest, &sample->value);
}

bool metric_next(struct slice *rest, struct metric_sample *sample)
{
    struct slice line;
    while (next_line(rest, &line))
        if (parse_line(line, sample))
            return true;
    return false;
}

bool metric_label(struct slice labels, const char *name, struct slice *value)
{
    struct slice wanted = slice_str(name);
    while (labels.len) {
        const char *equals = memchr(labels.ptr, '=', labels.len);
        if (!equals)
            return false;
        struct slice key = slice_trim(slice_of(labels.ptr, (size_t)(equals - labels.ptr)));
        struct slice rest = slice_trim(slice_from(labels, (size_t)(equals - labels.ptr) + 1));
        size_t quoted = rest.len && rest.ptr[0] == '"' ? quoted_length(rest) : 0;
        if (quoted == 0)
            return false;
        if (slice_eq(key, wanted)) {
            *value = slice_of(rest.ptr + 1, quoted - 2);
            return true;
        }
        labels = slice_trim(slice_from(rest, quoted));
        if (labels.len && labels.ptr[0] == ',')
            labels = slice_trim(slice_from(labels, 1));
    }
    return false;
}

static struct slice without_total(struct slice name)
{
    size_t len = sizeof total - 1;
    if (name.len > len && memcmp(name.ptr + name.len - len, total, len) == 0)
        name.len -= len;
    return name;
}

static bool label_fits(const struct metric_want *want, struct slice labels)
{
    struct slice value;
    if (!want->label)
        return true;
    return metric_label(labels, want->label, &value) &&
           slice_eq(value, slice_str(want->label_value));
}

static void offer(struct metric_want *want, struct slice plain, const struct metric_sample *sample)
{
    for (size_t i = 0; i < METRIC_NAMES && want->names[i]; i++) {
        if (!slice_eq(plain, slice_str(want->names[i])) || !label_fits(want, sample->labels))
            continue;
        want->sums[i] += sample->value;
        want->counts[i]++;
        return;
    }
}

void metric_read(struct slice text, struct metric_want *wants, size_t want_count)
{
    struct metric_sample sample;
    while (metric_next(&text, &sample)) {
        struct slice plain = without_total(sample.name);
        for (size_t i = 0; i < want_count; i++)
            offer(&wants[i], plain, &sample);
    }
}

bool metric_seen(const struct metric_want *want)
{
    for (size_t i = 0; i < METRIC_NAMES; i++)
        if (want->counts[i])
            return true;
    return false;
}

double metric_value(const struct metric_want *want)
{
    for (size_t i = 0; i < METRIC_NAMES; i++)
        if (want->counts[i])
            return want->mean ? want->sums[i] / want->counts[i] : want->sums[i];
    return 0;
}

uint32_t metric_u32(const struct metric_want *want)
{
    double value = metric_value(want);
    return value < (double)UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

uint64_t metric_u64(const struct metric_want *want)
{
    double value = metric_value(want);
    return value < 0x1p64 ? (uint64_t)value : UINT64_MAX;
}

uint32_t metric_ppm(const struct metric_want *want)
{
    double value = metric_value(want);
    return value < 1.0 ? (uint32_t)(value * 1e6 + 0.5) : 1000000;
}
