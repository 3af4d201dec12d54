/* Sums in the order of NumPy, and operators on them. */

#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* NumPy converts and sums this many elements at a time, if it must convert them. */
enum { BLOCK = 8192, PAIRWISE = 128 };

/* The sum of `of(values[i])`, added in NumPy's order: eight partial sums of up to 128 numbers, and halves of longer arrays. */
#define PAIRWISE_SUM(name, type, of)                                                                                       \
    static double name(const type *restrict values, int64_t count, double other)                                          \
    {                                                                                                                      \
        (void)other;                                                                                                       \
        if (count < 8) {                                                                                                   \
            double sum = 0;                                                                                                \
            for (int64_t i = 0; i < count; i++)                                                                            \
                sum += of(values[i]);                                                                                      \
            return sum;                                                                                                    \
        }                                                                                                                  \
        if (count <= PAIRWISE) {                                                                                           \
            double sums[8];                                                                                                \
            for (int i = 0; i < 8; i++)                                                                                    \
                sums[i] = of(values[i]);                                                                                   \
            int64_t i = 8;                                                                                                 \
            for (; i < count - count % 8; i += 8)                                                                          \
                for (int k = 0; k < 8; k++)                                                                                \
                    sums[k] += of(values[i + k]);                                                                          \
            double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));        \
            for (; i < count; i++)                                                                                         \
                sum += of(values[i]);                                                                                      \
            return sum;                                                                                                    \
        }                                                                                                                  \
        int64_t half = count / 2;                                                                                          \
        half -= half % 8;                                                                                                  \
        return name(values, half, other) + name(values + half, count - half, other);                                       \
    }
#define ITSELF(value) ((double)(value))
#define SQUARE(value) ((double)((value) * (value)))
#define WIDE_SQUARE(value) ((double)(value) * (double)(value))
#define SQUARED_DISTANCE(value) (((double)(value)-other) * ((double)(value)-other))

PAIRWISE_SUM(sum_floats, float, ITSELF)
PAIRWISE_SUM(sum_squares, float, SQUARE)
PAIRWISE_SUM(sum_wide_squares, float, WIDE_SQUARE)
PAIRWISE_SUM(sum_distances_float, float, SQUARED_DISTANCE)
PAIRWISE_SUM(sum_distances_uint8_t, uint8_t, SQUARED_DISTANCE)

typedef double (*Sum)(const float *, int64_t, double);

static double in_blocks(Sum sum, const float *values, int64_t count)
{
    double total = 0;
    for (int64_t begin = 0; begin < count; begin += BLOCK)
        total += sum(values + begin, count - begin < BLOCK ? count - begin : BLOCK, 0);
    return total;
}

VECTORS static int64_t sum_bytes(const uint8_t *values, int64_t count)
{
    int64_t total = 0;
    while (count > 0) {
        int64_t part = count < 1 << 16 ? count : 1 << 16;
        uint32_t sum = 0;
        for (int64_t i = 0; i < part; i++)
            sum += values[i];
        total += sum;
        values += part;
        count -= part;
    }
    return total;
}

VECTORS static int64_t sum_squared_bytes(const uint8_t *values, int64_t count)
{
    int64_t total = 0;
    while (count > 0) {
        int64_t part = count < 1 << 15 ? count : 1 << 15;
        uint32_t sum = 0;
        for (int64_t i = 0; i < part; i++)
            sum += (uint32_t)values[i] * values[i];
        total += sum;
        values += part;
        count -= part;
    }
    return total;
}

enum reduction { SUM, SQUARES, DISTANCES };

/* Reduce all elements to a float64 for each job: from, number of elements. `means` has one number for each, for DISTANCES. */
EXPORT void dlk_reduce(int64_t count, int64_t element, int64_t reduction, const int64_t *jobs, const double *means,
                       double *to)
{
    for (int64_t i = 0; i < count; i++, jobs += 2) {
        int64_t size = jobs[1];
        if (element == U8) {
            const uint8_t *from = (const uint8_t *)jobs[0];
            to[i] = reduction == SUM       ? (double)sum_bytes(from, size)
                    : reduction == SQUARES ? (double)sum_squared_bytes(from, size)
                                           : sum_distances_uint8_t(from, size, means[i]);
        } else {
            const float *from = (const float *)jobs[0];
            to[i] = reduction == SUM       ? in_blocks(sum_floats, from, size)
                    : reduction == SQUARES ? sum_wide_squares(from, size, 0)
                                           : sum_distances_float(from, size, means[i]);
        }
    }
}

enum { LANES = 16, MOST_INNER = 16, SAFE_SUMS = 1 << 16 };

VECTORS static void add_bytes(const uint8_t *restrict from, uint32_t *restrict sums, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sums[i] += from[i];
}

VECTORS static void add_squares(const uint8_t *restrict from, uint32_t *restrict sums, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sums[i] += (uint32_t)from[i] * from[i];
}

/* Sum vectors of `inner` bytes. Short ones are summed several at a time. */
static void sum_vectors(const uint8_t *from, int64_t vectors, int64_t inner, int squares, uint64_t *totals, uint32_t *sums)
{
    int64_t lanes = inner <= MOST_INNER ? LANES : 1, width = inner * lanes;
    memset(totals, 0, (size_t)inner * sizeof(*totals));
    while (vectors > 0) {
        int64_t steps = vectors / lanes;
        if (!steps) {
            lanes = 1;
            width = inner;
            steps = vectors;
        }
        steps = steps < SAFE_SUMS ? steps : SAFE_SUMS;
        memset(sums, 0, (size_t)width * sizeof(*sums));
        for (int64_t i = 0; i < steps; i++, from += width)
            (squares ? add_squares : add_bytes)(from, sums, width);
        for (int64_t i = 0; i < width; i++)
            totals[i % inner] += sums[i];
        vectors -= steps * lanes;
    }
}

enum axis_reduction { TOTAL, MEAN, MEAN_SQUARE, ROOT_MEAN_SQUARE };

/* Reduce adjacent axes of bytes for each job: from, to, and extents: of the axes before them, of all of them, of those behind.
   The results are U64 for TOTAL, otherwise F32. Returns 0, or -1 without memory. */
EXPORT int64_t dlk_reduce_axes(int64_t count, int64_t reduction, const int64_t *jobs)
{
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most = jobs[5 * i + 4] > most ? jobs[5 * i + 4] : most;
    size_t width = (size_t)(most <= MOST_INNER ? MOST_INNER * LANES : most);
    if (width < MOST_INNER * LANES)
        width = MOST_INNER * LANES;
    uint64_t *totals = malloc((size_t)most * sizeof(uint64_t) + width * sizeof(uint32_t));
    if (!totals)
        return -1;
    uint32_t *sums = (uint32_t *)(totals + most);
    for (int64_t job = 0; job < count; job++, jobs += 5) {
        int64_t reduced = jobs[3], inner = jobs[4];
        const uint8_t *from = (const uint8_t *)jobs[0];
        for (int64_t outer = 0; outer < jobs[2]; outer++, from += reduced * inner) {
            sum_vectors(from, reduced, inner, reduction >= MEAN_SQUARE, totals, sums);
            for (int64_t k = 0; k < inner; k++) {
                double mean = (double)totals[k] / (double)reduced;
                if (reduction == TOTAL)
                    ((uint64_t *)jobs[1])[outer * inner + k] = totals[k];
                else
                    ((float *)jobs[1])[outer * inner + k] = (float)(reduction == ROOT_MEAN_SQUARE ? sqrt(mean) : mean);
            }
        }
    }
    free(totals);
    return 0;
}

#define EXTREMES(type, name)                                                                                               \
    VECTORS static void extremes_##name(const type *from, int64_t count, type *to)                                        \
    {                                                                                                                      \
        type least = from[0], most = from[0];                                                                              \
        for (int64_t i = 1; i < count; i++) {                                                                              \
            least = from[i] < least ? from[i] : least;                                                                     \
            most = from[i] > most ? from[i] : most;                                                                        \
        }                                                                                                                  \
        to[0] = least;                                                                                                     \
        to[1] = most;                                                                                                      \
    }

EXTREMES(uint8_t, bytes)
EXTREMES(int32_t, integers)

/* Write the least and the largest element, of which there is at least one, for each job: from, number of elements. */
EXPORT void dlk_extremes(int64_t count, int64_t element, const int64_t *jobs, char *to)
{
    for (int64_t i = 0; i < count; i++, jobs += 2)
        if (element == U8)
            extremes_bytes((const uint8_t *)jobs[0], jobs[1], (uint8_t *)to + 2 * i);
        else
            extremes_integers((const int32_t *)jobs[0], jobs[1], (int32_t *)to + 2 * i);
}

typedef struct {
    double ddof, epsilon, scale;
    float shift;
    int64_t has_mean, has_factor;
    float mean, factor; /* given, or ignored */
} Statistics;

VECTORS static void subtract(float *values, int64_t count, float mean)
{
    for (int64_t i = 0; i < count; i++)
        values[i] -= mean;
}

VECTORS static void scale_and_shift(float *values, int64_t count, float factor, float shift)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = values[i] * factor + shift;
}

VECTORS static void widen(const uint8_t *restrict from, int64_t step, float *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)from[i * step];
}

static void normalize_plane(float *values, int64_t count, const Statistics *given)
{
    float mean = given->mean, factor = given->factor;
    if (!given->has_mean)
        mean = (float)(in_blocks(sum_floats, values, count) / (double)count);
    subtract(values, count, mean);
    if (!given->has_factor) {
        double divisor = (double)count - given->ddof;
        double variance = (divisor > 0 ? in_blocks(sum_squares, values, count) / divisor : 0) + given->epsilon;
        factor = variance > 0 ? (float)(given->scale / sqrt(variance)) : 0;
    }
    scale_and_shift(values, count, factor, given->shift);
}

/* Normalize each channel by itself for each job: from, to, pixels, channels. The result is FLOAT. With one channel, a sample
   is normalized as a whole. Returns 0, or -1 without memory. */
EXPORT int64_t dlk_normalize(int64_t count, int64_t element, const int64_t *jobs, const Statistics *given)
{
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most = jobs[4 * i + 2] > most ? jobs[4 * i + 2] : most;
    float *plane = malloc((size_t)most * sizeof(float));
    if (!plane)
        return -1;
    for (int64_t i = 0; i < count; i++, jobs += 4) {
        int64_t pixels = jobs[2], channels = jobs[3];
        for (int64_t c = 0; c < channels && pixels; c++) {
            float *to = (float *)jobs[1] + c, *values = channels == 1 ? to : plane;
            if (element == U8) {
                widen((const uint8_t *)jobs[0] + c, channels, values, pixels);
            } else {
                const float *from = (const float *)jobs[0] + c;
                for (int64_t k = 0; k < pixels; k++)
                    values[k] = from[k * channels];
            }
            normalize_plane(values, pixels, given);
            if (channels != 1)
                for (int64_t k = 0; k < pixels; k++)
                    to[k * channels] = values[k];
        }
    }
    free(plane);
    return 0;
}
