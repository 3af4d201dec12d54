/* Scale images of bytes by two band matrices. Weights are multiples of 1/4096, and rows between the two products have
   multiples of 1/16, so all sums are exact in single precision, in any order; see
   dali_like/operators/geometry/_resampling.py. */

#include "kernels.h"

#include <stdlib.h>
#include <string.h>

/* Units of weights and of pixels between the products. */
#define WEIGHT (1.0f / 4096)
#define BETWEEN 16.0f
/* Adding and subtracting it rounds a number below 2^22, halves to even. */
#define ROUNDER 12582912.0f

typedef float Pixel __attribute__((vector_size(16), aligned(4), may_alias));

/* One axis: a pixel of the result is a sum of `taps` neighbors. taps: 0 for an axis that stays. */
typedef struct {
    int64_t size, taps;
    const int32_t *firsts;
    const float *weights;
} Band;

typedef struct {
    const uint8_t *from;
    uint8_t *to;
    int64_t row_bytes, to_row_bytes; /* distances of rows */
    int64_t height, width, channels;
    int64_t across_first;
    Band down, across;
} Image;

VECTORS static void widen(const uint8_t *restrict from, float *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i];
}

VECTORS static void add_two(const uint8_t *restrict one, const uint8_t *restrict two, float a, float b, float *restrict to,
                            int64_t count, int is_first)
{
    if (is_first)
        for (int64_t i = 0; i < count; i++)
            to[i] = (float)one[i] * a + (float)two[i] * b;
    else
        for (int64_t i = 0; i < count; i++)
            to[i] += (float)one[i] * a + (float)two[i] * b;
}

VECTORS static void add_floats(const float *restrict from, float weight, float *restrict to, int64_t count, int is_first)
{
    if (is_first)
        for (int64_t i = 0; i < count; i++)
            to[i] = from[i] * weight;
    else
        for (int64_t i = 0; i < count; i++)
            to[i] += from[i] * weight;
}

VECTORS static void round_between(float *restrict values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = (values[i] * (WEIGHT * BETWEEN) + ROUNDER) - ROUNDER;
}

VECTORS static void round_to_bytes(const float *restrict from, float unit, uint8_t *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (uint8_t)(int32_t)((from[i] * unit + ROUNDER) - ROUNDER);
}

/* Sums of bytes in several rows. */
static void down_bytes(const Image *image, int64_t y, float *to)
{
    int64_t count = image->width * image->channels, taps = image->down.taps;
    const float *weights = image->down.weights + y * taps;
    const uint8_t *row = image->from + image->down.firsts[y] * image->row_bytes;
    for (int64_t k = 0; k < taps; k += 2) {
        int is_last = k + 1 == taps;
        add_two(row + k * image->row_bytes, row + (k + !is_last) * image->row_bytes, weights[k], is_last ? 0 : weights[k + 1],
                to, count, !k);
    }
}

/* Sums of neighbors in a row, which has the space of a Pixel behind its end. */
static void across_floats(const Band *band, const float *from, int64_t channels, float *to)
{
    int64_t taps = band->taps;
    const float *weights = band->weights;
    if (channels == 3 || channels == 4) {
        for (int64_t x = 0; x < band->size; x++, weights += taps) {
            const float *pixel = from + band->firsts[x] * channels;
            Pixel sum = *(const Pixel *)pixel * weights[0];
            for (int64_t k = 1; k < taps; k++)
                sum += *(const Pixel *)(pixel + k * channels) * weights[k];
            *(Pixel *)(to + x * channels) = sum;
        }
        return;
    }
    for (int64_t x = 0; x < band->size; x++, weights += taps)
        for (int64_t c = 0; c < channels; c++) {
            const float *pixel = from + band->firsts[x] * channels + c;
            float sum = 0;
            for (int64_t k = 0; k < taps; k++)
                sum += pixel[k * channels] * weights[k];
            to[x * channels + c] = sum;
        }
}

static void down_then_across(const Image *image, float *row, float *sums)
{
    int64_t count = image->width * image->channels;
    for (int64_t y = 0; y < image->down.size; y++) {
        uint8_t *to = image->to + y * image->to_row_bytes;
        float unit = WEIGHT;
        if (image->down.taps)
            down_bytes(image, y, row);
        else
            widen(image->from + y * image->row_bytes, row, count);
        if (!image->across.taps) {
            round_to_bytes(row, unit, to, count);
            continue;
        }
        if (image->down.taps) {
            round_between(row, count);
            unit = WEIGHT / BETWEEN;
        }
        across_floats(&image->across, row, image->channels, sums);
        round_to_bytes(sums, unit, to, image->across.size * image->channels);
    }
}

/* `rows` has the space of as many rows of the result as there are taps. */
static void across_then_down(const Image *image, float *row, float *sums, float *rows)
{
    int64_t count = image->across.size * image->channels, step = count + 4, taps = image->down.taps, next = 0;
    for (int64_t y = 0; y < image->down.size; y++) {
        int64_t first = image->down.firsts[y];
        const float *weights = image->down.weights + y * taps;
        for (next = next > first ? next : first; next < first + taps; next++) {
            float *target = rows + next % taps * step;
            widen(image->from + next * image->row_bytes, row, image->width * image->channels);
            across_floats(&image->across, row, image->channels, target);
            round_between(target, count);
        }
        for (int64_t k = 0; k < taps; k++)
            add_floats(rows + (first + k) % taps * step, weights[k], sums, count, !k);
        round_to_bytes(sums, WEIGHT / BETWEEN, image->to + y * image->to_row_bytes, count);
    }
}

/* Scale an image. Returns 0, or -1 without memory. */
EXPORT int64_t dlk_resample(const Image *image)
{
    int64_t from = image->width * image->channels + 4, to = image->across.size * image->channels + 4;
    int64_t ring = image->across_first ? image->down.taps * to : 0;
    float *row = malloc((size_t)(from + to + ring) * sizeof(float));
    if (!row)
        return -1;
    memset(row + from - 4, 0, 4 * sizeof(float));
    if (image->across_first)
        across_then_down(image, row, row + from, row + from + to);
    else
        down_then_across(image, row, row + from);
    free(row);
    return 0;
}
