/* Scale images of three bytes a pixel between two neighbors in each axis, with the bits of OpenCV's resize: weights are
   multiples of 1/2048, and sums of a row lose four bits. For processors with AVX2. */

#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

enum { GROUP = 8, BEYOND = 32 }; /* pixels computed together; bytes that are read or written behind a row */

#define AVX2 __attribute__((target("avx2")))

/* The first neighbor of a pixel of the result, and the weights of both. */
static int64_t neighbors(int64_t i, double scale, int16_t *weights)
{
    float position = (float)(((double)i + 0.5) * scale - 0.5);
    float first = floorf(position), part = position - first;
    weights[0] = (int16_t)lrintf((1.0f - part) * 2048.0f);
    weights[1] = (int16_t)lrintf(part * 2048.0f);
    return (int64_t)first;
}

/* Sums of two neighbors in a row: four numbers for each pixel, of which three count. */
AVX2 static void across(const uint8_t *row, const int32_t *places, const __m256i *weights, int64_t count, int16_t *sums)
{
    const __m256i pairs = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    for (int64_t x = 0; x < count; x += 4) {
        __m256i both[2];
        for (int k = 0; k < 2; k++) { /* pixels 0 and 2, then 1 and 3, so that packing puts them in order */
            __m128i one = _mm_loadl_epi64((const __m128i *)(row + places[x + k]));
            __m128i other = _mm_loadl_epi64((const __m128i *)(row + places[x + k + 2]));
            __m256i pixels = _mm256_inserti128_si256(_mm256_castsi128_si256(one), other, 1);
            __m256i sum = _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, pairs), _mm256_loadu_si256(weights + x / 2 + k));
            both[k] = _mm256_srai_epi32(sum, 4);
        }
        _mm256_storeu_si256((__m256i *)(sums + 4 * x), _mm256_packs_epi32(both[0], both[1]));
    }
}

AVX2 static void down(const int16_t *upper, const int16_t *lower, const int16_t *weights, int64_t count, uint8_t *to)
{
    const __m256i a = _mm256_set1_epi16(weights[0]), b = _mm256_set1_epi16(weights[1]), two = _mm256_set1_epi16(2);
    const __m256i three = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    for (int64_t x = 0; x < count; x += GROUP, to += 3 * GROUP) {
        __m256i half[2];
        for (int k = 0; k < 2; k++) {
            __m256i one = _mm256_mulhi_epi16(_mm256_loadu_si256((const __m256i *)(upper + 4 * x) + k), a);
            __m256i other = _mm256_mulhi_epi16(_mm256_loadu_si256((const __m256i *)(lower + 4 * x) + k), b);
            half[k] = _mm256_srai_epi16(_mm256_add_epi16(_mm256_add_epi16(one, other), two), 2);
        }
        __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(half[0], half[1]), 0xD8);
        bytes = _mm256_shuffle_epi8(bytes, three);
        _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(bytes));
        _mm_storeu_si128((__m128i *)(to + 3 * GROUP / 2), _mm256_extracti128_si256(bytes, 1));
    }
}

static int64_t limited(int64_t place, int64_t extent)
{
    return place < 0 ? 0 : place < extent ? place : extent - 1;
}

/* Scale an image, whose rows are `row_bytes` apart, to a contiguous one. Returns 0; -1 without memory or AVX2,
   or for few columns. */
EXPORT int64_t dlk_bilinear(const uint8_t *from, int64_t row_bytes, int64_t height, int64_t width, uint8_t *to, int64_t rows,
                            int64_t columns)
{
    if (width < 3 || !__builtin_cpu_supports("avx2")) /* eight bytes are read: a pixel, its neighbor, and a part of the next */
        return -1;
    int64_t count = (columns + GROUP - 1) / GROUP * GROUP;
    size_t sums_bytes = (size_t)count * 4 * sizeof(int16_t), last_bytes = (size_t)width * 3 + BEYOND;
    char *memory = malloc((size_t)count * (16 + sizeof(int32_t)) + 2 * sums_bytes + (size_t)count * 3 + BEYOND + last_bytes);
    if (!memory)
        return -1;
    int16_t *weights = (int16_t *)memory, *sums[2];
    int32_t *places = (int32_t *)(memory + 16 * count);
    sums[0] = (int16_t *)(places + count);
    sums[1] = sums[0] + 4 * count;
    uint8_t *line = (uint8_t *)(sums[1] + 4 * count), *last = line + 3 * count + BEYOND;
    double across_scale = 1.0 / ((double)columns / (double)width), down_scale = 1.0 / ((double)rows / (double)height);
    static const int64_t order[4] = {0, 2, 1, 3};

    for (int64_t x = 0; x < count; x++) {
        int16_t pair[2];
        int64_t place = neighbors(x < columns ? x : columns - 1, across_scale, pair);
        if (place < 0 || place >= width - 1) { /* one neighbor */
            place = limited(place, width);
            pair[0] = 2048;
            pair[1] = 0;
        }
        places[x] = (int32_t)(3 * place);
        for (int k = 0; k < 4; k++)
            memcpy(weights + 8 * (x / 4 * 4 + order[x % 4]) + 2 * k, pair, sizeof pair);
    }
    memcpy(last, from + (height - 1) * row_bytes, (size_t)width * 3); /* nothing may be read behind it */
    memset(last + width * 3, 0, BEYOND);

    int64_t held[2] = {-1, -1}; /* rows whose sums are there */
    for (int64_t y = 0; y < rows; y++, to += 3 * columns) {
        int16_t pair[2];
        int64_t place = neighbors(y, down_scale, pair), wanted[2] = {limited(place, height), limited(place + 1, height)};
        if (held[1] == wanted[0] || held[0] == wanted[1]) {
            int16_t *other = sums[0];
            int64_t row = held[0];
            sums[0] = sums[1];
            sums[1] = other;
            held[0] = held[1];
            held[1] = row;
        }
        for (int k = 0; k < 2; k++) {
            if (held[k] == wanted[k])
                continue;
            const uint8_t *row = wanted[k] == height - 1 ? last : from + wanted[k] * row_bytes;
            across(row, places, (const __m256i *)weights, count, sums[k]);
            held[k] = wanted[k];
        }
        down(sums[0], sums[1], pair, count, line);
        memcpy(to, line, (size_t)columns * 3);
    }
    free(memory);
    return 0;
}

#else

EXPORT int64_t dlk_bilinear(const uint8_t *from, int64_t row_bytes, int64_t height, int64_t width, uint8_t *to, int64_t rows,
                            int64_t columns)
{
    (void)from, (void)row_bytes, (void)height, (void)width, (void)to, (void)rows, (void)columns;
    return -1;
}

#endif
