#include "gateway/admin.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "gateway/admin_page.h"
#include "gateway/control.h"
#include "observe/metrics.h"

enum {
    MAX_PAGE_BYTES = 256 * 1024 * 1024, /* 10,000 replicas make some 15 MB of metrics */
    MAX_REPORT_BYTES = 256 * 1024,
    MAX_BODY_BYTES = 64 * 1024,
};

struct page {
    int status;
    const char *type;
    const char *policy; /* Content-Security-Policy header line, or "" */
    struct buf body;
};

static const char json_type[] = "application/json";

static void send_page(struct http_conn *conn, const struct page *page, bool is_head)
{
    char head[768];
    int len =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\n"
                 "cache-control: no-store\r\nx-content-type-options: nosniff\r\n%s%s\r\n",
                 page->status, http_status_text(page->status), page->type, buf_len(&page->body),
                 page->policy, conn->keep_alive ? "" : "connection: close\r\n");
    struct slice body = buf_slice(&page->body);
    struct iovec pieces[] = {{head, (size_t)len}, {(void *)body.ptr, body.len}};
    http_conn_send(conn, pieces, is_head ? 1 : 2);
    http_conn_finish(conn, true);
}

/* ---- pages ---- */

static enum weir_err write_index(struct control *c, struct page *page)
{
    page->type = "text/html; charset=utf-8";
    page->policy = "content-security-policy: " ADMIN_PAGE_POLICY "\r\n";
    return buf_append(&page->body, admin_page_html());
}

static enum weir_err write_status(struct control *c, struct page *page)
{
    return control_write_status(c, &page->body);
}

static enum weir_err write_metrics(struct control *c, struct page *page)
{
    page->type = METRICS_CONTENT_TYPE;
    return control_write_metrics(c, &page->body);
}

static enum weir_err write_config(struct control *c, struct page *page)
{
    page->type = "application/yaml";
    return control_write_config(c, &page->body);
}

static enum weir_err write_live(struct control *c, struct page *page)
{
    return buf_append(&page->body, SLICE("{\"status\":\"live\"}\n"));
}

static enum weir_err write_ready(struct control *c, struct page *page)
{
    bool is_ready = control_is_ready(c);
    page->status = is_ready ? 200 : 503;
    return buf_printf(&page->body, "{\"status\":\"%s\"}\n", is_ready ? "ready" : "not ready");
}

static enum weir_err write_reload(struct control *c, struct page *page)
{
    struct buf report;
    buf_init(&report, MAX_REPORT_BYTES);
    bool is_done = control_reload(c, &report) == WEIR_OK;
    page->status = is_done ? 200 : 400;
    enum weir_err err =
        buf_printf(&page->body, "{\"reloaded\":%s,\"report\":", is_done ? "true" : "false");
    if (err == WEIR_OK) {
        err = json_put_string(&page->body, buf_slice(&report));
    }
    buf_free(&report);
    return err == WEIR_OK ? buf_append(&page->body, SLICE("}\n")) : err;
}

static const struct {
    const char *method, *path;
    enum weir_err (*write)(struct control *c, struct page *page);
} pages[] = {
    {"GET", "/", write_index},
    {"GET", "/status.json", write_status},
    {"GET", "/metrics", write_metrics},
    {"GET", "/config", write_config},
    {"GET", "/health/live", write_live},
    {"GET", "/health/ready", write_ready},
    {"POST", "/admin/reload", write_reload},
};

/* ---- the handler ---- */

static void fill(struct page *page, int status, const char *text)
{
    page->status = status;
    page->type = json_type;
    buf_clear(&page->body);
    if (buf_printf(&page->body, "{\"error\":{\"message\":\"%s\"}}\n", text) != WEIR_OK) {
        buf_clear(&page->body);
    }
}

static void answer(struct control *c, struct slice method, struct slice path, struct page *page)
{
    bool is_head = slice_eq(method, SLICE("HEAD"));
    const char *allow = NULL;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (!slice_eq(path, slice_str(pages[i].path))) {
            continue;
        }
        allow = pages[i].method;
        if (slice_eq(is_head ? SLICE("GET") : method, slice_str(allow))) {
            if (pages[i].write(c, page) != WEIR_OK) {
                fill(page, 500, "the page is too long to be written");
            }
            return;
        }
    }
    if (allow) {
        fill(page, 405, strcmp(allow, "GET") == 0 ? "use GET here" : "use POST here");
    } else {
        fill(page, 404,
             "no such page; there are /, /status.json, /metrics, /config, /health/live, "
             "/health/ready and POST /admin/reload");
    }
}

static size_t on_head(struct http_conn *conn, const struct http_head *head)
{
    return MAX_BODY_BYTES;
}

static void on_request(struct http_conn *conn, const struct http_head *head, struct slice body)
{
    struct admin *a = conn->server->ctx;
    struct page page = {.status = 200, .type = json_type, .policy = ""};
    buf_init(&page.body, MAX_PAGE_BYTES);
    struct slice path = head->target;
    const char *query = path.len ? memchr(path.ptr, '?', path.len) : NULL;
    path.len = query ? (size_t)(query - path.ptr) : path.len;
    answer(a->control, head->method, path, &page);
    send_page(conn, &page, slice_eq(head->method, SLICE("HEAD")));
    buf_free(&page.body);
}

static void on_refuse(struct http_conn *conn, enum http_refusal why, const char *text)
{
    static const int statuses[] = {
        [HTTP_REFUSE_SYNTAX] = 400,       [HTTP_REFUSE_VERSION] = 505,
        [HTTP_REFUSE_HEAD_SIZE] = 431,    [HTTP_REFUSE_BODY_SIZE] = 413,
        [HTTP_REFUSE_MEMORY] = 503,       [HTTP_REFUSE_HEAD_TIMEOUT] = 408,
        [HTTP_REFUSE_BODY_TIMEOUT] = 408, [HTTP_REFUSE_EXPECT] = 417,
    };
    struct page page = {.policy = ""};
    buf_init(&page.body, 1024);
    fill(&page, statuses[why], text ? text : http_status_text(statuses[why]));
    send_page(conn, &page, false);
    buf_free(&page.body);
}

static void on_client_gone(struct http_conn *conn)
{
}

static const struct http_handler handler = {
    .on_head = on_head,
    .on_request = on_request,
    .on_refuse = on_refuse,
    .on_client_gone = on_client_gone,
    .on_writable = on_client_gone, /* pages are handed over whole: nothing to go on with */
};

static const struct http_server_limits limits = {
    .head_bytes = 16 * 1024,
    .body_memory_bytes = 16 * 1024 * 1024,
    .out_mark_bytes = MAX_PAGE_BYTES,
    .out_memory_bytes = 1024 * (size_t)1024 * 1024,
    .out_max_bytes = MAX_PAGE_BYTES + 1024,
    .connections = 256,
    .head_timeout_ns = 10 * NS_PER_S,
    .body_timeout_ns = 10 * NS_PER_S,
    .idle_timeout_ns = 120 * NS_PER_S,
    .write_timeout_ns = 30 * NS_PER_S,
    .tolerate_half_close = true,
};

static void on_accept(void *ctx, int descriptor, const struct endpoint *peer)
{
    struct admin *a = ctx;
    http_server_adopt(&a->server, descriptor, peer);
}

enum weir_err admin_start(struct admin *a, struct control *control, struct loop *loop, int socket,
                          struct error *err)
{
    a->control = control;
    http_server_init(&a->server, loop, &handler, a, &limits, &a->counters);
    if (listener_start(&a->listener, loop, socket, on_accept, a) != WEIR_OK) {
        return error_set(err, WEIR_EIO, "cannot watch the admin listener");
    }
    return WEIR_OK;
}

void admin_stop(struct admin *a)
{
    listener_stop(&a->listener);
    http_server_close(&a->server);
}
