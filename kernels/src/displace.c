/* Images whose pixels come from other places: of a sphere, of waves, and of perspective transforms; see
   dali_like/operators/geometry/displacing.py. */

#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEAREST, LINEAR };
enum { CONSTANT, REPLICATE };
enum { HALVES_TO_EVEN, HALVES_UP };
/* Steps between two pixels in a perspective transform with interpolation. */
enum { STEP_BITS = 5, STEPS = 1 << STEP_BITS };

VECTORS static void positions_of_sphere(float *restrict rows, float *restrict columns, float y, float height, float width,
                                        float radius, int64_t count)
{
    const float middle_y = height / 2, middle_x = width / 2, down = y - middle_y;
    for (int64_t i = 0; i < count; i++) {
        float across = ((float)(int32_t)i + 0.5f) - middle_x;
        float distance = sqrtf(down * down + across * across) / radius;
        rows[i] = down * distance + middle_y;
        columns[i] = across * distance + middle_x;
    }
}

/* `down` has a number for each column. */
VECTORS static void positions_of_water(float *restrict rows, float *restrict columns, float y, float along,
                                       const float *restrict down, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        rows[i] = (y - 0.5f) + down[i];
        columns[i] = (((float)(int32_t)i + 0.5f) - 0.5f) + along;
    }
}

/* Write the numbers of the pixels at positions; -1 for those outside of the image. */
VECTORS static void numbers_at(int32_t *restrict numbers, const float *restrict rows, const float *restrict columns,
                               float height, float width, int64_t count)
{
    const int32_t pitch = (int32_t)width;
    for (int64_t i = 0; i < count; i++) {
        float row = floorf(rows[i]), column = floorf(columns[i]);
        int is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width);
        row = is_inside ? row : 0;
        column = is_inside ? column : 0;
        int32_t number = (int32_t)row * pitch + (int32_t)column;
        numbers[i] = is_inside ? number : -1;
    }
}

/* Write the numbers of the pixels above and to the left of positions, and the distances from them. Where one of the four
   pixels around a position is outside of the image, write -1. */
VECTORS static void corners_at(int32_t *restrict numbers, float *restrict rows, float *restrict columns, float height,
                               float width, int64_t count)
{
    const int32_t pitch = (int32_t)width;
    for (int64_t i = 0; i < count; i++) {
        float row = rows[i] - 0.5f, column = columns[i] - 0.5f, top = floorf(row), left = floorf(column);
        int is_inside = (top >= 0) & (top + 1 < height) & (left >= 0) & (left + 1 < width);
        float safe_top = is_inside ? top : 0, safe_left = is_inside ? left : 0;
        int32_t number = (int32_t)safe_top * pitch + (int32_t)safe_left;
        numbers[i] = is_inside ? number : -1;
        rows[i] = is_inside ? row - top : row;
        columns[i] = is_inside ? column - left : column;
    }
}

static inline const char *pixel_at(const char *image, float row, float column, int64_t height, int64_t width, int64_t pixel,
                                   const char *fill)
{
    if (row >= 0 && row < (float)height && column >= 0 && column < (float)width)
        return image + ((int64_t)row * width + (int64_t)column) * pixel;
    return fill;
}

static inline float between(float upper_left, float upper_right, float lower_left, float lower_right, float right, float below)
{
    float upper = upper_left * (1 - right) + upper_right * right, lower = lower_left * (1 - right) + lower_right * right;
    return upper * (1 - below) + lower * below;
}

static inline uint8_t rounded(float value)
{
    if (!(value == value))
        return 0;
    value = value > 0 ? value : 0;
    value = value < 255 ? value : 255;
    return (uint8_t)(value + 0.49999997f);
}

/* How the pixels of a job move, unless there is the address of waves. */
enum { AS_SPHERE, NOT_AT_ALL = -1 };

/* Take the pixels of each job: from, to, height, width, and for waves the addresses of a number for each row and each column;
   else how they move. Returns 0, or -1 without memory. */
EXPORT int64_t dlk_displace(int64_t count, int64_t item, int64_t channels, int64_t interpolation, const char *fill,
                            const int64_t *jobs)
{
    int64_t most = 1, pixel = item * channels;
    for (int64_t i = 0; i < count; i++)
        most = jobs[6 * i + 3] > most ? jobs[6 * i + 3] : most;
    float *rows = malloc((size_t)most * (2 * sizeof(float) + sizeof(int32_t))), *columns = rows + most;
    if (!rows)
        return -1;
    int32_t *numbers = (int32_t *)(columns + most);
    for (int64_t i = 0; i < count; i++, jobs += 6) {
        const char *image = (const char *)jobs[0];
        char *to = (char *)jobs[1];
        int64_t height = jobs[2], width = jobs[3], half = height / 2 > width / 2 ? height / 2 : width / 2;
        if (jobs[4] == NOT_AT_ALL) {
            memcpy(to, image, (size_t)(height * width * pixel));
            continue;
        }
        for (int64_t y = 0; y < height; y++) {
            float center = (float)y + 0.5f;
            if (jobs[4] != AS_SPHERE)
                positions_of_water(rows, columns, center, ((const float *)jobs[4])[y], (const float *)jobs[5], width);
            else
                positions_of_sphere(rows, columns, center, (float)height, (float)width, (float)(half > 1 ? half : 1), width);
            if (interpolation == NEAREST) {
                numbers_at(numbers, rows, columns, (float)height, (float)width, width);
                if (pixel == 3)
                    for (int64_t x = 0; x < width; x++, to += 3) {
                        const char *from = numbers[x] < 0 ? fill : image + 3 * (int64_t)numbers[x];
                        to[0] = from[0];
                        to[1] = from[1];
                        to[2] = from[2];
                    }
                else
                    for (int64_t x = 0; x < width; x++, to += pixel)
                        memcpy(to, numbers[x] < 0 ? fill : image + pixel * numbers[x], (size_t)pixel);
                continue;
            }
            corners_at(numbers, rows, columns, (float)height, (float)width, width);
            for (int64_t x = 0; x < width; x++, to += pixel) {
                float below = rows[x], right = columns[x];
                const char *corners[4];
                if (numbers[x] >= 0) {
                    corners[0] = image + pixel * numbers[x];
                    corners[1] = corners[0] + pixel;
                    corners[2] = corners[0] + width * pixel;
                    corners[3] = corners[2] + pixel;
                } else {
                    float top = floorf(below), left = floorf(right);
                    for (int k = 0; k < 4; k++)
                        corners[k] = pixel_at(image, top + (float)(k >> 1), left + (float)(k & 1), height, width, pixel, fill);
                    below -= top;
                    right -= left;
                }
                for (int64_t c = 0; c < channels; c++) {
                    if (item == 1) {
                        const uint8_t *const *bytes = (const uint8_t *const *)corners;
                        to[c] = (char)rounded(between(bytes[0][c], bytes[1][c], bytes[2][c], bytes[3][c], right, below));
                    } else {
                        const float *const *floats = (const float *const *)corners;
                        ((float *)to)[c] = between(floats[0][c], floats[1][c], floats[2][c], floats[3][c], right, below);
                    }
                }
            }
        }
    }
    free(rows);
    return 0;
}

static inline int64_t inside(int64_t place, int64_t extent)
{
    return place < 0 ? 0 : place >= extent ? extent - 1 : place;
}

static inline const uint8_t *byte_at(const uint8_t *image, int64_t row, int64_t column, int64_t height, int64_t width,
                                     int64_t channels, int64_t border, const uint8_t *fill)
{
    if (row < 0 || row >= height || column < 0 || column >= width) {
        if (border == CONSTANT)
            return fill;
        row = inside(row, height);
        column = inside(column, width);
    }
    return image + (row * width + column) * channels;
}

/* Where pixels of a row come from, in steps. Returns 1 if a position is not a number. */
VECTORS static int64_t positions_of_perspective(int32_t *restrict columns, int32_t *restrict rows, const double *restrict matrix,
                                                double row, double steps, int64_t count)
{
    const double a = matrix[0], b = matrix[1] * row + matrix[2], c = matrix[3], d = matrix[4] * row + matrix[5];
    const double e = matrix[6], f = matrix[7] * row + matrix[8], most = 1 << 20;
    int32_t wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        double column = (double)(int32_t)i, depth = e * column + f;
        double quotient = steps / depth, scale = depth != 0 ? quotient : 0;
        double x = (a * column + b) * scale, y = (c * column + d) * scale;
        wrong |= (x != x) | (y != y);
        x = x > -most ? x : -most;
        y = y > -most ? y : -most;
        x = x < most ? x : most;
        y = y < most ? y : most;
        columns[i] = (int32_t)rint(x);
        rows[i] = (int32_t)rint(y);
    }
    return wrong;
}

/* Map images of bytes for each job: from, to, height, width, height and width of the result. `matrices` has nine numbers for
   each job. Returns 0, 1 for a position that is not a number, or -1 without memory. */
EXPORT int64_t dlk_map_perspective(int64_t count, int64_t channels, int64_t interpolation, int64_t border, int64_t rounding,
                                   const uint8_t *fill, const int64_t *jobs, const double *matrices)
{
    int64_t most = 1, wrong = 0;
    for (int64_t i = 0; i < count; i++)
        most = jobs[6 * i + 5] > most ? jobs[6 * i + 5] : most;
    int32_t *xs = malloc((size_t)most * 2 * sizeof(int32_t)), *ys = xs + most;
    if (!xs)
        return -1;
    for (int64_t i = 0; i < count && !wrong; i++, jobs += 6, matrices += 9) {
        const uint8_t *image = (const uint8_t *)jobs[0];
        uint8_t *to = (uint8_t *)jobs[1];
        int64_t height = jobs[2], width = jobs[3];
        for (int64_t y = 0; y < jobs[4] && !wrong; y++) {
            wrong = positions_of_perspective(xs, ys, matrices, (double)y, interpolation == NEAREST ? 1 : STEPS, jobs[5]);
            for (int64_t x = 0; x < jobs[5] && !wrong; x++, to += channels) {
                int64_t column = xs[x], row = ys[x];
                if (interpolation == NEAREST) {
                    const uint8_t *pixel = byte_at(image, row, column, height, width, channels, border, fill);
                    for (int64_t c = 0; c < channels; c++)
                        to[c] = pixel[c];
                    continue;
                }
                int32_t right = (int32_t)(column & (STEPS - 1)), below = (int32_t)(row & (STEPS - 1));
                column >>= STEP_BITS;
                row >>= STEP_BITS;
                const uint8_t *corners[4];
                if (row >= 0 && column >= 0 && row + 1 < height && column + 1 < width) {
                    corners[0] = image + (row * width + column) * channels;
                    corners[1] = corners[0] + channels;
                    corners[2] = corners[0] + width * channels;
                    corners[3] = corners[2] + channels;
                } else {
                    for (int k = 0; k < 4; k++)
                        corners[k] = byte_at(image, row + (k >> 1), column + (k & 1), height, width, channels, border, fill);
                }
                const int32_t ul = (STEPS - right) * (STEPS - below), ur = right * (STEPS - below);
                const int32_t ll = (STEPS - right) * below, lr = right * below;
                for (int64_t c = 0; c < channels; c++) {
                    int32_t sum = corners[0][c] * ul + corners[1][c] * ur + corners[2][c] * ll + corners[3][c] * lr;
                    int32_t half = STEPS * STEPS / 2;
                    if (rounding == HALVES_TO_EVEN)
                        half += (sum >> (2 * STEP_BITS) & 1) - 1;
                    to[c] = (uint8_t)((sum + half) >> (2 * STEP_BITS));
                }
            }
        }
    }
    free(xs);
    return wrong;
}
