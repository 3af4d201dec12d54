/* Windows of samples: where they begin, their extents, and the copies of their elements. Samples and results are contiguous.

   `shapes` has a row for each sample, and `row` numbers from one row to the next. */

#include "kernels.h"

#include <math.h>
#include <string.h>

/* What dlk_crop_windows and others return: a window leaves its sample, or ends before it begins. */
enum { OUTSIDE = 1, NEGATIVE = 2 };

static double round_half_up(double value)
{
    return copysign(floor(fabs(value) + 0.5), value);
}

/* A part of an extent in single precision, as dali_like/operators/geometry/_windows.py computes it. */
static int64_t part_of(double part, int64_t extent, int64_t truncates)
{
    double value = (double)((float)part * (float)extent);
    return (int64_t)(truncates ? trunc(value) : round_half_up(value));
}

/* Check a window, and cut it at the sides of the sample if it is to be trimmed. */
static int64_t check_window(int64_t ndim, const int64_t *shape, int64_t *starts, int64_t *sizes, int64_t trims)
{
    int64_t status = 0;
    for (int64_t k = 0; k < ndim; k++) {
        int64_t start = starts[k], stop = start + sizes[k];
        if (sizes[k] < 0)
            status |= NEGATIVE;
        if (start >= 0 && stop <= shape[k])
            continue;
        status |= OUTSIDE;
        if (trims) {
            start = start < 0 ? 0 : start > shape[k] ? shape[k] : start;
            stop = stop < start ? start : stop > shape[k] ? shape[k] : stop;
            starts[k] = start;
            sizes[k] = stop - start;
        }
    }
    return status;
}

/* Write windows of given extents, 0 for the whole axis. They lie at `positions`, from 0 to 1, with a row for each sample or,
   if `step` is 0, one for all. */
EXPORT int64_t dlk_crop_windows(int64_t count, int64_t ndim, const int64_t *shapes, int64_t row, const int64_t *extents,
                                const double *positions, int64_t step, int64_t truncates, int64_t trims, int64_t *starts,
                                int64_t *sizes)
{
    int64_t status = 0;
    for (int64_t i = 0; i < count; i++, shapes += row, positions += step, starts += ndim, sizes += ndim) {
        for (int64_t k = 0; k < ndim; k++) {
            sizes[k] = extents[k] ? extents[k] : shapes[k];
            starts[k] = extents[k] ? part_of(positions[k], shapes[k] - extents[k], truncates) : 0;
        }
        status |= check_window(ndim, shapes, starts, sizes, trims);
    }
    return status;
}

/* How the ends of a window are given. */
enum bound { NOTHING, NUMBER, SHARE, EXTENT, SHARE_OF_EXTENT };

static double bound_of(enum bound kind, double value, double extent, double begin)
{
    switch (kind) {
    case NUMBER:
        return value;
    case SHARE:
        return value * extent;
    case EXTENT:
        return begin + value;
    case SHARE_OF_EXTENT:
        return begin + value * extent;
    default:
        return 0;
    }
}

/* Write windows of some axes; the others are whole. `begins` and `ends` have a number for each of these axes, for each
   sample or, if the step is 0, for all. */
EXPORT int64_t dlk_slice_windows(int64_t count, int64_t ndim, const int64_t *shapes, int64_t row, int64_t num_axes,
                                 const int64_t *axes, int64_t begin_kind, const double *begins, int64_t begin_step,
                                 int64_t end_kind, const double *ends, int64_t end_step, int64_t trims, int64_t *starts,
                                 int64_t *sizes)
{
    int64_t status = 0;
    for (int64_t i = 0; i < count; i++, shapes += row, starts += ndim, sizes += ndim) {
        for (int64_t k = 0; k < ndim; k++) {
            starts[k] = 0;
            sizes[k] = shapes[k];
        }
        for (int64_t a = 0; a < num_axes; a++) {
            int64_t k = axes[a];
            double extent = (double)shapes[k];
            double begin = bound_of((enum bound)begin_kind, begins ? begins[i * begin_step + a] : 0, extent, 0);
            double end = end_kind == NOTHING
                             ? extent
                             : bound_of((enum bound)end_kind, ends[i * end_step + a], extent, begin);
            if (!(fabs(begin) < 1e15 && fabs(end) < 1e15))
                return NEGATIVE;
            starts[k] = (int64_t)round_half_up(begin);
            sizes[k] = (int64_t)round_half_up(end) - starts[k];
        }
        status |= check_window(ndim, shapes, starts, sizes, trims);
    }
    return status;
}

/* Write extents of at least `least`, or as large as the largest sample where that is not positive, in multiples of
   `steps`, for some axes. */
EXPORT void dlk_padded(int64_t count, int64_t ndim, const int64_t *shapes, int64_t row, int64_t num_axes, const int64_t *axes,
                       const int64_t *least, const int64_t *steps, int64_t *sizes)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(sizes + i * ndim, shapes + i * row, (size_t)ndim * sizeof(int64_t));
    for (int64_t a = 0; a < num_axes; a++) {
        int64_t wanted = least[a];
        for (int64_t i = 0; least[a] <= 0 && i < count; i++)
            wanted = i == 0 || shapes[i * row + axes[a]] > wanted ? shapes[i * row + axes[a]] : wanted;
        for (int64_t i = 0; i < count; i++) {
            int64_t *size = sizes + i * ndim + axes[a];
            *size = *size > wanted ? *size : wanted;
            *size = (*size + steps[a] - 1) / steps[a] * steps[a];
        }
    }
}

/* Write the extents of canvases, and where images begin in them, negated. The arguments have one number for each sample. */
EXPORT int64_t dlk_paste_windows(int64_t count, const int64_t *shapes, int64_t row, const double *ratios,
                                 const double *least, const double *xs, const double *ys, int64_t *starts, int64_t *sizes)
{
    for (int64_t i = 0; i < count; i++, shapes += row, starts += 3, sizes += 3) {
        const double places[2] = {ys[i], xs[i]};
        for (int k = 0; k < 2; k++) {
            int64_t side = part_of(ratios[i], shapes[k], 1);
            sizes[k] = side > (int64_t)least[i] ? side : (int64_t)least[i];
            int64_t begin = part_of(places[k], sizes[k] - shapes[k], 1);
            if (sizes[k] < shapes[k] || begin < 0)
                return OUTSIDE;
            starts[k] = -begin;
        }
        starts[2] = 0;
        sizes[2] = shapes[2];
    }
    return 0;
}

static void strides_of(const int64_t *shape, int ndim, int64_t item, int64_t *strides)
{
    for (int k = ndim - 1; k >= 0; k--) {
        strides[k] = item;
        item *= shape[k];
    }
}

/* Copy a window of each sample. Parts of it outside of the sample become copies of a pattern: one element, or one for each
   channel, which are the last axis. `starts` may be 0: windows begin with the samples. Bits of `mirrored`, which may be 0,
   are axes in which the window is mirrored. */
EXPORT void dlk_cut(int64_t count, int64_t ndim, int64_t item, const int64_t *from, const int64_t *shapes, int64_t row,
                    const int64_t *starts, const int64_t *sizes, int64_t size_row, const int64_t *mirrored,
                    const int64_t *to, const char *pattern, int64_t pattern_bytes)
{
    for (int64_t i = 0; i < count; i++, shapes += row, sizes += size_row) {
        int64_t from_strides[MOST_AXES], to_strides[MOST_AXES], extents[MOST_AXES], elements = 1;
        const int64_t *start = starts ? starts + i * ndim : 0;
        char *target = (char *)to[i];
        const char *source = (const char *)from[i];
        int is_inside = 1;
        strides_of(shapes, (int)ndim, item, from_strides);
        strides_of(sizes, (int)ndim, item, to_strides);
        for (int64_t k = 0; k < ndim; k++) {
            int64_t begin = start ? start[k] : 0, end = begin + sizes[k], first = begin, last = end;
            if (begin < 0 || end > shapes[k]) {
                is_inside = 0;
                first = begin < 0 ? 0 : begin > shapes[k] ? shapes[k] : begin;
                last = end < first ? first : end > shapes[k] ? shapes[k] : end;
            }
            extents[k] = last - first;
            elements *= sizes[k];
            source += first * from_strides[k];
            if (mirrored && mirrored[i] >> k & 1) {
                source += (extents[k] - 1) * from_strides[k];
                from_strides[k] = -from_strides[k];
                target += (end - last) * to_strides[k];
            } else {
                target += (first - begin) * to_strides[k];
            }
        }
        if (!is_inside && elements)
            dlk_repeat((char *)to[i], elements * item, pattern, pattern_bytes);
        dlk_move_one(target, source, extents, from_strides, to_strides, (int)ndim, item);
    }
}

/* Copy arrays with their axes in another order. */
EXPORT void dlk_transpose(int64_t count, int64_t ndim, int64_t item, const int64_t *from, const int64_t *shapes, int64_t row,
                          const int64_t *order, const int64_t *to)
{
    for (int64_t i = 0; i < count; i++, shapes += row) {
        int64_t strides[MOST_AXES], from_strides[MOST_AXES], to_strides[MOST_AXES], extents[MOST_AXES];
        strides_of(shapes, (int)ndim, item, strides);
        for (int64_t k = 0; k < ndim; k++) {
            extents[k] = shapes[order[k]];
            from_strides[k] = strides[order[k]];
        }
        strides_of(extents, (int)ndim, item, to_strides);
        dlk_move_one((char *)to[i], (const char *)from[i], extents, from_strides, to_strides, (int)ndim, item);
    }
}

/* Lay out samples of different shapes one after another. Writes a descriptor for each, `words` numbers: offset, bytes, code
   of the dtype, number of dimensions, shape. Returns the bytes of all samples; -1 if all shapes are alike. */
EXPORT int64_t dlk_lay_out(int64_t count, int64_t ndim, int64_t item, int64_t dtype, int64_t alignment, const int64_t *shapes,
                           int64_t row, int64_t *descriptors, int64_t words)
{
    int64_t offset = 0, is_ragged = 0;
    for (int64_t i = 0; i < count; i++, descriptors += words) {
        const int64_t *shape = shapes + i * row;
        int64_t nbytes = item;
        memset(descriptors, 0, (size_t)words * sizeof(int64_t));
        for (int64_t k = 0; k < ndim; k++) {
            nbytes *= shape[k];
            is_ragged |= shape[k] != shapes[k];
            descriptors[4 + k] = shape[k];
        }
        descriptors[0] = offset;
        descriptors[1] = nbytes;
        descriptors[2] = dtype;
        descriptors[3] = ndim;
        offset += (nbytes + alignment - 1) / alignment * alignment;
    }
    return is_ragged ? offset : -1;
}

/* Write jobs for dlk_normalize_pixels: rows, columns and channels of a window of each image.

   of_image: the axes of rows, columns and channels in the image.
   results, of_result: the shapes of the results, and the axes of rows, columns and channels in them.
   mirrored: whether the columns of each image are mirrored.
   pattern: fills a result whose window leaves the image; with `fills_all`, every result. */
EXPORT void dlk_window_jobs(int64_t count, int64_t item, int64_t out_item, const int64_t *from, const int64_t *shapes,
                            int64_t row, const int64_t *starts, const int64_t *sizes, const int64_t *mirrored,
                            const int64_t *of_image, const int64_t *results, const int64_t *of_result, const int64_t *to,
                            const char *pattern, int64_t pattern_bytes, int64_t fills_all, int64_t *jobs)
{
    for (int64_t i = 0; i < count; i++, shapes += row, starts += 3, sizes += 3, results += 3, jobs += 11) {
        int64_t from_strides[3], to_strides[3], is_inside = 1;
        strides_of(shapes, 3, item, from_strides);
        strides_of(results, 3, out_item, to_strides);
        jobs[0] = from[i];
        jobs[1] = to[i];
        for (int k = 0; k < 3; k++) {
            int64_t axis = of_image[k], side = shapes[axis], begin = starts[axis], end = begin + sizes[axis];
            int64_t first = begin < 0 ? 0 : begin > side ? side : begin;
            int64_t last = end < first ? first : end > side ? side : end;
            int64_t place = first - begin, stride = from_strides[axis], to_stride = to_strides[of_result[k]];
            is_inside &= begin >= 0 && end <= side;
            jobs[0] += first * stride;
            if (k == 1 && mirrored[i]) {
                jobs[0] += (last - first - 1) * stride;
                stride = -stride;
                place = end - last;
            }
            jobs[1] += place * to_stride;
            jobs[2 + k] = last - first;
            jobs[5 + k] = stride;
            jobs[8 + k] = to_stride;
        }
        if (fills_all || !is_inside)
            dlk_repeat((char *)to[i], results[0] * results[1] * results[2] * out_item, pattern, pattern_bytes);
    }
}

/* Write the shapes of arrays that are joined along an axis, or stacked along a new one. `tables` has the addresses of the
   shapes of each input. Returns 1 if other extents differ. */
EXPORT int64_t dlk_joined_shapes(int64_t count, int64_t ndim, int64_t inputs, const int64_t *tables, const int64_t *rows,
                                 int64_t axis, int64_t is_new, int64_t *sizes)
{
    for (int64_t i = 0; i < count; i++, sizes += ndim + is_new) {
        const int64_t *first = (const int64_t *)tables[0] + i * rows[0];
        for (int64_t k = 0; k < ndim; k++)
            sizes[k + (is_new && k >= axis)] = first[k];
        if (is_new)
            sizes[axis] = inputs;
        for (int64_t n = 1; n < inputs; n++) {
            const int64_t *shape = (const int64_t *)tables[n] + i * rows[n];
            for (int64_t k = 0; k < ndim; k++) {
                if (!is_new && k == axis)
                    sizes[k] += shape[k];
                else if (shape[k] != first[k])
                    return 1;
            }
        }
    }
    return 0;
}

/* Join arrays; see dlk_joined_shapes. `sources` has the addresses of the addresses of the samples of each input. */
EXPORT void dlk_join(int64_t count, int64_t ndim, int64_t item, int64_t inputs, const int64_t *sources, const int64_t *tables,
                     const int64_t *rows, int64_t axis, int64_t is_new, const int64_t *sizes, const int64_t *to)
{
    for (int64_t i = 0; i < count; i++, sizes += ndim + is_new) {
        int64_t outer = 1, inner = item;
        for (int64_t k = 0; k < axis; k++)
            outer *= sizes[k];
        for (int64_t k = axis + 1; k < ndim + is_new; k++)
            inner *= sizes[k];
        char *target = (char *)to[i];
        for (int64_t n = 0; n < inputs; n++) {
            const char *from = (const char *)((const int64_t *)sources[n])[i];
            int64_t part = is_new ? inner : inner * ((const int64_t *)tables[n])[i * rows[n] + axis];
            int64_t extents[2] = {outer, part}, from_strides[2] = {part, 1}, to_strides[2] = {inner * sizes[axis], 1};
            if (part)
                dlk_move_one(target, from, extents, from_strides, to_strides, 2, 1);
            target += part;
        }
    }
}

/* Copy samples and fill a region of some axes with a pattern, computed in single precision as
   dali_like/operators/photometry/filters.py does. `begins` and `extents` have a number for each of these axes. */
EXPORT void dlk_erase(int64_t count, int64_t ndim, int64_t item, const int64_t *from, const int64_t *shapes, int64_t row,
                      int64_t num_axes, const int64_t *axes, const float *begins, const float *extents, int64_t begins_are_parts,
                      int64_t extents_are_parts, int64_t is_centered, const char *pattern, const int64_t *to)
{
    for (int64_t i = 0; i < count; i++, shapes += row) {
        int64_t job[1 + 2 * MOST_AXES], nbytes = item;
        int64_t *sizes = job + 1, *strides = job + 1 + ndim;
        strides_of(shapes, (int)ndim, item, strides);
        for (int64_t k = 0; k < ndim; k++) {
            sizes[k] = shapes[k];
            nbytes *= shapes[k];
        }
        job[0] = to[i];
        for (int64_t a = 0; a < num_axes; a++) {
            int64_t k = axes[a];
            float side = (float)shapes[k];
            float begin = begins_are_parts ? begins[a] * side : begins[a];
            float extent = extents_are_parts ? extents[a] * side : extents[a];
            if (is_centered)
                begin -= extent / 2;
            float end = begin + extent;
            int64_t first = !(begin > 0) ? 0 : begin < side ? (int64_t)begin : shapes[k];
            int64_t last = !(end > 0) ? 0 : end < side ? (int64_t)end : shapes[k];
            job[0] += first * strides[k];
            sizes[k] = last > first ? last - first : 0;
        }
        memcpy((char *)to[i], (const char *)from[i], (size_t)nbytes);
        dlk_fill(1, ndim, pattern, item, job);
    }
}
