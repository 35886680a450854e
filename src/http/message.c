#include "http/message.h"

struct slice http_header_get(const struct http_head *head, struct slice name)
{
    for (size_t i = 0; i < head->header_count; i++) {
        if (slice_eq_nocase(head->headers[i].name, name)) {
            return head->headers[i].value;
        }
    }
    return (struct slice){0};
}

bool http_header_has(const struct http_head *head, struct slice name)
{
    for (size_t i = 0; i < head->header_count; i++) {
        if (slice_eq_nocase(head->headers[i].name, name)) {
            return true;
        }
    }
    return false;
}

bool http_list_has(struct slice list, struct slice token)
{
    while (list.len) {
        const char *comma = memchr(list.ptr, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.ptr) : list.len;
        if (slice_eq_nocase(slice_trim(slice_of(list.ptr, len)), token)) {
            return true;
        }
        list = slice_from(list, len + 1);
    }
    return false;
}

bool http_header_is_hop_by_hop(const struct http_head *head, struct slice name)
{
    static const struct slice fixed[] = {
        {"connection", 10},
        {"keep-alive", 10},
        {"proxy-connection", 16},
        {"te", 2},
        {"trailer", 7},
        {"transfer-encoding", 17},
        {"upgrade", 7},
        {"proxy-authenticate", 18},
        {"proxy-authorization", 19},
        {"http2-settings", 14},
        {"content-length", 14},
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (slice_eq_nocase(fixed[i], name)) {
            return true;
        }
    }
    for (size_t i = 0; i < head->header_count; i++) {
        if (slice_eq_nocase(head->headers[i].name, SLICE("connection")) &&
            http_list_has(head->headers[i].value, name)) {
            return true;
        }
    }
    return false;
}

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } names[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {425, "Too Early"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {529, "Overloaded"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].status == status) {
            return names[i].text;
        }
    }
    return "Unknown";
}
