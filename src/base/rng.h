/*
 * rng.h - xoshiro256++ (Blackman and Vigna, 2019): fast, seeded, replayable. Not for secrets;
 * rng_secret() is.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state[4];
};

/* Any seed is good; equal seeds give equal sequences on every machine. */
void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_next(struct rng *rng);

/* Uniform in [0, bound); bound > 0. Without modulo bias (Lemire 2019). */
uint64_t rng_below(struct rng *rng, uint64_t bound);

/* Uniform in [0, 1). */
double rng_unit(struct rng *rng);

/* Bytes from the kernel, for seeds, ids and keys. Aborts if the kernel has none. */
void rng_secret(void *out, size_t len);
