#include "config/yaml.h"

#include <libfyaml.h>
#include <string.h>

#include "base/map.h"
#include "base/utf8.h"

enum { NODE_WEIGHT = 64 };

/* One open map or list. */
struct frame {
    struct yaml_node *node;
    struct yaml_entry **tail;
    const struct yaml_node *key; /* of the value to come */
    struct slice anchor;
    size_t weight_before;
};

struct builder {
    struct arena *arena;
    struct report *report;
    struct map anchors; /* name -> finished node; a node never contains itself */
    struct frame stack[YAML_MAX_DEPTH];
    size_t depth;
    size_t weight;
    size_t documents;
    const struct yaml_node *root;
    bool is_broken; /* said so; nothing after it can be trusted */
};

static void mistake(struct builder *b, struct place place, const char *help, const char *text)
{
    struct complaint c;
    complain(&c, "%s", text);
    advise(&c, "%s", help);
    report_mistake(b->report, place, &c);
}

static void give_up(struct builder *b, struct place place, const char *help, const char *text)
{
    mistake(b, place, help, text);
    b->is_broken = true;
}

static struct place span(const struct fy_mark *start, const struct fy_mark *end)
{
    if (!start || start->line < 0 || start->column < 0)
        return (struct place){0};
    struct place place = {
        .line = (uint32_t)start->line + 1, .column = (uint32_t)start->column + 1, .width = 1};
    if (end && end->line == start->line && end->column > start->column)
        place.width = (uint32_t)(end->column - start->column);
    return place;
}

static struct place place_of(struct fy_event *event, struct fy_token *token)
{
    return span(fy_event_start_mark(event), token ? fy_token_end_mark(token) : NULL);
}

static struct slice token_text(struct builder *b, struct fy_token *token)
{
    size_t len = 0;
    const char *text = token ? fy_token_get_text(token, &len) : NULL;
    return text ? arena_dup(b->arena, slice_of(text, len)) : SLICE("");
}

/* A key or value that the file leaves out has no place; it is told by what stands before it. */
static struct place fallback_place(const struct builder *b)
{
    const struct frame *frame = b->depth ? &b->stack[b->depth - 1] : NULL;
    if (!frame)
        return (struct place){0};
    return frame->key ? frame->key->place : frame->node->place;
}

static struct yaml_node *new_node(struct builder *b, enum yaml_kind kind, struct place place)
{
    struct yaml_node *node = arena_zalloc(b->arena, sizeof *node);
    node->kind = kind;
    node->place = place.line ? place : fallback_place(b);
    node->weight = NODE_WEIGHT;
    return node;
}

static void add_weight(struct builder *b, struct place place, size_t weight)
{
    b->weight += weight;
    if (b->weight > YAML_MAX_WEIGHT)
        give_up(b, place, "use fewer aliases, or write less",
                "this is more than a configuration may hold");
}

static void append(struct builder *b, struct frame *frame, const struct yaml_node *value)
{
    struct yaml_entry *entry = arena_zalloc(b->arena, sizeof *entry);
    *entry = (struct yaml_entry){.key = frame->key, .value = value};
    *frame->tail = entry;
    frame->tail = &entry->next;
    frame->key = NULL;
    frame->node->count++;
}

/* A finished scalar or alias, or a map or list that begins. */
static void add(struct builder *b, const struct yaml_node *node)
{
    if (b->depth == 0) {
        b->root = node;
        return;
    }
    struct frame *frame = &b->stack[b->depth - 1];
    if (frame->node->kind == YAML_LIST || frame->key)
        append(b, frame, node);
    else if (node->kind == YAML_SCALAR)
        frame->key = node;
    else
        give_up(b, node->place, "a key is a word, as in `listen: 127.0.0.1:8080`",
                "a map or list cannot be a key");
}

static void remember(struct builder *b, struct slice anchor, struct yaml_node *node)
{
    if (anchor.len)
        map_set(&b->anchors, anchor, node);
}

static bool is_null_word(struct slice text)
{
    return text.len == 0 || slice_eq(text, SLICE("~")) || slice_eq(text, SLICE("null")) ||
           slice_eq(text, SLICE("Null")) || slice_eq(text, SLICE("NULL"));
}

static void on_scalar(struct builder *b, struct fy_event *event)
{
    struct fy_token *token = event->scalar.value;
    struct yaml_node *node = new_node(b, YAML_SCALAR, place_of(event, token));
    enum fy_scalar_style style = token ? fy_token_scalar_style(token) : FYSS_PLAIN;
    node->text = token_text(b, token);
    node->is_null = style == FYSS_PLAIN && is_null_word(node->text);
    node->weight += node->text.len;
    add_weight(b, node->place, node->weight);
    remember(b, token_text(b, event->scalar.anchor), node);
    add(b, node);
}

static void on_alias(struct builder *b, struct fy_event *event)
{
    struct fy_token *token = event->alias.anchor;
    struct slice name = token_text(b, token);
    const struct yaml_node *node = map_get(&b->anchors, name);
    if (!node) {
        give_up(b, place_of(event, token), "an anchor, `&name`, must be complete before its alias",
                "no such anchor stands before this alias");
        return;
    }
    add_weight(b, place_of(event, token), node->weight);
    add(b, node);
}

static void on_begin(struct builder *b, struct fy_event *event, enum yaml_kind kind,
                     struct fy_token *anchor)
{
    struct yaml_node *node = new_node(b, kind, place_of(event, NULL));
    if (b->depth == YAML_MAX_DEPTH) {
        give_up(b, node->place, "no option needs more than eight", "nested too deep");
        return;
    }
    add(b, node);
    b->stack[b->depth++] = (struct frame){
        .node = node,
        .tail = &node->first,
        .anchor = token_text(b, anchor),
        .weight_before = b->weight,
    };
    add_weight(b, node->place, NODE_WEIGHT);
}

static void say_twice(struct builder *b, const struct yaml_node *key, const struct yaml_node *first)
{
    struct complaint c;
    char word[SHOWN_MAX];
    complain(&c, "`%s` stands here for a second time", shown(key->text, word));
    advise(&c, "the first is in line %u; keep one of them", first->place.line);
    report_mistake(b->report, key->place, &c);
}

/* The first one stays: what is found by name is then what is found by walking. */
static void drop_second_keys(struct builder *b, struct yaml_node *map)
{
    struct map seen = {0};
    struct yaml_entry **link = &map->first;
    while (*link) {
        struct yaml_entry *entry = *link;
        const struct yaml_entry *first = map_get(&seen, entry->key->text);
        if (first) {
            say_twice(b, entry->key, first->key);
            *link = entry->next;
            map->count--;
            continue;
        }
        map_set(&seen, entry->key->text, entry);
        link = &entry->next;
    }
    map_free(&seen);
}

static void on_end(struct builder *b)
{
    struct frame *frame = &b->stack[--b->depth];
    frame->node->weight = b->weight - frame->weight_before;
    remember(b, frame->anchor, frame->node);
    if (frame->node->kind == YAML_MAP)
        drop_second_keys(b, frame->node);
}

static void refuse_tag(struct builder *b, struct fy_event *event)
{
    struct fy_token *tag = fy_event_get_tag_token(event);
    if (tag)
        mistake(b, span(fy_token_start_mark(tag), fy_token_end_mark(tag)),
                "leave the tag out; the option decides the type",
                "YAML tags (`!word`) have no meaning here");
}

static void on_event(struct builder *b, struct fy_event *event)
{
    refuse_tag(b, event);
    switch (event->type) {
    case FYET_DOCUMENT_START:
        if (b->documents++ > 0)
            give_up(b, place_of(event, event->document_start.document_start),
                    "a configuration is one document; remove this `---` or split the file",
                    "a second document begins");
        return;
    case FYET_SCALAR:
        on_scalar(b, event);
        return;
    case FYET_ALIAS:
        on_alias(b, event);
        return;
    case FYET_MAPPING_START:
        on_begin(b, event, YAML_MAP, event->mapping_start.anchor);
        return;
    case FYET_SEQUENCE_START:
        on_begin(b, event, YAML_LIST, event->sequence_start.anchor);
        return;
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
        on_end(b);
        return;
    default:
        return;
    }
}

/* Only the first: what a parser says after it has lost track is noise. */
static void report_syntax(struct builder *b, struct fy_diag *diag)
{
    void *at = NULL;
    struct fy_diag_error *error;
    while ((error = fy_diag_errors_iterate(diag, &at)) && error->type != FYET_ERROR)
        ;
    struct complaint c;
    complain(&c, "not YAML: %s", error ? error->msg : "it cannot be read");
    advise(&c, "look at the indentation (spaces only), quotes and brackets here and just above");
    struct place place = {0};
    if (error && error->line > 0 && error->column > 0)
        place = (struct place){(uint32_t)error->line, (uint32_t)error->column, 1};
    report_mistake(b->report, place, &c);
}

static void pump(struct builder *b, struct fy_parser *parser, struct fy_diag *diag)
{
    struct fy_event *event;
    while (!b->is_broken && (event = fy_parser_parse(parser))) {
        on_event(b, event);
        fy_parser_event_free(parser, event);
    }
    if (!b->is_broken && fy_parser_get_stream_error(parser)) {
        report_syntax(b, diag);
        b->is_broken = true;
    }
}

/* Collects errors instead of printing them. */
static struct fy_diag *quiet_diag(void)
{
    struct fy_diag_cfg config;
    fy_diag_cfg_default(&config);
    config.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&config);
    if (diag)
        fy_diag_set_collect_errors(diag, true);
    return diag;
}

static struct place place_at(struct slice text, size_t offset)
{
    struct place place = {.line = 1, .column = 1, .width = 1};
    for (size_t i = 0; i < offset; i++) {
        if (text.ptr[i] == '\n') {
            place.line++;
            place.column = 1;
        } else if (!utf8_is_tail((unsigned char)text.ptr[i])) {
            place.column++;
        }
    }
    return place;
}

/* What libfyaml would take badly or silently. */
static bool check_bytes(struct builder *b, struct slice text)
{
    if (text.len > YAML_MAX_BYTES) {
        give_up(b, (struct place){0}, "a configuration has at most 16 MiB", "too long");
        return false;
    }
    const char *zero = text.len ? memchr(text.ptr, 0, text.len) : NULL;
    if (zero) {
        give_up(b, place_at(text, (size_t)(zero - text.ptr)), "is this the right file?",
                "a zero byte stands here; this is not a text file");
        return false;
    }
    size_t invalid = utf8_first_invalid(text);
    if (invalid < text.len) {
        give_up(b, place_at(text, invalid), "save the file as UTF-8",
                "these bytes are not valid UTF-8");
        return false;
    }
    return true;
}

const struct yaml_node *yaml_parse(struct slice text, struct arena *arena, struct report *report)
{
    struct builder b = {.arena = arena, .report = report};
    if (text.len == 0 || !check_bytes(&b, text))
        return NULL;
    struct fy_diag *diag = quiet_diag();
    struct fy_parse_cfg config = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_JSON_NONE,
                                  .diag = diag};
    struct fy_parser *parser = diag ? fy_parser_create(&config) : NULL;
    if (!parser || fy_parser_set_string(parser, text.ptr, text.len) != 0)
        WEIR_BUG("libfyaml gave no parser");
    pump(&b, parser, diag);
    fy_parser_destroy(parser);
    fy_diag_destroy(diag);
    map_free(&b.anchors);
    return b.is_broken ? NULL : b.root;
}

const struct yaml_entry *yaml_find(const struct yaml_node *map, struct slice key)
{
    if (!map || map->kind != YAML_MAP)
        return NULL;
    const struct yaml_entry *entry = map->first;
    while (entry && !slice_eq(entry->key->text, key))
        entry = entry->next;
    return entry;
}

const struct yaml_entry *yaml_find_path(const struct yaml_node *map, const char *path)
{
    const struct yaml_entry *entry = NULL;
    while (*path) {
        size_t len = strcspn(path, ".");
        entry = yaml_find(map, slice_of(path, len));
        map = entry ? entry->value : NULL;
        path += len + (path[len] == '.');
    }
    return entry;
}
