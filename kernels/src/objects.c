/* Objects of masks: regions of connected pixels without diagonals, for dali_like/operators/arrays/masks.py. */

#include "draws.h"
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { DONE, NOT_SERVED, NO_MEMORY = -1 };
/* Labels of a mask are as near each other as this, or it is not served. */
enum { MOST_LABELS = 1 << 16 };

/* Pixels of one label in a row along the last axis, from `begin` to `end`. */
typedef struct {
    int64_t begin, end, parent;
} Run;

typedef struct {
    Run *runs;
    int64_t *firsts; /* the first run of each row; one more than rows */
    int64_t *boxes;  /* start and end of each object */
    int64_t room, num_boxes;
} Objects;

static int64_t root_of(Run *runs, int64_t i)
{
    while (runs[i].parent != i) {
        runs[i].parent = runs[runs[i].parent].parent;
        i = runs[i].parent;
    }
    return i;
}

/* The earlier run becomes the root. */
static void join(Run *runs, int64_t a, int64_t b)
{
    a = root_of(runs, a);
    b = root_of(runs, b);
    if (a < b)
        runs[b].parent = a;
    else
        runs[a].parent = b;
}

#define LIMITS(type)                                                                                                       \
    VECTORS static void limits_##type(const type *restrict mask, int64_t count, int64_t *least, int64_t *most)            \
    {                                                                                                                      \
        type low = mask[0], high = mask[0];                                                                                \
        for (int64_t i = 1; i < count; i++) {                                                                              \
            low = mask[i] < low ? mask[i] : low;                                                                           \
            high = mask[i] > high ? mask[i] : high;                                                                        \
        }                                                                                                                  \
        *least = (int64_t)low;                                                                                             \
        *most = (int64_t)high;                                                                                             \
    }                                                                                                                      \
    static void mark_##type(const type *mask, int64_t count, int64_t least, uint8_t *is_used)                             \
    {                                                                                                                      \
        for (int64_t i = 0; i < count; i++)                                                                                \
            is_used[(int64_t)mask[i] - least] = 1;                                                                         \
    }                                                                                                                      \
    static int64_t runs_of_##type(const type *row, int64_t width, type label, Run *runs, int64_t number)                  \
    {                                                                                                                      \
        int64_t first = number;                                                                                            \
        for (int64_t x = 0; x < width; x++) {                                                                              \
            if (row[x] != label)                                                                                           \
                continue;                                                                                                  \
            Run *run = runs + (number - first);                                                                            \
            run->begin = x;                                                                                                \
            while (x < width && row[x] == label)                                                                           \
                x++;                                                                                                       \
            run->end = x;                                                                                                  \
            run->parent = number++;                                                                                        \
        }                                                                                                                  \
        return number - first;                                                                                             \
    }

LIMITS(uint8_t)
LIMITS(int8_t)
LIMITS(uint16_t)
LIMITS(int16_t)
LIMITS(uint32_t)
LIMITS(int32_t)
LIMITS(int64_t)

#define FOR_TYPE(element, of)                                                                                              \
    switch (element) {                                                                                                     \
    case U8:                                                                                                               \
        of(uint8_t);                                                                                                       \
        break;                                                                                                             \
    case I8:                                                                                                               \
        of(int8_t);                                                                                                        \
        break;                                                                                                             \
    case U16:                                                                                                              \
        of(uint16_t);                                                                                                      \
        break;                                                                                                             \
    case I16:                                                                                                              \
        of(int16_t);                                                                                                       \
        break;                                                                                                             \
    case U32:                                                                                                              \
        of(uint32_t);                                                                                                      \
        break;                                                                                                             \
    case I32:                                                                                                              \
        of(int32_t);                                                                                                       \
        break;                                                                                                             \
    default:                                                                                                               \
        of(int64_t);                                                                                                       \
    }

/* Join runs of a row with those of an earlier one that they touch. */
static void join_rows(Run *runs, int64_t a, int64_t a_end, int64_t b, int64_t b_end)
{
    while (a < a_end && b < b_end) {
        if (runs[a].begin < runs[b].end && runs[b].begin < runs[a].end)
            join(runs, a, b);
        if (runs[a].end < runs[b].end)
            a++;
        else
            b++;
    }
}

/* Find the objects of a label, in the order of their first pixels, and append their boxes. */
static int find(Objects *objects, int64_t element, const char *mask, int64_t item, int64_t ndim, const int64_t *shape,
                int64_t label, const int64_t *sides)
{
    int64_t width = shape[ndim - 1], rows = 1, strides[MOST_AXES];
    for (int64_t k = ndim - 2; k >= 0; k--) {
        strides[k] = rows;
        rows *= shape[k];
    }
    int64_t total = 0;
    Run *runs = objects->runs;
    for (int64_t row = 0; row < rows; row++) {
        objects->firsts[row] = total;
        const char *line = mask + row * width * item;
#define RUNS(type) total += runs_of_##type((const type *)line, width, (type)label, runs + total, total)
        FOR_TYPE(element, RUNS)
        objects->firsts[row + 1] = total;
        for (int64_t k = 0; k < ndim - 1; k++)
            if (row / strides[k] % shape[k]) {
                int64_t before = row - strides[k];
                join_rows(runs, objects->firsts[row], total, objects->firsts[before], objects->firsts[before + 1]);
            }
    }
    /* Roots come first among their runs; their parents then become the numbers of their boxes, negated. */
    int64_t first = objects->num_boxes;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = objects->firsts[row]; i < objects->firsts[row + 1]; i++) {
            int64_t parent = runs[i].parent, number;
            if (parent == i) {
                number = objects->num_boxes++;
                if (number == objects->room) {
                    int64_t room = 2 * objects->room + 16;
                    int64_t *boxes = realloc(objects->boxes, (size_t)(room * 2 * ndim) * sizeof(int64_t));
                    if (!boxes)
                        return NO_MEMORY;
                    objects->boxes = boxes;
                    objects->room = room;
                }
                int64_t *box = objects->boxes + number * 2 * ndim;
                for (int64_t k = 0; k < ndim; k++) {
                    box[k] = INT64_MAX;
                    box[ndim + k] = 0;
                }
            } else {
                number = -1 - runs[parent].parent;
            }
            runs[i].parent = -1 - number;
            int64_t *box = objects->boxes + number * 2 * ndim;
            for (int64_t k = 0; k < ndim; k++) {
                int64_t begin = k == ndim - 1 ? runs[i].begin : row / strides[k] % shape[k];
                int64_t end = k == ndim - 1 ? runs[i].end : begin + 1;
                box[k] = begin < box[k] ? begin : box[k];
                box[ndim + k] = end > box[ndim + k] ? end : box[ndim + k];
            }
        }
    int64_t kept = first;
    for (int64_t number = first; number < objects->num_boxes; number++) {
        int64_t *box = objects->boxes + number * 2 * ndim;
        int is_large = 1;
        for (int64_t k = 0; k < ndim; k++)
            is_large &= box[ndim + k] - box[k] >= sides[k];
        if (is_large)
            memmove(objects->boxes + kept++ * 2 * ndim, box, (size_t)(2 * ndim) * sizeof(int64_t));
    }
    objects->num_boxes = kept;
    return DONE;
}

static double volume(const int64_t *box, int64_t ndim)
{
    double product = 1;
    for (int64_t k = 0; k < ndim; k++)
        product *= (double)(box[ndim + k] - box[k]);
    return product;
}

/* Draw one of the objects, of the `k_largest` largest if that is positive. Returns its number, or -1. */
static int64_t draw_object(Objects *objects, int64_t ndim, int64_t k_largest, Draws *draws)
{
    int64_t count = objects->num_boxes;
    if (k_largest <= 0 || k_largest >= count) {
        if (!count)
            return -1;
        if (k_largest <= 0)
            return (int64_t)dlk_below(draws, (uint64_t)count);
    }
    int64_t most = k_largest < count ? k_largest : count, wanted = (int64_t)dlk_below(draws, (uint64_t)most);
    /* The object with so many larger ones, or as large ones before it. */
    for (int64_t i = 0; i < count; i++) {
        int64_t before = 0;
        double size = volume(objects->boxes + i * 2 * ndim, ndim);
        for (int64_t j = 0; j < count && before <= wanted; j++) {
            double other = volume(objects->boxes + j * 2 * ndim, ndim);
            before += other > size || (other == size && j < i);
        }
        if (before == wanted)
            return i;
    }
    return -1;
}

/* Draw an object of each mask, as random_object_bbox does. `labels` are those of classes; without any, all but
   the background are. Writes start, end and label of each object, or of the whole mask and the
   background. Returns 0, 1 if a mask is not served, or -1 without memory. */
EXPORT int64_t dlk_draw_objects(int64_t count, int64_t element, int64_t item, int64_t ndim, const int64_t *addresses,
                                const int64_t *shapes, int64_t row, const uint64_t *key, int64_t epoch,
                                const int64_t *positions, double probability, int64_t background, int64_t num_classes,
                                const int64_t *labels, const int64_t *sides, int64_t k_largest,
                                int64_t ignores_class, int64_t *results)
{
    Objects objects = {0};
    uint8_t *is_used = malloc(MOST_LABELS);
    int64_t *found = malloc(MOST_LABELS * sizeof(int64_t));
    double *bounds = malloc(MOST_LABELS * sizeof(double));
    int64_t most_pixels = 1, most_rows = 1, status = NO_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        int64_t pixels = 1, rows = 1;
        for (int64_t k = 0; k < ndim; k++) {
            rows = pixels;
            pixels *= shapes[i * row + k];
        }
        most_pixels = pixels > most_pixels ? pixels : most_pixels;
        most_rows = rows > most_rows ? rows : most_rows;
    }
    objects.runs = malloc((size_t)(most_pixels / 2 + most_rows + 1) * sizeof(Run));
    objects.firsts = malloc((size_t)(most_rows + 1) * sizeof(int64_t));
    if (!is_used || !found || !bounds || !objects.runs || !objects.firsts)
        goto end;
    status = DONE;
    for (int64_t i = 0; i < count && status == DONE; i++, shapes += row, results += 2 * ndim + 1) {
        const char *mask = (const char *)addresses[i];
        Draws draws = dlk_draws_of(key, (uint64_t)epoch, (uint64_t)positions[i]);
        int64_t pixels = 1, num_found = 0, drawn = -1, label = background;
        for (int64_t k = 0; k < ndim; k++)
            pixels *= shapes[k];
        if (dlk_unit(&draws) < probability && pixels) {
            int64_t least = 0, most = 0;
#define FIND_LIMITS(type) limits_##type((const type *)mask, pixels, &least, &most)
            FOR_TYPE(element, FIND_LIMITS)
            if (most - least >= MOST_LABELS || most - least < 0) {
                status = NOT_SERVED;
                break;
            }
            memset(is_used, 0, (size_t)(most - least + 1));
#define MARK(type) mark_##type((const type *)mask, pixels, least, is_used)
            FOR_TYPE(element, MARK)
            for (int64_t each = least; each <= most; each++) {
                int is_class = !num_classes;
                for (int64_t c = 0; c < num_classes; c++)
                    is_class |= labels[c] == each;
                if (is_used[each - least] && each != background && is_class)
                    found[num_found++] = each;
            }
            objects.num_boxes = 0;
            if (ignores_class) {
                for (int64_t n = 0; n < num_found && status == DONE; n++)
                    status = find(&objects, element, mask, item, ndim, shapes, found[n], sides);
                if (num_found && status == DONE)
                    drawn = draw_object(&objects, ndim, k_largest, &draws);
            }
            while (!ignores_class && num_found && drawn < 0 && status == DONE) {
                double unit = dlk_unit(&draws), share = 1 / (double)num_found;
                int64_t n = 0;
                for (int64_t k = 0; k < num_found; k++)
                    bounds[k] = share + (k ? bounds[k - 1] : 0);
                while (n < num_found - 1 && !(unit < bounds[n] / bounds[num_found - 1]))
                    n++;
                label = found[n];
                objects.num_boxes = 0;
                status = find(&objects, element, mask, item, ndim, shapes, label, sides);
                if (status == DONE)
                    drawn = draw_object(&objects, ndim, k_largest, &draws);
                if (drawn >= 0)
                    break;
                memmove(found + n, found + n + 1, (size_t)(num_found - n - 1) * sizeof(int64_t));
                num_found--;
            }
        }
        for (int64_t k = 0; k < ndim; k++) {
            results[k] = drawn >= 0 ? objects.boxes[drawn * 2 * ndim + k] : 0;
            results[ndim + k] = drawn >= 0 ? objects.boxes[drawn * 2 * ndim + ndim + k] : shapes[k];
        }
        results[2 * ndim] = drawn >= 0 ? label : background;
    }
end:
    free(is_used);
    free(found);
    free(bounds);
    free(objects.runs);
    free(objects.firsts);
    free(objects.boxes);
    return status;
}
