/* Loops over audio signals. */

#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum border { ZERO, CLAMP, REFLECT };

VECTORS static void filter(const float *restrict from, float *restrict to, int64_t count, float coefficient)
{
    for (int64_t i = 1; i < count; i++)
        to[i] = from[i - 1] * -coefficient + from[i];
}

/* Subtract a part of the previous sample for each job: from, to, number of samples. `coefficients` has one for each. */
EXPORT void dlk_preemphasis(int64_t count, const int64_t *jobs, const float *coefficients, int64_t border)
{
    for (int64_t i = 0; i < count; i++, jobs += 3) {
        const float *from = (const float *)jobs[0];
        float *to = (float *)jobs[1];
        int64_t length = jobs[2];
        if (!length)
            continue;
        filter(from, to, length, coefficients[i]);
        to[0] = from[0];
        if (border != ZERO)
            to[0] -= coefficients[i] * from[border == REFLECT && length > 1 ? 1 : 0];
    }
}

/* The mean power in each window. Sums begin anew at each interval, and change from one window to the next. */
static void power_of_floats(const float *from, int64_t length, int64_t window, int64_t interval, float *power)
{
    int64_t count = length - window + 1, step = interval - window + 1;
    float share = (float)(1.0 / (double)window);
    for (int64_t begin = 0; begin < count; begin += step) {
        int64_t end = begin + step < count ? begin + step : count;
        float sum = from[begin] * from[begin];
        for (int64_t i = begin + 1; i < begin + window; i++)
            sum += from[i] * from[i];
        power[begin] = sum * share;
        for (int64_t i = begin + 1; i < end; i++) {
            sum -= from[i - 1] * from[i - 1];
            sum += from[i + window - 1] * from[i + window - 1];
            power[i] = sum * share;
        }
    }
}

static void power_of_integers(const int16_t *from, int64_t length, int64_t window, float *power)
{
    int64_t count = length - window + 1, sum = 0;
    float share = (float)(1.0 / (double)window);
    for (int64_t i = 0; i < window; i++)
        sum += (int64_t)from[i] * from[i];
    for (int64_t i = 0;; i++) {
        power[i] = (float)sum * share;
        if (i + 1 == count)
            break;
        sum += (int64_t)from[i + window] * from[i + window] - (int64_t)from[i] * from[i];
    }
}

VECTORS static float largest_of(const float *values, int64_t count)
{
    float largest = values[0];
    int is_unknown = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = values[i] > largest ? values[i] : largest;
        is_unknown |= values[i] != values[i];
    }
    return is_unknown ? NAN : largest;
}

/* Find the part between silence for each job: from, number of samples. Elements are F32 or I16.
   reference: the power of 0 decibels; 0: the maximum. cutoff: factor of the threshold.
   Returns 0, or -1 without memory. */
EXPORT int64_t dlk_nonsilent(int64_t count, int64_t element, const int64_t *jobs, int64_t window_length, int64_t interval,
                             float reference, float cutoff, int32_t *begins, int32_t *lengths)
{
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most = jobs[2 * i + 1] > most ? jobs[2 * i + 1] : most;
    float *power = malloc((size_t)most * sizeof(float));
    if (!power)
        return -1;
    for (int64_t i = 0; i < count; i++, jobs += 2) {
        int64_t length = jobs[1], window = window_length < length ? window_length : length;
        begins[i] = lengths[i] = 0;
        if (!length)
            continue;
        if (element == F32)
            power_of_floats((const float *)jobs[0], length, window, interval > 0 ? interval : length, power);
        else
            power_of_integers((const int16_t *)jobs[0], length, window, power);
        int64_t windows = length - window + 1, first = 0, last = windows - 1;
        float threshold = (reference != 0 ? reference : largest_of(power, windows)) * cutoff;
        while (first < windows && !(power[first] >= threshold))
            first++;
        if (first == windows)
            continue;
        while (!(power[last] >= threshold))
            last--;
        begins[i] = (int32_t)first;
        lengths[i] = (int32_t)(last - first + window);
    }
    free(power);
    return 0;
}

static int64_t reflected(int64_t place, int64_t length)
{
    if (length == 1)
        return 0;
    int64_t period = 2 * (length - 1);
    place %= period;
    if (place < 0)
        place += period;
    return place < length ? place : period - place;
}

/* Cut windows out of signals, multiply them by factors, and append zeros, for each job: from, to, number of samples, first
   window, number of windows. A window begins at `number * step - before`. */
EXPORT void dlk_frames(int64_t count, const int64_t *jobs, const float *factors, int64_t window, int64_t step,
                       int64_t before, int64_t size, int64_t reflect)
{
    for (int64_t job = 0; job < count; job++, jobs += 5) {
        const float *from = (const float *)jobs[0];
        float *to = (float *)jobs[1];
        int64_t length = jobs[2];
        for (int64_t i = 0; i < jobs[4]; i++, to += size) {
            int64_t begin = (jobs[3] + i) * step - before;
            if (begin >= 0 && begin + window <= length) {
                for (int64_t k = 0; k < window; k++)
                    to[k] = from[begin + k] * factors[k];
            } else {
                for (int64_t k = 0; k < window; k++) {
                    int64_t place = begin + k;
                    float value = 0;
                    if (place >= 0 && place < length)
                        value = from[place];
                    else if (reflect)
                        value = from[reflected(place, length)];
                    to[k] = value * factors[k];
                }
            }
            memset(to + window, 0, (size_t)(size - window) * sizeof(float));
        }
    }
}

VECTORS static void powers(const float *restrict from, float *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[2 * i] * from[2 * i] + from[2 * i + 1] * from[2 * i + 1];
}

/* Write the power, or magnitude, of complex numbers of shape (windows, size) for each job: from, to, windows, distance of
   windows in the target, distance of frequencies in the target, both in elements. */
EXPORT void dlk_power(int64_t count, const int64_t *jobs, int64_t size, int64_t is_magnitude)
{
    enum { TILE = 16 };
    for (int64_t job = 0; job < count; job++, jobs += 5) {
        const float *from = (const float *)jobs[0];
        float *to = (float *)jobs[1];
        int64_t windows = jobs[2];
        if (jobs[4] == 1) {
            for (int64_t i = 0; i < windows; i++) {
                powers(from + 2 * i * size, to + i * jobs[3], size);
                for (int64_t k = 0; is_magnitude && k < size; k++)
                    to[i * jobs[3] + k] = sqrtf(to[i * jobs[3] + k]);
            }
            continue;
        }
        for (int64_t i = 0; i < windows; i += TILE) {
            int64_t end = i + TILE < windows ? i + TILE : windows;
            for (int64_t k = 0; k < size; k++)
                for (int64_t j = i; j < end; j++) {
                    const float *number = from + 2 * (j * size + k);
                    float power = number[0] * number[0] + number[1] * number[1];
                    to[j * jobs[3] + k * jobs[4]] = is_magnitude ? sqrtf(power) : power;
                }
        }
    }
}

/* Divide by the reference and limit from below for each job: from, to, number of elements. A reference of 0: the maximum. */
EXPORT void dlk_relative(int64_t count, const int64_t *jobs, float reference, float least)
{
    for (int64_t job = 0; job < count; job++, jobs += 3) {
        const float *from = (const float *)jobs[0];
        float *to = (float *)jobs[1], divisor = reference;
        int64_t size = jobs[2];
        if (divisor == 0) {
            for (int64_t i = 0; i < size; i++)
                divisor = from[i] > divisor ? from[i] : divisor;
            divisor = divisor > 0 ? divisor : 1;
        }
        float factor = 1 / divisor;
        for (int64_t i = 0; i < size; i++) {
            float value = from[i] * factor;
            to[i] = value > least ? value : least; /* also instead of NaN */
        }
    }
}
