#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define UNIX_PREFIX SLICE("unix:")

static enum weir_err parse_port(struct slice text, uint16_t *port)
{
    uint64_t value;
    if (text.len == 0 || text.len > 5 || !slice_to_u64(text, &value) || value == 0 ||
        value > 65535) {
        return WEIR_EINVAL;
    }
    *port = (uint16_t)value;
    return WEIR_OK;
}

/* Splits "host:port", "[v6]:port", "host". `port_text` is empty when there is none. */
static enum weir_err split_authority(struct slice text, struct slice *host, struct slice *port_text)
{
    *host = *port_text = (struct slice){0};
    if (text.len == 0) {
        return WEIR_OK; /* "http://": there may be no pointer to count from */
    }
    const char *end = text.ptr + text.len;
    const char *after;
    if (text.ptr[0] == '[') {
        const char *close = memchr(text.ptr, ']', text.len);
        if (!close || !memchr(text.ptr, ':', (size_t)(close - text.ptr))) {
            return WEIR_ESYNTAX; /* brackets are for IPv6 */
        }
        *host = slice_of(text.ptr + 1, (size_t)(close - text.ptr - 1));
        after = close + 1;
    } else {
        const char *colon = memchr(text.ptr, ':', text.len);
        after = colon ? colon : end;
        *host = slice_of(text.ptr, (size_t)(after - text.ptr));
    }
    if (after < end) {
        if (*after != ':') {
            return WEIR_ESYNTAX;
        }
        *port_text = slice_of(after + 1, (size_t)(end - after - 1));
        if (port_text->len == 0) {
            return WEIR_ESYNTAX;
        }
    }
    return WEIR_OK;
}

static bool is_host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == ':' || c == '%';
}

static bool is_path_char(char c)
{
    return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '?' && c != '#';
}

static bool all_chars(struct slice s, bool (*is_allowed)(char))
{
    for (size_t i = 0; i < s.len; i++) {
        if (!is_allowed(s.ptr[i])) {
            return false;
        }
    }
    return true;
}

static struct slice strip_suffix(struct slice s, struct slice suffix)
{
    if (s.len >= suffix.len && slice_eq(slice_from(s, s.len - suffix.len), suffix)) {
        s.len -= suffix.len;
    }
    return s;
}

static struct slice strip_slashes(struct slice s)
{
    while (s.len && s.ptr[s.len - 1] == '/') {
        s.len--;
    }
    return s;
}

static enum weir_err parse_unix_url(struct slice path, struct base_url *out, struct error *err)
{
    if (path.len == 0 || path.ptr[0] != '/' ||
        path.len >= sizeof((struct sockaddr_un *)0)->sun_path) {
        return error_set(err, WEIR_EINVAL,
                         "a Unix socket is written unix:/absolute/path, of at most 107 bytes");
    }
    out->host = path;
    out->authority = SLICE("localhost");
    out->is_unix = true;
    return WEIR_OK;
}

enum weir_err base_url_parse(struct slice text, struct base_url *out, struct error *err)
{
    *out = (struct base_url){0};
    if (slice_starts(text, UNIX_PREFIX)) {
        return parse_unix_url(slice_from(text, UNIX_PREFIX.len), out, err);
    }
    if (slice_starts(text, SLICE("https://"))) {
        return error_set(err, WEIR_EUNSUPPORTED,
                         "https towards engines is not supported yet; use http://");
    }
    if (!slice_starts(text, SLICE("http://"))) {
        return error_set(err, WEIR_ESYNTAX, "an engine is written http://host:port or unix:/path");
    }
    struct slice rest = slice_from(text, SLICE("http://").len);
    const char *slash = rest.len ? memchr(rest.ptr, '/', rest.len) : NULL;
    size_t authority_len = slash ? (size_t)(slash - rest.ptr) : rest.len;
    out->authority = slice_of(rest.ptr, authority_len);
    if (authority_len && memchr(rest.ptr, '@', authority_len)) {
        return error_set(
            err, WEIR_EINVAL,
            "no '@' in an engine's URL: a key goes into api_key_file, a rank into none");
    }
    struct slice port_text;
    if (split_authority(out->authority, &out->host, &port_text) != WEIR_OK || out->host.len == 0 ||
        !all_chars(out->host, is_host_char)) {
        return error_set(err, WEIR_ESYNTAX,
                         "cannot read the host; write http://host:port, IPv6 as http://[::1]:port");
    }
    out->port = 80;
    if (port_text.len && parse_port(port_text, &out->port) != WEIR_OK) {
        return error_set(err, WEIR_EINVAL, "the port must be a number from 1 to 65535");
    }
    out->path = slice_from(rest, authority_len);
    if (!all_chars(out->path, is_path_char)) {
        return error_set(err, WEIR_ESYNTAX, "the path must be plain: no query, fragment or space");
    }
    out->path = strip_slashes(strip_suffix(strip_slashes(out->path), SLICE("/v1")));
    return WEIR_OK;
}

static enum weir_err unix_endpoint(struct slice path, struct endpoint *out)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    if (path.len == 0 || path.len >= sizeof sun.sun_path) {
        return WEIR_EINVAL;
    }
    memcpy(sun.sun_path, path.ptr, path.len);
    *out = (struct endpoint){.length = sizeof sun, .family = AF_UNIX};
    memcpy(out->bytes, &sun, sizeof sun);
    return WEIR_OK;
}

enum weir_err address_from_host(struct slice host, uint16_t port, bool is_unix,
                                struct endpoint *out)
{
    if (is_unix) {
        return unix_endpoint(host, out);
    }
    char text[INET6_ADDRSTRLEN + 1];
    if (host.len == 0 || host.len >= sizeof text) {
        return WEIR_ENOTFOUND;
    }
    memcpy(text, host.ptr, host.len);
    text[host.len] = '\0';
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET, text, &in4.sin_addr) == 1) {
        *out = (struct endpoint){.length = sizeof in4, .family = AF_INET};
        memcpy(out->bytes, &in4, sizeof in4);
        return WEIR_OK;
    }
    if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1) {
        *out = (struct endpoint){.length = sizeof in6, .family = AF_INET6};
        memcpy(out->bytes, &in6, sizeof in6);
        return WEIR_OK;
    }
    return WEIR_ENOTFOUND;
}

enum weir_err address_parse_listen(struct slice text, struct endpoint *out, struct error *err)
{
    if (slice_starts(text, UNIX_PREFIX)) {
        if (unix_endpoint(slice_from(text, UNIX_PREFIX.len), out) != WEIR_OK) {
            return error_set(err, WEIR_EINVAL, "a Unix socket is written unix:/path (107 bytes)");
        }
        return WEIR_OK;
    }
    struct slice host, port_text;
    uint16_t port;
    if (split_authority(text, &host, &port_text) != WEIR_OK) {
        return error_set(err, WEIR_ESYNTAX,
                         "an address is written 127.0.0.1:8080, [::1]:8080, *:8080 or unix:/path");
    }
    if (port_text.len == 0) { /* "8080" */
        port_text = host;
        host = SLICE("*");
    }
    if (parse_port(port_text, &port) != WEIR_OK) {
        return error_set(err, WEIR_EINVAL, "the port must be a number from 1 to 65535");
    }
    if (host.len == 0 || slice_eq(host, SLICE("*"))) {
        host = SLICE("0.0.0.0");
    } else if (slice_eq(host, SLICE("localhost"))) {
        host = SLICE("127.0.0.1");
    }
    if (address_from_host(host, port, false, out) != WEIR_OK) {
        return error_set(err, WEIR_EINVAL,
                         "listening needs a numeric address, as 127.0.0.1, 0.0.0.0 or [::1]");
    }
    return WEIR_OK;
}

void address_format(const struct endpoint *address, char *out, size_t size)
{
    char text[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    struct sockaddr_un sun;
    switch (address->length ? address->family : AF_UNSPEC) {
    case AF_INET:
        memcpy(&in4, address->bytes, sizeof in4);
        inet_ntop(AF_INET, &in4.sin_addr, text, sizeof text);
        snprintf(out, size, "%s:%u", text, ntohs(in4.sin_port));
        break;
    case AF_INET6:
        memcpy(&in6, address->bytes, sizeof in6);
        inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
        snprintf(out, size, "[%s]:%u", text, ntohs(in6.sin6_port));
        break;
    case AF_UNIX:
        memcpy(&sun, address->bytes, sizeof sun);
        snprintf(out, size, "unix:%.*s", (int)sizeof sun.sun_path, sun.sun_path);
        break;
    default:
        snprintf(out, size, "unknown");
    }
}
