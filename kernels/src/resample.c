/* Scale images of bytes by two band matrices. Weights are multiples of 1/4096, and rows between the two products have
   multiples of 1/16, so all sums are exact in single precision, in any order; see
   dali_like/operators/geometry/_resampling.py. */

#include "kernels.h"

#include <math.h>
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

/* NumPy's sum of numbers in a row. */
static double sum_of(const double *values, int64_t count)
{
    double sums[8], sum = 0;
    if (count < 8) {
        for (int64_t i = 0; i < count; i++)
            sum += values[i];
        return sum;
    }
    if (count > 128) {
        int64_t half = count / 2 - count / 2 % 8;
        return sum_of(values, half) + sum_of(values + half, count - half);
    }
    for (int i = 0; i < 8; i++)
        sums[i] = values[i];
    int64_t i = 8;
    for (; i < count - count % 8; i += 8)
        for (int k = 0; k < 8; k++)
            sums[k] += values[i + k];
    sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; i < count; i++)
        sum += values[i];
    return sum;
}

enum { MOST_TAPS = 256 };

/* An axis to scale: the region from `start` to `end`, below `start` if mirrored, of an axis of this extent. */
typedef struct {
    double start, end, scale;
    int64_t size, extent, is_mirrored, is_whole, taps;
} Axis;

static Axis axis_of(const double *region, int64_t size, int64_t extent, int64_t antialias)
{
    Axis axis = {fmin(region[0], region[1]), fmax(region[0], region[1]), 0, size, extent, region[0] > region[1], 0, 0};
    axis.scale = (axis.end - axis.start) / (double)size;
    axis.is_whole = size == extent && axis.start == 0 && axis.end == (double)extent;
    axis.taps = (int64_t)ceil(2 * (antialias && axis.scale > 1 ? axis.scale : 1.0));
    return axis;
}

/* Leave the part of an axis that the result depends on. Returns where it begins. */
static int64_t see(Axis *axis, int64_t antialias)
{
    double margin = (antialias && axis->scale > 1 ? axis->scale : 1.0) + 1;
    double first = floor(axis->start - margin), last = ceil(axis->end + margin);
    int64_t begin = first < 0 ? 0 : (int64_t)first, end = last > (double)axis->extent ? axis->extent : (int64_t)last;
    begin = begin < axis->extent - 1 ? begin : axis->extent - 1;
    end = end > begin + 1 ? end : begin + 1;
    if (begin == 0 && end == axis->extent)
        return 0;
    axis->start -= (double)begin;
    axis->end -= (double)begin;
    axis->extent = end - begin;
    return begin;
}

/* Weights of neighbors by the triangular filter, as `neighbors` of _resampling.py. `firsts` and `weights` have the room of the
   taps of all pixels. */
static Band band_of(const Axis *axis, int64_t antialias, int is_reversed, int32_t *firsts, float *weights)
{
    double scale = (axis->end - axis->start) / (double)axis->size, radius = antialias && scale > 1 ? scale : 1.0;
    int64_t taps = (int64_t)ceil(2 * radius), count = taps < axis->extent ? taps : axis->extent;
    double parts[MOST_TAPS + 1];
    memset(weights, 0, (size_t)(axis->size * count) * sizeof(float));
    for (int64_t i = 0; i < axis->size; i++) {
        int64_t row = is_reversed ? axis->size - 1 - i : i;
        double center = axis->start + ((double)i + 0.5) * scale - 0.5, first = ceil(center - radius), sum = 0, before = 0;
        for (int64_t k = 0; k < taps; k++) {
            double part = 1 - fabs(((first - center) + (double)k) / radius);
            parts[k] = part > 0 ? part : 0;
        }
        double total = sum_of(parts, taps);
        int64_t column = (int64_t)first, most = axis->extent - count;
        int64_t place = column < 0 ? 0 : column > most ? most : column;
        firsts[row] = (int32_t)place;
        for (int64_t k = 0; k < taps; k++) {
            sum = k ? sum + parts[k] / total : parts[k] / total;
            double units = rint(sum * 4096);
            int64_t neighbor = column + k;
            neighbor = neighbor < 0 ? 0 : neighbor >= axis->extent ? axis->extent - 1 : neighbor;
            weights[row * count + neighbor - place] += (float)(units - before);
            before = units;
        }
    }
    return (Band){axis->size, count, firsts, weights};
}

static int64_t scale_one(const int64_t *job, const double *regions, int64_t antialias)
{
    int64_t channels = job[4];
    Axis down = axis_of(regions, job[5], job[2], antialias), across = axis_of(regions + 2, job[6], job[3], antialias);
    Image image = {(const uint8_t *)job[0], (uint8_t *)job[1], job[3] * channels, job[6] * channels, job[2], job[3], channels,
                   0, {down.size, 0, 0, 0}, {across.size, 0, 0, 0}};
    if (down.is_mirrored) {
        image.to += (down.size - 1) * image.to_row_bytes;
        image.to_row_bytes = -image.to_row_bytes;
    }
    image.across_first = !down.is_whole && !across.is_whole && down.size > down.extent && across.size <= across.extent;
    if (down.is_whole && across.is_whole) {
        for (int64_t y = 0; y < down.size; y++)
            memcpy(image.to + y * image.to_row_bytes, image.from + y * image.row_bytes, (size_t)image.row_bytes);
        return 0;
    }
    int64_t room = down.size * (down.taps + 1) + across.size * (across.taps + 1);
    char *memory = malloc((size_t)room * (sizeof(float) + sizeof(int32_t)));
    if (!memory)
        return -1;
    float *weights = (float *)memory;
    int32_t *firsts = (int32_t *)(weights + room);
    if (!down.is_whole) {
        image.from += see(&down, antialias) * image.row_bytes;
        image.height = down.extent;
        image.down = band_of(&down, antialias, 0, firsts, weights);
    }
    if (!across.is_whole) {
        image.from += see(&across, antialias) * channels;
        image.width = across.extent;
        image.across = band_of(&across, antialias, (int)across.is_mirrored, firsts + down.size,
                               weights + down.size * (down.taps + 1));
    }
    int64_t status = dlk_resample(&image);
    free(memory);
    return status;
}

/* Whether dlk_resample_batch scales all images: no filter is too wide, and no row is only reversed. */
EXPORT int64_t dlk_resample_serves(int64_t count, const int64_t *jobs, const double *regions, int64_t antialias)
{
    for (int64_t i = 0; i < count; i++, jobs += 7, regions += 4) {
        Axis down = axis_of(regions, jobs[5], jobs[2], antialias), across = axis_of(regions + 2, jobs[6], jobs[3], antialias);
        if (!(down.taps <= MOST_TAPS && across.taps <= MOST_TAPS) || (across.is_whole && across.is_mirrored))
            return 0;
    }
    return 1;
}

/* Scale images by triangular filters for each job: from, to, height, width, channels, height and width of the result. `regions`
   has the start and the end of the rows, and of the columns, for each. Returns 0, or -1 without memory. */
EXPORT int64_t dlk_resample_batch(int64_t count, const int64_t *jobs, const double *regions, int64_t antialias)
{
    for (int64_t i = 0; i < count; i++)
        if (scale_one(jobs + 7 * i, regions + 4 * i, antialias))
            return -1;
    return 0;
}
