/* Normalize, look up and mask the pixels of images. */

#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIRROR(bytes)                                                                                                      \
    case bytes:                                                                                                            \
        for (int64_t x = 0; x < width; x++)                                                                                \
            memcpy(to + x * bytes, from - x * bytes, bytes);                                                               \
        break;

/* Copy pixels from the last one of a row, whose address is `from`, to the first one. */
static void mirror_pixels(char *to, const char *from, int64_t width, int64_t pixel)
{
    switch (pixel) {
        MIRROR(1)
        MIRROR(3)
        MIRROR(4)
        MIRROR(6)
        MIRROR(12)
    default:
        for (int64_t x = 0; x < width; x++)
            memcpy(to + x * pixel, from - x * pixel, (size_t)pixel);
    }
}

VECTORS static void reverse(const float *restrict from, float *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[count - 1 - i];
}

/* A row of pixels becomes a row of floats for each channel, or pixels of floats. */

#define NORMALIZE(type)                                                                                                    \
    VECTORS static void normalize_line_##type(const type *restrict from, int64_t step, float *restrict to, int64_t count, \
                                              float subtrahend, float factor)                                              \
    {                                                                                                                      \
        if (step == 1)                                                                                                     \
            for (int64_t i = 0; i < count; i++)                                                                            \
                to[i] = ((float)from[i] - subtrahend) * factor;                                                            \
        else                                                                                                               \
            for (int64_t i = 0; i < count; i++)                                                                            \
                to[i] = ((float)from[i * step] - subtrahend) * factor;                                                     \
    }                                                                                                                      \
    VECTORS static void normalize_three_##type(const type *restrict from, float *restrict red, float *restrict green,     \
                                               float *restrict blue, int64_t count, const float *restrict subtrahends,     \
                                               const float *restrict factors)                                              \
    {                                                                                                                      \
        const float r = subtrahends[0], g = subtrahends[1], b = subtrahends[2];                                            \
        const float r_factor = factors[0], g_factor = factors[1], b_factor = factors[2];                                   \
        for (int64_t i = 0; i < count; i++) {                                                                              \
            red[i] = ((float)from[3 * i] - r) * r_factor;                                                                  \
            green[i] = ((float)from[3 * i + 1] - g) * g_factor;                                                            \
            blue[i] = ((float)from[3 * i + 2] - b) * b_factor;                                                             \
        }                                                                                                                  \
    }                                                                                                                      \
    VECTORS static void normalize_side_by_side_##type(const type *restrict from, float *restrict to, int64_t count,       \
                                                      const float *restrict subtrahends, const float *restrict factors)    \
    {                                                                                                                      \
        for (int64_t i = 0; i < count; i++)                                                                                \
            to[i] = ((float)from[i] - subtrahends[i]) * factors[i];                                                        \
    }                                                                                                                      \
    static void normalize_##type(const int64_t *job, const float *subtrahends, const float *factors, type *line,           \
                                 const float *long_subtrahends, const float *long_factors)                                 \
    {                                                                                                                      \
        int64_t height = job[2], width = job[3], channels = job[4], size = sizeof(type);                                   \
        int is_interleaved = job[7] == size || channels == 1;                                                              \
        int64_t step = job[6] / size;                                                                                      \
        for (int64_t y = 0; y < height; y++) {                                                                             \
            const char *from = (const char *)job[0] + y * job[5];                                                          \
            char *to = (char *)job[1] + y * job[8];                                                                        \
            const type *pixels = (const type *)from;                                                                       \
            int64_t pixel_step = step;                                                                                     \
            if (is_interleaved && step == -3 && channels == 3 && job[9] == (int64_t)sizeof(float)) { /* mirrored */        \
                float *planes = (float *)line;                                                                             \
                normalize_three_##type(pixels - 3 * (width - 1), planes, planes + width, planes + 2 * width, width,        \
                                       subtrahends, factors);                                                              \
                for (int64_t c = 0; c < 3; c++)                                                                            \
                    reverse(planes + c * width, (float *)(to + c * job[10]), width);                                       \
                continue;                                                                                                  \
            }                                                                                                              \
            if (is_interleaved && step == -channels) {                                                                     \
                mirror_pixels((char *)line, (const char *)pixels, width, channels * size);                                 \
                pixels = line;                                                                                             \
                pixel_step = channels;                                                                                     \
            }                                                                                                              \
            int is_dense = is_interleaved && pixel_step == channels;                                                       \
            if (is_dense && job[10] == (int64_t)sizeof(float) && job[9] == channels * (int64_t)sizeof(float)) {            \
                normalize_side_by_side_##type(pixels, (float *)to, width * channels, long_subtrahends, long_factors);      \
            } else if (is_dense && channels == 3 && job[9] == (int64_t)sizeof(float)) {                                    \
                normalize_three_##type(pixels, (float *)to, (float *)(to + job[10]), (float *)(to + 2 * job[10]), width,   \
                                       subtrahends, factors);                                                              \
            } else {                                                                                                       \
                for (int64_t c = 0; c < channels; c++) {                                                                   \
                    const type *plane = is_dense ? pixels + c : (const type *)(from + c * job[7]);                         \
                    float *target = (float *)(to + c * job[10]);                                                           \
                    if (job[9] == (int64_t)sizeof(float))                                                                  \
                        normalize_line_##type(plane, pixel_step, target, width, subtrahends[c], factors[c]);               \
                    else                                                                                                   \
                        for (int64_t x = 0; x < width; x++)                                                                \
                            *(float *)((char *)target + x * job[9]) =                                                      \
                                ((float)plane[x * pixel_step] - subtrahends[c]) * factors[c];                              \
                }                                                                                                          \
            }                                                                                                              \
        }                                                                                                                  \
    }

NORMALIZE(uint8_t)
NORMALIZE(int16_t)
NORMALIZE(uint16_t)
NORMALIZE(float)

/* Write (pixel - subtrahend) * factor for each job: from, to, height, width, channels, strides of the source, strides of the
   target; strides for rows, columns and channels. Strides of columns may be negative. Returns 0, or -1 without memory. */
EXPORT int64_t dlk_normalize_pixels(int64_t count, int64_t element, const int64_t *jobs, const float *subtrahends,
                                    const float *factors)
{
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++)
        if (jobs[11 * i + 3] * jobs[11 * i + 4] > most)
            most = jobs[11 * i + 3] * jobs[11 * i + 4];
    char *memory = malloc((size_t)most * (8 + 2 * sizeof(float)));
    if (!memory)
        return -1;
    float *long_subtrahends = (float *)(memory + 8 * most), *long_factors = long_subtrahends + most;
    int64_t channels = count ? jobs[4] : 0;
    for (int64_t i = 0; channels && i < most; i += channels) {
        memcpy(long_subtrahends + i, subtrahends, (size_t)(i + channels <= most ? channels : most - i) * sizeof(float));
        memcpy(long_factors + i, factors, (size_t)(i + channels <= most ? channels : most - i) * sizeof(float));
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t *job = jobs + 11 * i;
        switch (element) {
        case U8:
            normalize_uint8_t(job, subtrahends, factors, (uint8_t *)memory, long_subtrahends, long_factors);
            break;
        case I16:
            normalize_int16_t(job, subtrahends, factors, (int16_t *)memory, long_subtrahends, long_factors);
            break;
        case U16:
            normalize_uint16_t(job, subtrahends, factors, (uint16_t *)memory, long_subtrahends, long_factors);
            break;
        default:
            normalize_float(job, subtrahends, factors, (float *)memory, long_subtrahends, long_factors);
        }
    }
    free(memory);
    return 0;
}

#define LOOK_UP_PIXELS(type)                                                                                               \
    for (int64_t y = 0; y < job[2]; y++)                                                                                   \
        for (int64_t c = 0; c < job[4]; c++) {                                                                             \
            const uint8_t *from = (const uint8_t *)job[0] + y * job[5] + c * job[7];                                       \
            char *to = (char *)job[1] + y * job[8] + c * job[10];                                                          \
            const type *table = (const type *)tables + 256 * c;                                                            \
            for (int64_t x = 0; x < job[3]; x++)                                                                           \
                *(type *)(to + x * job[9]) = table[from[x * job[6]]];                                                      \
        }                                                                                                                  \
    break;

/* Replace bytes by the entries of a table for each channel; jobs as for dlk_normalize_pixels. */
EXPORT void dlk_look_up_pixels(int64_t count, int64_t item, const int64_t *jobs, const void *tables)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t *job = jobs + 11 * i;
        switch (item) {
        case 1:
            LOOK_UP_PIXELS(uint8_t)
        case 2:
            LOOK_UP_PIXELS(uint16_t)
        default:
            LOOK_UP_PIXELS(uint32_t)
        }
    }
}

typedef struct {
    float cos, sin, shift_x, shift_y, per_pixel, ratio;
} Grid;

VECTORS static void mask_of_row(uint8_t *restrict masked, int64_t width, float y, Grid grid)
{
    const float down_x = y * grid.sin, down_y = y * grid.cos;
    for (int64_t i = 0; i < width; i++) {
        float x = (float)(int32_t)i;
        float across = (x * grid.cos - down_x - grid.shift_x) * grid.per_pixel;
        float down = (x * grid.sin + down_y - grid.shift_y) * grid.per_pixel;
        masked[i] = (uint8_t)((across - floorf(across) < grid.ratio) & (down - floorf(down) < grid.ratio));
    }
}

/* Copy rows of images and set the pixels of a grid to zero for each job: from, to, frames, height, width, bytes of a pixel.
   `grids` has six numbers for each job. Returns 0, or -1 without memory. */
EXPORT int64_t dlk_grid_mask(int64_t count, const int64_t *jobs, const float *grids)
{
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most = jobs[6 * i + 4] > most ? jobs[6 * i + 4] : most;
    uint8_t *masked = malloc((size_t)most);
    if (!masked)
        return -1;
    for (int64_t i = 0; i < count; i++, jobs += 6, grids += 6) {
        int64_t frames = jobs[2], height = jobs[3], width = jobs[4], pixel = jobs[5];
        Grid grid = {grids[0], grids[1], grids[2], grids[3], grids[4], grids[5]};
        for (int64_t y = 0; y < height; y++) {
            mask_of_row(masked, width, (float)(int32_t)y, grid);
            for (int64_t frame = 0; frame < frames; frame++) {
                int64_t begin = (frame * height + y) * width * pixel;
                char *to = (char *)jobs[1] + begin;
                memcpy(to, (const char *)jobs[0] + begin, (size_t)(width * pixel));
                for (int64_t x = 0; x < width;) { /* squares are runs of pixels */
                    const uint8_t *found = memchr(masked + x, 1, (size_t)(width - x));
                    if (!found)
                        break;
                    x = found - masked;
                    int64_t end = x + 1;
                    while (end < width && masked[end])
                        end++;
                    memset(to + x * pixel, 0, (size_t)((end - x) * pixel));
                    x = end;
                }
            }
        }
    }
    free(masked);
    return 0;
}

enum { PART = 256 };

VECTORS static void split_three(const uint8_t *restrict from, float *restrict red, float *restrict green,
                                float *restrict blue, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        red[i] = from[3 * i];
        green[i] = from[3 * i + 1];
        blue[i] = from[3 * i + 2];
    }
}

VECTORS static void mix(const float *restrict red, const float *restrict green, const float *restrict blue,
                        const float *restrict factors, float addend, uint8_t *restrict to, int64_t count)
{
    const float r = factors[0], g = factors[1], b = factors[2];
    for (int64_t i = 0; i < count; i++) {
        float value = ((red[i] * r + green[i] * g) + blue[i] * b) + addend;
        value = value > 0 ? value : 0;
        value = value < 255 ? value : 255;
        to[i] = (uint8_t)(int32_t)(value + 0.49999997f); /* halves away from zero */
    }
}

VECTORS static void merge_three(const uint8_t *restrict red, const uint8_t *restrict green, const uint8_t *restrict blue,
                                uint8_t *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[3 * i] = red[i];
        to[3 * i + 1] = green[i];
        to[3 * i + 2] = blue[i];
    }
}

/* Multiply the colors of pixels of three bytes by a matrix and add numbers, for contiguous images. */
EXPORT void dlk_mix_colors(int64_t pixels, const uint8_t *from, const float *matrix, const float *addends, uint8_t *to)
{
    float planes[3][PART];
    uint8_t mixed[3][PART];
    for (int64_t begin = 0; begin < pixels; begin += PART) {
        int64_t count = pixels - begin < PART ? pixels - begin : PART;
        split_three(from + 3 * begin, planes[0], planes[1], planes[2], count);
        for (int c = 0; c < 3; c++)
            mix(planes[0], planes[1], planes[2], matrix + 3 * c, addends[c], mixed[c], count);
        merge_three(mixed[0], mixed[1], mixed[2], to + 3 * begin, count);
    }
}
