/*
 * timer_wheel.h - hierarchical timing wheel (Varghese and Lauck, 1987): 4 levels of 256 slots, one
 * tick of 4 ms. Arming and cancelling are O(1) and touch one list; a timer moves down at most three
 * times. Pure: time is handed in. Used by net/loop.c.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct timer; /* net/loop.h */

enum { WHEEL_BITS = 8, WHEEL_SLOTS = 1 << WHEEL_BITS, WHEEL_LEVELS = 4 };
#define WHEEL_TICK_NS 4000000ull

struct timer_wheel;

struct timer_wheel *timer_wheel_new(uint64_t now_ns);
void timer_wheel_free(struct timer_wheel *wheel);

void timer_wheel_add(struct timer_wheel *wheel, struct timer *timer, uint64_t deadline_ns);
void timer_wheel_remove(struct timer_wheel *wheel, struct timer *timer);

/* Fires what is due, each timer unlinked before its callback, which may add and remove any timer.
 */
void timer_wheel_advance(struct timer_wheel *wheel, uint64_t now_ns);

/* Nanoseconds until advance() could have something to do, at most `max_ns`. */
uint64_t timer_wheel_wait(struct timer_wheel *wheel, uint64_t now_ns, uint64_t max_ns);
