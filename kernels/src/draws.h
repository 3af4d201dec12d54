/* The numbers of NumPy's Generator with the bit generator Philox, from the position of a sample on; see
   dali_like/graph/language/operator_random.py. */

#ifndef DALI_LIKE_DRAWS_H
#define DALI_LIKE_DRAWS_H

#include <stdint.h>

typedef struct {
    uint64_t key[2], counter[4], numbers[4];
    int used, has_half;
    uint32_t half;
} Draws;

Draws dlk_draws_of(const uint64_t *key, uint64_t epoch, uint64_t position);
uint64_t dlk_next(Draws *draws);
uint64_t dlk_below(Draws *draws, uint64_t bound);

/* A number from 0 to 1, without 1. */
static inline double dlk_unit(Draws *draws)
{
    return (double)(dlk_next(draws) >> 11) * (1.0 / 9007199254740992.0);
}

static inline double dlk_between(Draws *draws, double low, double high)
{
    return low + (high - low) * dlk_unit(draws);
}

#endif
