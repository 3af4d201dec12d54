/* Huffman codes of baseline JPEGs, read faster than by libjpeg-turbo, which decodes the rest. */

#ifndef DALI_LIKE_ENTROPY_H
#define DALI_LIKE_ENTROPY_H

#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

enum { LOOK_AHEAD = 10, TABLES = 4, PLANES = 4 };

/* The coefficients that begin at each of the next LOOK_AHEAD bits: one, or two that fit. `places` count from the last one. */
typedef struct {
    int16_t values[2]; /* of one coefficient twice; without one, the length of the code, and the symbol */
    uint8_t places[2];
    uint8_t step;   /* to the place behind the coefficients; END and more at the end of a block */
    uint8_t length; /* in bits, of codes and coefficients; 0: the first ones are longer */
} Symbols;

typedef struct {
    Symbols next[1 << LOOK_AHEAD];
    int32_t most[18]; /* the largest code of each length, -1 without one */
    int32_t shift[17];
    uint8_t bits[17], symbols[256]; /* as in the file */
} Table;

typedef struct {
    uint64_t bits; /* the next ones, at the upper end */
    int count;     /* how many are there, perhaps some behind the end */
    const uint8_t *next, *end;
    uint8_t *bytes; /* a segment without the zeros behind 0xFF, and zeros behind it */
    const uint8_t *file, *file_end;
    uint32_t last[PLANES]; /* first coefficients of the blocks before */
    int64_t left, restarts; /* blocks together until the next restart marker, and the number of the next one */
    const Table *dc, *ac;
} Entropy;

/* Let a decompressor, which has started, read codes by `entropy`. Returns 0 if it reads a kind of file that is not
   supported; then nothing has changed. Damaged files call the decompressor's error_exit. Free entropy->bytes at the end. */
int dlk_read_codes(struct jpeg_decompress_struct *info, Entropy *entropy);

/* Whether the marker behind the segment is that of the end of the image. */
int dlk_reaches_end(const Entropy *entropy);

#endif
