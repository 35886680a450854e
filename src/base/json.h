/*
 * json.h - JSON outside the hot path: engines' answers, usage, our own error bodies.
 * Wraps yyjson (the only file that includes it). The request body's hot path is json_scan.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

struct json_doc;   /* a parsed document; owns its values */
struct json_value; /* a value inside a document; borrowed, lives as long as the document */

/*
 * Strict RFC 8259, at most 128 deep and 64 MiB long. NULL when malformed or over a bound. `text`
 * may go away afterwards. Numbers of any size parse; json_number() of one that no double holds
 * is the fallback. Of equal keys json_get() finds the first.
 */
struct json_doc *json_parse(struct slice text);
void json_doc_free(struct json_doc *doc); /* NULL is allowed */
const struct json_value *json_root(const struct json_doc *doc);

/* All accept NULL and the wrong type, and then return NULL, the fallback or an empty slice. */
const struct json_value *json_get(const struct json_value *object, const char *key);
const struct json_value *json_at(const struct json_value *array, size_t index);
size_t json_count(const struct json_value *array_or_object);
struct slice json_string(const struct json_value *v);
int64_t json_int(const struct json_value *v, int64_t fallback); /* integral doubles too */
double json_number(const struct json_value *v, double fallback);
bool json_bool(const struct json_value *v, bool fallback);
bool json_is_null(const struct json_value *v); /* true only for a JSON null */
bool json_is_string(const struct json_value *v);
bool json_is_object(const struct json_value *v);
bool json_is_array(const struct json_value *v);
bool json_is_number(const struct json_value *v);

/* Walk an object in document order: start with *pos = 0, false at the end. */
bool json_next_member(const struct json_value *object, size_t *pos, struct slice *key,
                      const struct json_value **value);

/* The same for the elements of an array; json_at() in a loop would be quadratic. */
bool json_next_element(const struct json_value *array, size_t *pos,
                       const struct json_value **value);

/*
 * Writing: values are appended to a buf. json_put_string quotes and escapes; invalid UTF-8 is
 * replaced by U+FFFD, U+2028/9 and "</" are escaped, so the text is safe in SSE and in HTML.
 * json_put_number never writes NaN or Inf (it writes null), and reads back as the same double.
 * Integers: buf_printf. On WEIR_ELIMIT nothing was added.
 */
WEIR_MUST_USE enum weir_err json_put_string(struct buf *out, struct slice text);
WEIR_MUST_USE enum weir_err json_put_number(struct buf *out, double value);
