/* Copies between arrays of any strides: windows, mirrored and reordered axes, padding. */

#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_AXIS = 16 };

typedef struct {
    int64_t extent, from, to; /* the number of elements, and the strides of source and target */
} Axis;

/* Copy pixels of three bytes to adjacent places, four bytes at a time. */
static void move_pixels(char *to, const char *from, int64_t count, int64_t stride)
{
    if (count > 0)
        memcpy(to, from, 3);
    /* From the second one on, another pixel follows in the source, since its stride is negative. */
    for (int64_t i = 1; i < count - 1; i++)
        memcpy(to + 3 * i, from + i * stride, 4);
    if (count > 1)
        memcpy(to + 3 * (count - 1), from + (count - 1) * stride, 3);
}

#define MOVE_BLOCKS(size)                                                                                                  \
    case size:                                                                                                             \
        for (int64_t i = 0; i < axis.extent; i++, to += axis.to, from += axis.from)                                        \
            memcpy(to, from, size);                                                                                        \
        break;

static void move_row(char *to, const char *from, Axis axis, int64_t block)
{
    if (block == 3 && axis.to == 3 && axis.from == -3) {
        move_pixels(to, from, axis.extent, axis.from);
        return;
    }
    switch (block) {
        MOVE_BLOCKS(1)
        MOVE_BLOCKS(2)
        MOVE_BLOCKS(3)
        MOVE_BLOCKS(4)
        MOVE_BLOCKS(6)
        MOVE_BLOCKS(8)
        MOVE_BLOCKS(12)
        MOVE_BLOCKS(16)
        MOVE_BLOCKS(24)
        MOVE_BLOCKS(32)
    default:
        for (int64_t i = 0; i < axis.extent; i++, to += axis.to, from += axis.from)
            memcpy(to, from, (size_t)block);
    }
}

static void move_axes(char *to, const char *from, const Axis *axes, int count, int64_t block)
{
    if (count == 0) {
        memcpy(to, from, (size_t)block);
    } else if (count == 1) {
        move_row(to, from, axes[0], block);
    } else {
        for (int64_t i = 0; i < axes[0].extent; i++)
            move_axes(to + i * axes[0].to, from + i * axes[0].from, axes + 1, count - 1, block);
    }
}

/* Copy one array. */
void dlk_move_one(char *to, const char *from, const int64_t *extents, const int64_t *from_strides, const int64_t *to_strides,
                  int ndim, int64_t item)
{
    Axis axes[MOST_AXES];
    int count = 0;
    for (int i = 0; i < ndim; i++) {
        Axis axis = {extents[i], from_strides[i], to_strides[i]};
        if (axis.extent == 0)
            return;
        if (axis.extent == 1)
            continue;
        Axis *before = axes + count - 1;
        if (count && before->from == axis.from * axis.extent && before->to == axis.to * axis.extent) {
            axis.extent *= before->extent; /* both arrays have the two axes in one piece */
            *before = axis;
        } else {
            axes[count++] = axis;
        }
    }
    int64_t block = item;
    if (count && axes[count - 1].from == block && axes[count - 1].to == block)
        block *= axes[--count].extent;
    if (count > 1 && axes[count - 1].extent <= SHORT_AXIS && axes[count - 2].extent > axes[count - 1].extent) {
        Axis last = axes[count - 1]; /* the innermost loop is a long one */
        axes[count - 1] = axes[count - 2];
        axes[count - 2] = last;
    }
    move_axes(to, from, axes, count, block);
}

/* Fill contiguous memory with copies of a pattern. */
void dlk_repeat(char *to, int64_t nbytes, const char *pattern, int64_t size)
{
    if (!nbytes)
        return;
    int is_byte = 1;
    for (int64_t i = 1; i < size; i++)
        is_byte &= pattern[i] == pattern[0];
    if (is_byte) {
        memset(to, pattern[0], (size_t)nbytes);
        return;
    }
    int64_t done = size < nbytes ? size : nbytes;
    memcpy(to, pattern, (size_t)done);
    while (done < nbytes) { /* doubles what there is; a multiple of the pattern */
        int64_t part = done < nbytes - done ? done : nbytes - done;
        part = part < 4096 || part == nbytes - done ? part : part - part % size;
        memcpy(to + done, to, (size_t)part);
        done += part;
    }
}

static void fill_axes(char *to, const Axis *axes, int count, const char *pattern, int64_t size, int64_t nbytes)
{
    if (count == 0) {
        dlk_repeat(to, nbytes, pattern, size);
        return;
    }
    for (int64_t i = 0; i < axes[0].extent; i++)
        fill_axes(to + i * axes[0].to, axes + 1, count - 1, pattern, size, nbytes);
}

/* Fill an array for each job with a pattern, such as a pixel: to, extents, strides. The axes count patterns. */
void dlk_fill(int64_t count, int64_t ndim, const char *pattern, int64_t size, const int64_t *jobs)
{
    for (int64_t job = 0; job < count; job++, jobs += 1 + 2 * ndim) {
        Axis axes[MOST_AXES];
        int used = 0, is_empty = 0;
        for (int i = 0; i < ndim; i++) {
            axes[used].extent = jobs[1 + i];
            axes[used++].to = jobs[1 + ndim + i];
            is_empty |= jobs[1 + i] == 0;
        }
        if (is_empty)
            continue;
        int64_t nbytes = size;
        while (used && (axes[used - 1].to == nbytes || axes[used - 1].extent == 1))
            nbytes *= axes[--used].extent;
        fill_axes((char *)jobs[0], axes, used, pattern, size, nbytes);
    }
}

#define LOOK_UP(in_type, out_type)                                                                                         \
    for (int64_t job = 0; job < count; job++, jobs += 3) {                                                                 \
        const in_type *from = (const in_type *)jobs[0];                                                                    \
        const out_type *values = table;                                                                                    \
        out_type *to = (out_type *)jobs[1];                                                                                \
        for (int64_t i = 0; i < jobs[2]; i++)                                                                              \
            to[i] = values[from[i] < last ? from[i] : last];                                                               \
    }                                                                                                                      \
    break;
#define LOOK_UP_TO(out_type)                                                                                               \
    switch (in_item) {                                                                                                     \
    case 1:                                                                                                                \
        LOOK_UP(uint8_t, out_type)                                                                                         \
    case 2:                                                                                                                \
        LOOK_UP(uint16_t, out_type)                                                                                        \
    case 4:                                                                                                                \
        LOOK_UP(uint32_t, out_type)                                                                                        \
    default:                                                                                                               \
        LOOK_UP(uint64_t, out_type)                                                                                        \
    }                                                                                                                      \
    break;

/* Replace unsigned integers by entries of a table, those beyond it by the last one, for each job: from, to, number of
   integers. */
EXPORT void dlk_look_up(int64_t count, int64_t in_item, int64_t out_item, const int64_t *jobs, const void *table,
                        int64_t entries)
{
    const uint64_t last = (uint64_t)(entries - 1);
    switch (out_item) {
    case 1:
        LOOK_UP_TO(uint8_t)
    case 2:
        LOOK_UP_TO(uint16_t)
    case 4:
        LOOK_UP_TO(uint32_t)
    default:
        LOOK_UP_TO(uint64_t)
    }
}

#define SET_ONES(type)                                                                                                     \
    for (int64_t i = 0; i < length; i++) {                                                                                 \
        type number = ((const type *)jobs[0])[i];                                                                          \
        if ((uint64_t)number < (uint64_t)classes) /* negative ones are large */                                    \
            memcpy((char *)jobs[1] + (i * classes + (int64_t)number) * item, on, (size_t)item);                            \
    }                                                                                                                      \
    break;

/* Write a one-hot vector for each number of each job: from, to, numbers. `on` and `off` have `item` bytes each. */
EXPORT void dlk_one_hot(int64_t count, int64_t element, int64_t classes, int64_t item, const char *on, const char *off,
                        const int64_t *jobs)
{
    for (int64_t job = 0; job < count; job++, jobs += 3) {
        int64_t length = jobs[2];
        if (length && classes)
            dlk_repeat((char *)jobs[1], length * classes * item, off, item);
        switch (element) {
        case U8:
            SET_ONES(uint8_t)
        case I8:
            SET_ONES(int8_t)
        case U16:
            SET_ONES(uint16_t)
        case I16:
            SET_ONES(int16_t)
        case U32:
            SET_ONES(uint32_t)
        case I32:
            SET_ONES(int32_t)
        case U64:
            SET_ONES(uint64_t)
        default:
            SET_ONES(int64_t)
        }
    }
}

typedef struct {
    char bytes[3];
} Three;

#define TAKE(type)                                                                                                         \
    for (int64_t x = 0; x < width; x++)                                                                                    \
        ((type *)to)[x] = *(const type *)(row + xs[x]);                                                                    \
    break;

/* Take the nearest pixel of a row for each pixel of the result. `xs` are offsets in bytes. */
static void take_pixels(char *to, const char *row, const int64_t *xs, int64_t width, int64_t pixel)
{
    switch (pixel) {
    case 1:
        TAKE(uint8_t)
    case 3:
        TAKE(Three)
    default:
        for (int64_t x = 0; x < width; x++)
            memcpy(to + x * pixel, row + xs[x], (size_t)pixel);
    }
}

/* Positions in single precision, as dali_like/operators/geometry/_resampling.py computes them. */
static int64_t nearest(float start, float step, int64_t i, int64_t extent)
{
    float position = start + ((float)i + 0.5f) * step;
    int64_t place = (int64_t)position;
    place -= (float)place > position; /* floor */
    return place < 0 ? 0 : place < extent ? place : extent - 1;
}

/* Scale images by nearest neighbors for each job: from, to, height, width, height and width of the result. `regions` has the
   start and the end of the rows and of the columns for each. A pixel has `pixel` bytes. Returns 0, or -1 without memory. */
EXPORT int64_t dlk_nearest(int64_t count, int64_t pixel, const int64_t *jobs, const float *regions)
{
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most = jobs[6 * i + 5] > most ? jobs[6 * i + 5] : most;
    int64_t *xs = malloc((size_t)most * sizeof(int64_t));
    if (!xs)
        return -1;
    for (int64_t i = 0; i < count; i++, jobs += 6, regions += 4) {
        int64_t rows = jobs[4], columns = jobs[5], row_bytes = columns * pixel, last = -1;
        float down = (regions[1] - regions[0]) / (float)rows, across = (regions[3] - regions[2]) / (float)columns;
        char *to = (char *)jobs[1];
        for (int64_t x = 0; x < columns; x++)
            xs[x] = nearest(regions[2], across, x, jobs[3]) * pixel;
        for (int64_t y = 0; y < rows; y++, to += row_bytes) {
            int64_t place = nearest(regions[0], down, y, jobs[2]);
            if (place == last)
                memcpy(to, to - row_bytes, (size_t)row_bytes);
            else
                take_pixels(to, (const char *)jobs[0] + place * jobs[3] * pixel, xs, columns, pixel);
            last = place;
        }
    }
    free(xs);
    return 0;
}

/* The version of the functions and of their arguments. */
EXPORT int64_t dlk_interface(void)
{
    return 5;
}
