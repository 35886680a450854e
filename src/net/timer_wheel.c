#include "net/timer_wheel.h"

#include <stdbool.h>

#include "base/heap.h"
#include "net/loop.h"

struct timer_wheel {
    uint64_t tick; /* everything due at or before it has fired */
    size_t count;
    uint64_t maybe[WHEEL_SLOTS / 64];              /* slots of level 0: clear means empty */
    struct timer slots[WHEEL_LEVELS][WHEEL_SLOTS]; /* list heads */
};

static void list_init(struct timer *head)
{
    head->next = head;
    head->prev = head;
}

static void list_append(struct timer *head, struct timer *timer)
{
    timer->prev = head->prev;
    timer->next = head;
    head->prev->next = timer;
    head->prev = timer;
}

static void list_unlink(struct timer *timer)
{
    timer->prev->next = timer->next;
    timer->next->prev = timer->prev;
    timer->next = NULL;
    timer->prev = NULL;
}

/* All timers of `from` go to the empty head `to`; callbacks may then edit `from` freely. */
static void list_take(struct timer *from, struct timer *to)
{
    list_init(to);
    if (from->next == from) {
        return;
    }
    to->next = from->next;
    to->prev = from->prev;
    to->next->prev = to;
    to->prev->next = to;
    list_init(from);
}

struct timer_wheel *timer_wheel_new(uint64_t now_ns)
{
    struct timer_wheel *wheel = heap_zalloc(sizeof *wheel);
    wheel->tick = now_ns / WHEEL_TICK_NS;
    for (int level = 0; level < WHEEL_LEVELS; level++) {
        for (int slot = 0; slot < WHEEL_SLOTS; slot++) {
            list_init(&wheel->slots[level][slot]);
        }
    }
    return wheel;
}

void timer_wheel_free(struct timer_wheel *wheel)
{
    heap_free(wheel);
}

static uint64_t due_tick(const struct timer *timer)
{
    return (timer->deadline_ns + WHEEL_TICK_NS - 1) / WHEEL_TICK_NS;
}

/* `earliest`: the first tick that will still fire. */
static void place(struct timer_wheel *wheel, struct timer *timer, uint64_t earliest)
{
    uint64_t tick = due_tick(timer);
    if (tick < earliest) {
        tick = earliest;
    }
    uint64_t delta = tick - wheel->tick;
    int level = 0;
    while (level < WHEEL_LEVELS - 1 && delta >> (WHEEL_BITS * (level + 1))) {
        level++;
    }
    uint64_t slot = (tick >> (WHEEL_BITS * level)) % WHEEL_SLOTS;
    list_append(&wheel->slots[level][slot], timer);
    if (level == 0) {
        wheel->maybe[slot / 64] |= 1ull << (slot % 64);
    }
}

void timer_wheel_add(struct timer_wheel *wheel, struct timer *timer, uint64_t deadline_ns)
{
    timer->deadline_ns = deadline_ns;
    place(wheel, timer, wheel->tick + 1);
    wheel->count++;
}

void timer_wheel_remove(struct timer_wheel *wheel, struct timer *timer)
{
    list_unlink(timer);
    wheel->count--;
}

/* A level's slot has come into the reach of the level below: deal its timers out again. */
static void cascade(struct timer_wheel *wheel, int level)
{
    uint64_t slot = (wheel->tick >> (WHEEL_BITS * level)) % WHEEL_SLOTS;
    if (slot == 0 && level + 1 < WHEEL_LEVELS) {
        cascade(wheel, level + 1);
    }
    struct timer due;
    list_take(&wheel->slots[level][slot], &due);
    while (due.next != &due) {
        struct timer *timer = due.next;
        list_unlink(timer);
        place(wheel, timer, wheel->tick);
    }
}

static void fire_slot(struct timer_wheel *wheel)
{
    struct timer due;
    list_take(&wheel->slots[0][wheel->tick % WHEEL_SLOTS], &due);
    while (due.next != &due) {
        struct timer *timer = due.next;
        list_unlink(timer);
        wheel->count--;
        timer->on_fire(timer);
    }
}

void timer_wheel_advance(struct timer_wheel *wheel, uint64_t now_ns)
{
    uint64_t target = now_ns / WHEEL_TICK_NS;
    while (wheel->tick < target) {
        if (wheel->count == 0) {
            wheel->tick = target;
            return;
        }
        wheel->tick++;
        if (wheel->tick % WHEEL_SLOTS == 0) {
            cascade(wheel, 1);
        }
        fire_slot(wheel);
    }
}

/*
 * The first slot of level 0 from `from` on that holds a timer, or WHEEL_SLOTS. Removing a timer
 * leaves its slot's bit set, for it does not know its slot; it is cleared here. The loop asks in
 * every turn, so that walking the slots was half of what a relayed event cost in user space.
 */
static uint64_t find_slot(struct timer_wheel *wheel, uint64_t from)
{
    uint64_t from_mask = ~0ull << (from % 64);
    for (uint64_t word = from / 64; word < WHEEL_SLOTS / 64; word++, from_mask = ~0ull) {
        uint64_t bits;
        while ((bits = wheel->maybe[word] & from_mask)) {
            uint64_t slot = word * 64 + (uint64_t)__builtin_ctzll(bits);
            const struct timer *head = &wheel->slots[0][slot];
            if (head->next != head) {
                return slot;
            }
            wheel->maybe[word] &= ~(1ull << (slot % 64));
        }
    }
    return WHEEL_SLOTS;
}

uint64_t timer_wheel_wait(struct timer_wheel *wheel, uint64_t now_ns, uint64_t max_ns)
{
    if (wheel->count == 0) {
        return max_ns;
    }
    /* The next timer of level 0, or the next cascade, whichever is first. */
    uint64_t tick = wheel->tick + 1, slot = tick % WHEEL_SLOTS;
    if (slot != 0) {
        tick += find_slot(wheel, slot) - slot;
    }
    uint64_t due_ns = tick * WHEEL_TICK_NS;
    if (due_ns <= now_ns) {
        return 0;
    }
    return due_ns - now_ns < max_ns ? due_ns - now_ns : max_ns;
}
