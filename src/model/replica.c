#include "model/replica.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/heap.h"

enum { CACHE_LINE = 64 };

/*
 * What an answer must be to teach a speed, and what an average moves by. Below 8 tokens the packing
 * of events decides the figure. Speeds outside the range are clocks or counters gone wrong: the
 * fastest single streams known run at some thousand tokens a second.
 */
enum { SPEED_MIN_TOKENS = 8, SPEED_AVERAGE_SHIFT = 3 };
#define SPEED_MIN_MTOK_S 10ull       /* a token in 100 s */
#define SPEED_MAX_MTOK_S 50000000ull /* 50,000 tokens a second */

_Static_assert(sizeof(((struct replica *)0)->address_words) == sizeof(struct endpoint),
               "address_words holds exactly an endpoint");
_Static_assert(offsetof(struct replica, health.trial_ns) <= CACHE_LINE,
               "what a routing decision reads first stands on one cache line");
_Static_assert(offsetof(struct replica, report.kv_used_ppm) <= 2 * CACHE_LINE,
               "and the rest on the next");

static const char *const state_names[REPLICA_STATES] = {
    [REPLICA_UNKNOWN] = "unknown",   [REPLICA_READY] = "ready", [REPLICA_LOADING] = "loading",
    [REPLICA_DRAINING] = "draining", [REPLICA_DOWN] = "down",
};

const char *replica_state_name(enum replica_state state)
{
    return (unsigned)state < REPLICA_STATES ? state_names[state] : "?";
}

static char *put_string(char **at, struct slice s)
{
    char *copy = *at;
    if (s.len)
        memcpy(copy, s.ptr, s.len);
    copy[s.len] = '\0';
    *at += s.len + 1;
    return copy;
}

/* FNV-1a with a finisher: stable between processes and releases, which map_hash() is not. */
static uint64_t stable_hash(struct slice s)
{
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * 0x100000001b3;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
    h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
    return h ^ (h >> 31);
}

struct replica *replica_new(const struct replica_identity *identity)
{
    static _Atomic uint32_t next_id = 1;
    if (!identity->engine)
        WEIR_BUG("a replica needs an engine; give \"openai\" when it is not known yet");
    size_t strings = identity->name.len + identity->host.len + identity->path_prefix.len +
                     identity->authorization.len + 4;
    char *block = heap_zalloc(sizeof(struct replica) + strings + CACHE_LINE);
    size_t skip = CACHE_LINE - (uintptr_t)block % CACHE_LINE;
    struct replica *r = (struct replica *)(block + skip);
    char *at = (char *)(r + 1);
    r->block = block;
    r->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
    r->ring_hash = stable_hash(identity->name);
    r->name = put_string(&at, identity->name);
    r->host = put_string(&at, identity->host);
    r->path_prefix = put_string(&at, identity->path_prefix);
    r->authorization_len = identity->authorization.len;
    if (identity->authorization.len)
        r->authorization = put_string(&at, identity->authorization);
    r->detect_engine = identity->detect_engine;
    atomic_init(&r->engine, identity->engine);
    atomic_init(&r->state, REPLICA_UNKNOWN);
    atomic_init(&r->refs, 1);
    return r;
}

struct replica *replica_hold(struct replica *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void replica_drop(struct replica *r)
{
    uint32_t before = atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel);
    if (before == 0)
        WEIR_BUG("replica %u dropped more often than held", r->id);
    if (before > 1)
        return;
    if (r->authorization)
        explicit_bzero((char *)r->authorization, r->authorization_len);
    heap_free(r->block);
}

/*
 * A sequence lock without fences (ThreadSanitizer does not know them): each word is stored with
 * release and loaded with acquire, so a reader that sees any word of a newer write also sees its
 * odd sequence number in the second look.
 */
void replica_endpoint_set(struct replica *r, const struct endpoint *endpoint)
{
    uint64_t words[17];
    memcpy(words, endpoint, sizeof words);
    uint32_t seq = atomic_load_explicit(&r->address_seq, memory_order_relaxed);
    atomic_store_explicit(&r->address_seq, seq + 1, memory_order_relaxed);
    for (size_t i = 0; i < 17; i++)
        atomic_store_explicit(&r->address_words[i], words[i], memory_order_release);
    atomic_store_explicit(&r->address_seq, seq + 2, memory_order_release);
}

bool replica_endpoint_get(const struct replica *r, struct endpoint *out)
{
    uint64_t words[17];
    for (;;) {
        uint32_t before = atomic_load_explicit(&r->address_seq, memory_order_acquire);
        for (size_t i = 0; i < 17; i++)
            words[i] = atomic_load_explicit(&r->address_words[i], memory_order_acquire);
        uint32_t after = atomic_load_explicit(&r->address_seq, memory_order_relaxed);
        if (before == after && before % 2 == 0)
            break; /* a writer needs some nanoseconds, and there is one write per change of DNS */
    }
    memcpy(out, words, sizeof words);
    return out->length != 0;
}

void replica_learn_speed(struct replica *r, uint32_t tokens_out, uint64_t duration_ns)
{
    if (tokens_out < SPEED_MIN_TOKENS || duration_ns == 0)
        return;
    /* The first token came at time 0, so the others took the duration. */
    double seen = (double)(tokens_out - 1) * 1e3 * (double)NS_PER_S / (double)duration_ns;
    if (seen < (double)SPEED_MIN_MTOK_S || seen > (double)SPEED_MAX_MTOK_S)
        return;
    /* Load and store, not compare-and-swap: a lost sample of a moving average is no harm. */
    int64_t known = (int64_t)atomic_load_explicit(&r->speed_mtok_s, memory_order_relaxed);
    int64_t next =
        known ? known + ((int64_t)seen - known) / (1 << SPEED_AVERAGE_SHIFT) : (int64_t)seen;
    atomic_store_explicit(&r->speed_mtok_s, (uint64_t)next, memory_order_relaxed);
}

enum replica_ejection replica_ejection(const struct replica *r, uint64_t now_ns)
{
    uint64_t until = atomic_load_explicit(&r->health.ejected_until_ns, memory_order_relaxed);
    if (until == 0)
        return REPLICA_IN;
    if (now_ns < until)
        return REPLICA_OUT;
    uint64_t trial = atomic_load_explicit(&r->health.trial_ns, memory_order_relaxed);
    bool is_running = trial != 0 && now_ns < trial + REPLICA_TRIAL_NS;
    return is_running ? REPLICA_OUT : REPLICA_TRIAL_DUE;
}

static void add(_Atomic int64_t *counter, int64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

void replica_claim_take(struct replica_claim *claim, struct replica *r, uint32_t prompt_tokens,
                        uint32_t output_tokens)
{
    replica_claim_release(claim);
    *claim = (struct replica_claim){replica_hold(r), prompt_tokens, output_tokens};
    add(&r->load.requests, 1);
    add(&r->load.prompt_tokens, prompt_tokens);
    add(&r->load.output_tokens, output_tokens);
}

void replica_claim_first_token(struct replica_claim *claim)
{
    if (!claim->replica || claim->prompt_tokens == 0)
        return;
    add(&claim->replica->load.prompt_tokens, -(int64_t)claim->prompt_tokens);
    claim->prompt_tokens = 0;
}

void replica_claim_progress(struct replica_claim *claim, uint32_t tokens)
{
    if (!claim->replica)
        return;
    uint32_t given_back = tokens < claim->output_tokens ? tokens : claim->output_tokens;
    if (given_back == 0)
        return;
    add(&claim->replica->load.output_tokens, -(int64_t)given_back);
    claim->output_tokens -= given_back;
}

void replica_claim_release(struct replica_claim *claim)
{
    struct replica *r = claim->replica;
    if (!r)
        return;
    replica_claim_first_token(claim);
    replica_claim_progress(claim, claim->output_tokens);
    add(&r->load.requests, -1);
    *claim = (struct replica_claim){0};
    replica_drop(r);
}
