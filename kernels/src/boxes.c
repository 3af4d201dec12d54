/* Loops over bounding boxes. */

#include "draws.h"
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANK = 3, MOST_ATTEMPTS = 20000 };

typedef struct {
    double low[MOST_RANK], high[MOST_RANK];
} Box;

/* The conditions of a search, for all samples. Doubles, so that NumPy fills it as one array. */
typedef struct {
    double rank, scale_least, scale_most, is_overlap, every, prune_threshold, attempts_per_threshold, total_attempts,
        num_thresholds, is_extent, output_extents;
    double ratios[6];    /* least and most, for the pairs (x, y), (x, z), (y, z) */
    double columns[6];   /* of the starts and of the ends in a row */
    double thresholds[]; /* negative: the whole image */
} Search;

static double area_of(const Box *box, int rank)
{
    double area = 1;
    for (int i = 0; i < rank; i++) {
        double extent = box->high[i] - box->low[i];
        extent = extent > 0 ? extent : 0;
        area = i ? area * extent : extent;
    }
    return area;
}

static double part_in(const Box *box, const Box *window, int rank)
{
    Box common;
    for (int i = 0; i < rank; i++) {
        common.low[i] = box->low[i] > window->low[i] ? box->low[i] : window->low[i];
        common.high[i] = box->high[i] < window->high[i] ? box->high[i] : window->high[i];
    }
    return area_of(&common, rank);
}

static int is_kept(const Box *box, double area, const Box *window, const Search *search, int rank)
{
    if (search->prune_threshold >= 0) {
        double part = part_in(box, window, rank);
        return part > 0 && (area > 0 ? part / area : 0) >= search->prune_threshold;
    }
    for (int i = 0; i < rank; i++) {
        double center = (box->low[i] + box->high[i]) / 2;
        if (!(center >= window->low[i] && center <= window->high[i]))
            return 0;
    }
    return 1;
}

static double overlap_of(const Box *boxes, const double *areas, int64_t count, const Box *window, const Search *search,
                         int rank)
{
    double chosen = INFINITY, of_window = area_of(window, rank);
    for (int64_t i = 0; i < count; i++) {
        double part = part_in(boxes + i, window, rank);
        double whole = search->is_overlap ? areas[i] : areas[i] + of_window - part;
        double overlap = whole > 0 ? part / whole : 0;
        if (!i || (search->every ? overlap < chosen : overlap > chosen))
            chosen = overlap;
    }
    return chosen;
}

/* Draw a window; returns 0 if its aspect ratio is not allowed. */
static int draw_window(Draws *draws, const Search *search, const double *image, int rank, Box *window)
{
    double extents[MOST_RANK];
    for (int i = 0; i < rank; i++)
        extents[i] = dlk_between(draws, search->scale_least, search->scale_most) * image[i];
    int pair = 0;
    for (int i = 0; i < rank; i++)
        for (int k = i + 1; k < rank; k++, pair++) {
            double ratio = extents[i] / extents[k];
            if (!(search->ratios[2 * pair] <= ratio && ratio <= search->ratios[2 * pair + 1]))
                return 0;
        }
    for (int i = 0; i < rank; i++) {
        double shape = extents[i] / image[i], slack = 1 - shape;
        window->low[i] = dlk_between(draws, slack < 0 ? slack : 0.0, slack > 0 ? slack : 0.0);
        window->high[i] = window->low[i] + shape;
    }
    return 1;
}

/* Search a window for the boxes of a sample; returns 0 if there is none, or if it takes too long. */
static int search_window(Draws *draws, const Search *search, const double *image, const Box *boxes, const double *areas,
                         int64_t count, Box *window)
{
    int rank = (int)search->rank, has_best = 0;
    int64_t attempts = 0, total = (int64_t)search->total_attempts;
    double best = 0;
    Box best_window = {0};
    while (total < 0 || attempts < total) {
        double threshold = search->thresholds[dlk_below(draws, (uint64_t)search->num_thresholds)];
        if (threshold < 0) {
            for (int i = 0; i < rank; i++) {
                window->low[i] = 0;
                window->high[i] = 1;
            }
            return 1;
        }
        for (int64_t k = 0; k < (int64_t)search->attempts_per_threshold && attempts != total; k++) {
            if (++attempts > MOST_ATTEMPTS)
                return 0;
            if (!draw_window(draws, search, image, rank, window))
                continue;
            double overlap = overlap_of(boxes, areas, count, window, search, rank);
            if (overlap >= threshold) {
                int64_t i = 0;
                while (i < count && !is_kept(boxes + i, areas[i], window, search, rank))
                    i++;
                if (!count || i < count)
                    return 1;
            }
            if (!has_best || overlap > best) {
                has_best = 1;
                best = overlap;
                best_window = *window;
            }
        }
    }
    *window = best_window;
    return has_best;
}

/* Choose a window for each job: boxes, number of boxes. `images` has the extents of each image. Writes start and end of the
   windows, and for each box whether it is kept; the boxes of all samples are counted in order. Returns 0; 1 if a sample must be
   computed by other code, or is wrong; -1 without memory. */
EXPORT int64_t dlk_search_windows(int64_t count, const int64_t *jobs, const Search *search, const double *images,
                                  const uint64_t *key, int64_t epoch, const int64_t *positions, double *windows,
                                  uint8_t *kept, int64_t *num_kept)
{
    int rank = (int)search->rank;
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most = jobs[2 * i + 1] > most ? jobs[2 * i + 1] : most;
    Box *boxes = malloc((size_t)most * (sizeof(Box) + sizeof(double)));
    if (!boxes)
        return -1;
    double *areas = (double *)(boxes + most);
    int64_t status = 0;
    for (int64_t i = 0; i < count && !status; i++) {
        const float *rows = (const float *)jobs[2 * i];
        int64_t size = jobs[2 * i + 1];
        for (int64_t k = 0; k < size; k++, rows += 2 * rank) {
            for (int axis = 0; axis < rank; axis++) {
                double low = rows[(int)search->columns[axis]], high = rows[(int)search->columns[rank + axis]];
                high = search->is_extent ? low + high : high;
                boxes[k].low[axis] = low;
                boxes[k].high[axis] = high;
                if (!(low >= -1e-5 && low <= 1 + 1e-5 && high >= -1e-5 && high <= 1 + 1e-5))
                    status = 1;
            }
            areas[k] = area_of(boxes + k, rank);
        }
        Draws draws = dlk_draws_of(key, (uint64_t)epoch, (uint64_t)positions[i]);
        Box window;
        if (status || !search_window(&draws, search, images + i * rank, boxes, areas, size, &window)) {
            status = 1;
            break;
        }
        num_kept[i] = 0;
        for (int64_t k = 0; k < size; k++) {
            *kept = (uint8_t)is_kept(boxes + k, areas[k], &window, search, rank);
            num_kept[i] += *kept++;
        }
        for (int axis = 0; axis < rank; axis++) {
            windows[2 * rank * i + axis] = window.low[axis];
            windows[2 * rank * i + rank + axis] = window.high[axis];
        }
    }
    free(boxes);
    return status;
}

static float part_of_window(double corner, double low, double size)
{
    double part = (corner - low) / size;
    return (float)(part < 0 ? 0 : part > 1 ? 1 : part);
}

/* Write the kept boxes as seen from the window, their labels and their numbers, for each job: boxes, number of boxes, labels,
   and where boxes, labels and numbers go; addresses of labels and numbers may be 0. */
EXPORT void dlk_seen_boxes(int64_t count, const int64_t *jobs, const Search *search, const double *windows,
                           const uint8_t *kept, int64_t label_bytes)
{
    int rank = (int)search->rank;
    for (int64_t i = 0; i < count; i++, jobs += 6, windows += 2 * rank) {
        const float *row = (const float *)jobs[0];
        float *out = (float *)jobs[3];
        char *labels = (char *)jobs[4];
        int32_t *numbers = (int32_t *)jobs[5];
        for (int64_t k = 0; k < jobs[1]; k++, row += 2 * rank) {
            if (!*kept++)
                continue;
            for (int axis = 0; axis < rank; axis++) {
                int first = (int)search->columns[axis], second = (int)search->columns[rank + axis];
                double low = row[first], high = row[second], begin = windows[axis], size = windows[rank + axis] - begin;
                high = search->is_extent ? low + high : high;
                out[first] = part_of_window(low, begin, size);
                out[second] = part_of_window(high, begin, size);
                if (search->is_extent) {
                    double a = (low - begin) / size, b = (high - begin) / size;
                    a = a < 0 ? 0 : a > 1 ? 1 : a;
                    b = b < 0 ? 0 : b > 1 ? 1 : b;
                    out[second] = (float)(b - a);
                }
            }
            out += 2 * rank;
            if (labels) {
                memcpy(labels, (const char *)jobs[2] + k * label_bytes, (size_t)label_bytes);
                labels += label_bytes;
            }
            if (numbers)
                *numbers++ = (int32_t)k;
        }
    }
}

/* Assign boxes to anchors for each job: boxes, labels (I32), number of boxes, and where boxes and labels go. `anchors` has four
   numbers for each, `centered` likewise, `sizes` one. Returns 0; 1 if a box is not a number; -1 without memory. */
EXPORT int64_t dlk_encode_boxes(int64_t count, const int64_t *jobs, const float *anchors, const float *centered,
                                const float *sizes, int64_t num_anchors, float criteria)
{
    float *overlaps = malloc((size_t)num_anchors * (2 * sizeof(float) + sizeof(int64_t)));
    if (!overlaps)
        return -1;
    float *best = overlaps + num_anchors;
    int64_t *chosen = (int64_t *)(best + num_anchors);
    for (int64_t i = 0; i < count; i++, jobs += 5) {
        const float *boxes = (const float *)jobs[0];
        const int32_t *labels = (const int32_t *)jobs[1];
        float *out = (float *)jobs[3];
        int32_t *classes = (int32_t *)jobs[4];
        for (int64_t a = 0; a < num_anchors; a++)
            best[a] = -1;
        for (int64_t k = 0; k < jobs[2]; k++) {
            const float *box = boxes + 4 * k;
            for (int j = 0; j < 4; j++)
                if (box[j] != box[j]) {
                    free(overlaps);
                    return 1;
                }
            float size = (box[2] - box[0]) * (box[3] - box[1]);
            int64_t largest = 0;
            for (int64_t a = 0; a < num_anchors; a++) {
                const float *anchor = anchors + 4 * a;
                float width = (box[2] < anchor[2] ? box[2] : anchor[2]) - (box[0] > anchor[0] ? box[0] : anchor[0]);
                float height = (box[3] < anchor[3] ? box[3] : anchor[3]) - (box[1] > anchor[1] ? box[1] : anchor[1]);
                float common = (width > 0 ? width : 0) * (height > 0 ? height : 0);
                float whole = size + sizes[a] - common;
                overlaps[a] = whole > 0 ? common / whole : 0;
                if (overlaps[a] >= overlaps[largest])
                    largest = a;
            }
            overlaps[largest] = 2;
            for (int64_t a = 0; a < num_anchors; a++)
                if (overlaps[a] >= best[a]) {
                    best[a] = overlaps[a];
                    chosen[a] = k;
                }
        }
        for (int64_t a = 0; a < num_anchors; a++) {
            memcpy(out + 4 * a, centered + 4 * a, 4 * sizeof(float));
            classes[a] = 0;
            if (best[a] > criteria) {
                const float *box = boxes + 4 * chosen[a];
                out[4 * a] = (box[0] + box[2]) * 0.5f;
                out[4 * a + 1] = (box[1] + box[3]) * 0.5f;
                out[4 * a + 2] = box[2] - box[0];
                out[4 * a + 3] = box[3] - box[1];
                classes[a] = labels[chosen[a]];
            }
        }
    }
    free(overlaps);
    return 0;
}
