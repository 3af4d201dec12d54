#include "draws.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 10 };

static uint64_t multiply(uint64_t a, uint64_t b, uint64_t *high)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
}

static void philox(const uint64_t *counter, const uint64_t *key, uint64_t *numbers)
{
    uint64_t x[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t high0, high1;
        uint64_t low0 = multiply(0xD2E7470EE14C6C93u, x[0], &high0);
        uint64_t low1 = multiply(0xCA5A826395121157u, x[2], &high1);
        uint64_t next[4] = {high1 ^ x[1] ^ k[0], low1, high0 ^ x[3] ^ k[1], low0};
        for (int i = 0; i < 4; i++)
            x[i] = next[i];
        k[0] += 0x9E3779B97F4A7C15u;
        k[1] += 0xBB67AE8584CAA73Bu;
    }
    for (int i = 0; i < 4; i++)
        numbers[i] = x[i];
}

Draws dlk_draws_of(const uint64_t *key, uint64_t epoch, uint64_t position)
{
    Draws draws = {.key = {key[0], key[1]}, .counter = {0, 0, position, epoch}, .used = 4};
    return draws;
}

uint64_t dlk_next(Draws *draws)
{
    if (draws->used == 4) {
        for (int i = 0; i < 4 && !++draws->counter[i]; i++)
            ;
        philox(draws->counter, draws->key, draws->numbers);
        draws->used = 0;
    }
    return draws->numbers[draws->used++];
}

static uint32_t next_half(Draws *draws)
{
    if (draws->has_half) {
        draws->has_half = 0;
        return draws->half;
    }
    uint64_t number = dlk_next(draws);
    draws->has_half = 1;
    draws->half = (uint32_t)(number >> 32);
    return (uint32_t)number;
}

/* An integer from 0 to `bound` - 1; the bound is at most 2**32 - 1. */
uint64_t dlk_below(Draws *draws, uint64_t bound)
{
    if (bound <= 1)
        return 0;
    uint64_t product = (uint64_t)next_half(draws) * bound;
    if ((uint32_t)product < bound) {
        uint32_t threshold = (uint32_t)((UINT32_MAX - (bound - 1)) % bound);
        while ((uint32_t)product < threshold)
            product = (uint64_t)next_half(draws) * bound;
    }
    return product >> 32;
}

/* Write numbers from 0 to 1 for each sample. */
EXPORT void dlk_units(int64_t count, const uint64_t *key, int64_t epoch, const int64_t *positions, int64_t each, double *to)
{
    for (int64_t i = 0; i < count; i++) {
        Draws draws = dlk_draws_of(key, (uint64_t)epoch, (uint64_t)positions[i]);
        for (int64_t k = 0; k < each; k++)
            *to++ = dlk_unit(&draws);
    }
}

/* Write integers from `least` to `most` for each sample; both have `each` numbers for each. */
EXPORT void dlk_integers(int64_t count, const uint64_t *key, int64_t epoch, const int64_t *positions, int64_t each,
                         const int64_t *least, const int64_t *most, int64_t *to)
{
    for (int64_t i = 0; i < count; i++) {
        Draws draws = dlk_draws_of(key, (uint64_t)epoch, (uint64_t)positions[i]);
        for (int64_t k = 0; k < each; k++, least++, most++)
            *to++ = *least + (int64_t)dlk_below(&draws, (uint64_t)(*most - *least) + 1);
    }
}

/* Draw `each` rows for each job: from, to, number of rows, bytes of a row. */
EXPORT void dlk_choose(int64_t count, const int64_t *jobs, const uint64_t *key, int64_t epoch, const int64_t *positions,
                       int64_t each)
{
    for (int64_t i = 0; i < count; i++, jobs += 4) {
        Draws draws = dlk_draws_of(key, (uint64_t)epoch, (uint64_t)positions[i]);
        char *to = (char *)jobs[1];
        for (int64_t k = 0; k < each; k++, to += jobs[3])
            memcpy(to, (const char *)jobs[0] + (int64_t)dlk_below(&draws, (uint64_t)jobs[2]) * jobs[3], (size_t)jobs[3]);
    }
}

/* Replace pixels by salt or pepper at random for each job: from, to, pixels, bytes of a pixel. `parts` has the probabilities
   of a replacement and of salt for each; `values` have pixels of pepper, and then of salt, for each. */
EXPORT void dlk_salt_and_pepper(int64_t count, const int64_t *jobs, const uint64_t *key, int64_t epoch,
                                const int64_t *positions, const double *parts, const char *values)
{
    for (int64_t i = 0; i < count; i++, jobs += 4, parts += 2) {
        Draws draws = dlk_draws_of(key, (uint64_t)epoch, (uint64_t)positions[i]);
        char *to = (char *)jobs[1];
        const int64_t pixels = jobs[2], pixel = jobs[3];
        memcpy(to, (const char *)jobs[0], (size_t)(pixels * pixel));
        for (int64_t k = 0; k < pixels; k++) {
            double number = dlk_unit(&draws);
            if (number < parts[0])
                memcpy(to + k * pixel, values + (number < parts[1] ? pixel : 0), (size_t)pixel);
        }
        values += 2 * pixel;
    }
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Draw windows as random_window of dali_like/operators/geometry/_windows.py does. `sides` has height and width for each sample;
   `limits` areas and ratios. Writes top, left, height and width. */
EXPORT void dlk_windows(int64_t count, const uint64_t *key, int64_t epoch, const int64_t *positions, const int64_t *sides,
                        const double *limits, int64_t attempts, int64_t *to)
{
    double least = log(limits[2]), most = log(limits[3]);
    for (int64_t i = 0; i < count; i++, to += 4) {
        Draws draws = dlk_draws_of(key, (uint64_t)epoch, (uint64_t)positions[i]);
        int64_t height = sides[2 * i], width = sides[2 * i + 1], across = 0, down = 0, k = 0;
        to[0] = to[1] = to[2] = to[3] = 0;
        if (height <= 0 || width <= 0)
            continue;
        for (; k < attempts; k++) {
            double area = (double)(height * width) * (limits[0] + (limits[1] - limits[0]) * dlk_unit(&draws));
            double ratio = exp(least + (most - least) * dlk_unit(&draws));
            across = (int64_t)rint(sqrt(area * ratio));
            down = (int64_t)rint(sqrt(area / ratio));
            if (0 < across && across <= width && 0 < down && down <= height)
                break;
        }
        if (k == attempts) {
            across = width;
            down = height;
            if ((double)width > limits[3] * (double)height)
                across = largest((int64_t)rint(limits[3] * (double)height), 1);
            else if ((double)width < limits[2] * (double)height)
                down = largest((int64_t)rint((double)width / limits[2]), 1);
            double part = limits[1] * (double)height * (double)width / (double)(across * down);
            double shrink = sqrt(part < 1 ? part : 1);
            across = largest((int64_t)rint((double)across * shrink), 1);
            down = largest((int64_t)rint((double)down * shrink), 1);
        }
        to[0] = (int64_t)dlk_below(&draws, (uint64_t)(height - down + 1));
        to[1] = (int64_t)dlk_below(&draws, (uint64_t)(width - across + 1));
        to[2] = down;
        to[3] = across;
    }
}
