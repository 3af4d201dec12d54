/* Loops over masks: of pixels, and of polygons. */

#include "draws.h"
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

/* How pixels of the foreground are recognized. */
enum foreground { NONE, ABOVE, EQUAL };

#define PIXELS(type)                                                                                                       \
    VECTORS static int64_t count_##type(const type *from, int64_t size, int is_equal, double threshold, int64_t value)    \
    {                                                                                                                      \
        int64_t total = 0;                                                                                                 \
        if (is_equal)                                                                                                      \
            for (int64_t i = 0; i < size; i++)                                                                             \
                total += (int64_t)from[i] == value;                                                                        \
        else                                                                                                               \
            for (int64_t i = 0; i < size; i++)                                                                             \
                total += (double)from[i] > threshold;                                                                      \
        return total;                                                                                                      \
    }                                                                                                                      \
    static int64_t drawn_##type(const type *from, int64_t size, int kind, double threshold, int64_t value, Draws *draws)   \
    {                                                                                                                      \
        int64_t total = kind == NONE ? 0 : count_##type(from, size, kind == EQUAL, threshold, value);                      \
        if (!total)                                                                                                        \
            return (int64_t)dlk_below(draws, (uint64_t)size);                                                              \
        int64_t left = (int64_t)dlk_below(draws, (uint64_t)total);                                                         \
        for (int64_t i = 0;; i++)                                                                                          \
            if (kind == EQUAL ? (int64_t)from[i] == value : (double)from[i] > threshold)                                   \
                if (left-- == 0)                                                                                           \
                    return i;                                                                                              \
    }

PIXELS(uint8_t)
PIXELS(int32_t)

/* Draw a pixel of each mask, of U8 or I32. `kinds`, `thresholds` and `values` have a number for each. Writes its place in each
   axis. */
EXPORT void dlk_mask_pixels(int64_t count, int64_t ndim, int64_t element, const int64_t *from, const int64_t *shapes,
                            int64_t row, const int64_t *kinds, const double *thresholds, const int64_t *values,
                            const uint64_t *key, int64_t epoch, const int64_t *positions, int64_t *to)
{
    for (int64_t i = 0; i < count; i++, shapes += row, to += ndim) {
        int64_t size = 1, pixel;
        for (int64_t k = 0; k < ndim; k++)
            size *= shapes[k];
        Draws draws = dlk_draws_of(key, (uint64_t)epoch, (uint64_t)positions[i]);
        if (element == U8)
            pixel = drawn_uint8_t((const uint8_t *)from[i], size, (int)kinds[i], thresholds[i], values[i], &draws);
        else
            pixel = drawn_int32_t((const int32_t *)from[i], size, (int)kinds[i], thresholds[i], values[i], &draws);
        for (int64_t k = ndim - 1; k >= 0; k--) {
            to[k] = pixel % shapes[k];
            pixel /= shapes[k];
        }
    }
}

typedef struct {
    int32_t mask;
    int64_t number;
} Entry;

static int ascending(const void *one, const void *other)
{
    const Entry *a = one, *b = other;
    if (a->mask != b->mask)
        return a->mask < b->mask ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static int is_sorted(const Entry *entries, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        if (entries[i].mask < entries[i - 1].mask)
            return 0;
    return 1;
}

static void sort(Entry *entries, int64_t count)
{
    if (!is_sorted(entries, count))
        qsort(entries, (size_t)count, sizeof(Entry), ascending);
}

/* The first entry of a mask, or the number of entries. */
static int64_t first_of(const Entry *entries, int64_t count, int32_t mask)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (entries[middle].mask < mask)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Select the polygons of some masks for each job: ids of masks, their number, polygons, their number, number of vertices. Ids
   and polygons are I32. Writes the numbers of polygons and of vertices of each result, and the numbers of the polygons of all
   results, one after another. Returns 0; 1 if a sample is wrong; -1 without memory. */
EXPORT int64_t dlk_select_masks(int64_t count, const int64_t *jobs, int64_t *sizes, int64_t *order)
{
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++) {
        most = jobs[5 * i + 1] > most ? jobs[5 * i + 1] : most;
        most = jobs[5 * i + 3] > most ? jobs[5 * i + 3] : most;
    }
    Entry *entries = malloc((size_t)most * sizeof(Entry));
    if (!entries)
        return -1;
    int64_t status = 0;
    for (int64_t i = 0; i < count && !status; i++, jobs += 5, sizes += 2) {
        const int32_t *ids = (const int32_t *)jobs[0], *polygons = (const int32_t *)jobs[2];
        int64_t num_ids = jobs[1], num_polygons = jobs[3];
        sizes[0] = sizes[1] = 0;
        for (int64_t k = 0; k < num_ids; k++)
            entries[k] = (Entry){ids[k], k};
        sort(entries, num_ids);
        for (int64_t k = 1; k < num_ids; k++)
            status |= entries[k].mask == entries[k - 1].mask;
        for (int64_t k = 0; k < num_polygons; k++)
            entries[k] = (Entry){polygons[3 * k], k};
        sort(entries, num_polygons);
        for (int64_t k = 0; k < num_ids && !status; k++) {
            int64_t first = first_of(entries, num_polygons, ids[k]), place = first;
            for (; place < num_polygons && entries[place].mask == ids[k]; place++) {
                const int32_t *polygon = polygons + 3 * entries[place].number;
                status |= polygon[1] < 0 || polygon[2] < polygon[1] || polygon[2] > jobs[4];
                *order++ = entries[place].number;
                sizes[0]++;
                sizes[1] += polygon[2] - polygon[1];
            }
            status |= place == first;
        }
        status |= sizes[1] > INT32_MAX;
    }
    free(entries);
    return status;
}

/* Write the selected polygons and their vertices for each job: polygons, vertices, and where both go. A vertex has `vertex`
   bytes. With `reindex`, masks are numbered from 0. */
EXPORT void dlk_take_masks(int64_t count, const int64_t *jobs, const int64_t *sizes, const int64_t *order, int64_t vertex,
                           int64_t reindex)
{
    for (int64_t i = 0; i < count; i++, jobs += 4, sizes += 2) {
        const int32_t *polygons = (const int32_t *)jobs[0];
        const char *vertices = (const char *)jobs[1];
        int32_t *to = (int32_t *)jobs[2], used = 0, mask = -1;
        char *to_vertices = (char *)jobs[3];
        for (int64_t k = 0; k < sizes[0]; k++, to += 3) {
            const int32_t *polygon = polygons + 3 * order[k];
            int32_t length = polygon[2] - polygon[1];
            mask += k == 0 || polygon[0] != polygons[3 * order[k - 1]];
            to[0] = reindex ? mask : polygon[0];
            to[1] = used;
            to[2] = used += length;
            memcpy(to_vertices, vertices + polygon[1] * vertex, (size_t)(length * vertex));
            to_vertices += length * vertex;
        }
        order += sizes[0];
    }
}

/* Write rows of arrays by their numbers for each job: from, to, bytes of a row. */
EXPORT void dlk_take_rows(int64_t count, const int64_t *jobs, const int64_t *numbers, int64_t num_rows)
{
    for (int64_t i = 0; i < count; i++, jobs += 3)
        for (int64_t k = 0; k < num_rows; k++)
            memcpy((char *)jobs[1] + k * jobs[2], (const char *)jobs[0] + numbers[k] * jobs[2], (size_t)jobs[2]);
}
