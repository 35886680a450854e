#include "base/rng.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

/* SplitMix64, as the authors recommend for seeding: never leaves an all-zero state. */
void rng_seed(struct rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = (seed += 0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        rng->state[i] = z ^ (z >> 31);
    }
}

uint64_t rng_next(struct rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotl(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    if (bound == 0)
        WEIR_BUG("rng_below(0): there is no number below 0");
    __uint128_t product = (__uint128_t)rng_next(rng) * bound;
    if ((uint64_t)product < bound) {
        uint64_t biased = -bound % bound; /* 2^64 mod bound low parts come once too often */
        while ((uint64_t)product < biased)
            product = (__uint128_t)rng_next(rng) * bound;
    }
    return (uint64_t)(product >> 64);
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1.0p-53; /* all 53 bits of a double */
}

void rng_secret(void *out, size_t len)
{
    char *at = out;
    while (len > 0) {
        ssize_t got = getrandom(at, len, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            WEIR_BUG("the kernel gives no random bytes: %s", strerror(errno));
        at += got;
        len -= (size_t)got;
    }
}
