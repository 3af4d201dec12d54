/* Huffman codes of baseline JPEGs. One look at a table finds a code and the coefficient behind it, as in many decoders.
   Compiled only with libjpeg-turbo. */

#include "entropy.h"

#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { END = 128, PADDING = 1024, LOOKS = 5 };
_Static_assert(LOOKS * LOOK_AHEAD <= 56, "as many bits as one refill gives");

/* The first functions of the library's object for entropy decoding, the same since its first version. */
typedef struct {
    void (*start_pass)(j_decompress_ptr info);
    boolean (*decode_mcu)(j_decompress_ptr info, JBLOCKROW *blocks);
} Decoder;

/* Coefficients in the order of the file. A run that leaves the block ends at its last one, as in the library. */
static const uint8_t places[64 + 16] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,
    6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31,
    39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

static void fail(struct jpeg_decompress_struct *info)
{
    info->err->error_exit((j_common_ptr)info);
}

static int extended(int value, int size)
{
    return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

/* Tables of the latest file of this thread. Most programs write the same tables into all files. */
static _Thread_local Table dc_tables[TABLES], ac_tables[TABLES];

/* The library has checked the codes. Returns 0 if the table is there. */
static int make_table(Table *table, const JHUFF_TBL *given, int is_dc)
{
    int code = 0, number = 0;
    if (!memcmp(table->bits, given->bits, sizeof table->bits) && !memcmp(table->symbols, given->huffval, sizeof table->symbols))
        return 0;
    memset(table->next, 0, sizeof table->next);
    memcpy(table->bits, given->bits, sizeof table->bits);
    memcpy(table->symbols, given->huffval, sizeof table->symbols);
    for (int length = 1; length <= 16; length++, code <<= 1) {
        table->shift[length] = number - code;
        for (int i = 0; i < given->bits[length]; i++, code++, number++) {
            int symbol = given->huffval[number], size = symbol & 15, run = is_dc ? 0 : symbol >> 4;
            int rest = LOOK_AHEAD - length;
            if (rest < 0)
                continue;
            Symbols *place = table->next + (code << rest);
            if (size > rest) {
                for (int k = 0; k < 1 << rest; k++)
                    place[k] = (Symbols){{(int16_t)length, (int16_t)symbol}, {0, 0}, 0, 0};
                continue;
            }
            int step = size || is_dc || run == 15 ? run + 1 : END;
            uint8_t to = (uint8_t)(step == END ? 0 : run);
            for (int bits = 0; bits < 1 << size; bits++) {
                int16_t value = (int16_t)(size ? extended(bits, size) : 0);
                Symbols found = {{value, value}, {to, to}, (uint8_t)step, (uint8_t)(length + size)};
                for (int k = 0; k < 1 << (rest - size); k++)
                    *place++ = found;
            }
        }
        table->most[length] = given->bits[length] ? code - 1 : -1;
    }
    table->most[17] = INT32_MAX;
    return 1;
}

/* Let the table find two coefficients, or the last one of a block and its end, where both fit. */
static void join_symbols(Table *table)
{
    Symbols single[1 << LOOK_AHEAD];
    memcpy(single, table->next, sizeof table->next);
    for (int i = 0; i < 1 << LOOK_AHEAD; i++) {
        Symbols *one = table->next + i;
        if (!one->length || !one->values[0]) /* long, the end of a block, or zeros */
            continue;
        Symbols two = single[i << one->length & ((1 << LOOK_AHEAD) - 1)];
        if (!two.length || one->length + two.length > LOOK_AHEAD)
            continue;
        if (two.step < END) {
            one->values[1] = two.values[0];
            one->places[1] = (uint8_t)(one->step + two.places[0]);
        }
        one->step = (uint8_t)(one->step + two.step);
        one->length = (uint8_t)(one->length + two.length);
    }
}

/* Copy the bytes up to the next marker. */
static void open_segment(struct jpeg_decompress_struct *info, Entropy *entropy)
{
    const uint8_t *from = entropy->file;
    uint8_t *to = entropy->bytes;
    for (;;) {
        const uint8_t *found = memchr(from, 0xFF, (size_t)(entropy->file_end - from));
        if (!found || found + 1 >= entropy->file_end || found[1] == 0xFF)
            fail(info); /* cut off, or with bytes to skip */
        size_t size = (size_t)(found - from);
        memcpy(to, from, size);
        to += size;
        from = found;
        if (found[1])
            break;
        *to++ = 0xFF;
        from += 2;
    }
    memset(to, 0, PADDING);
    entropy->file = from;
    entropy->next = entropy->bytes;
    entropy->end = to;
    entropy->bits = 0;
    entropy->count = 0;
    memset(entropy->last, 0, sizeof entropy->last);
}

static inline uint64_t eight_bytes(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

#define REFILL                                                                                                             \
    do {                                                                                                                   \
        bits |= eight_bytes(next) >> count;                                                                                \
        next += (63 - count) >> 3;                                                                                         \
        count |= 56;                                                                                                       \
    } while (0)
#define DROP(number)                                                                                                       \
    do {                                                                                                                   \
        bits <<= (number);                                                                                                 \
        count -= (number);                                                                                                 \
    } while (0)

static inline int number_of_bits(uint64_t *bits, int *count, int size)
{
    int value = (int)(*bits >> (64 - size));
    *bits <<= size;
    *count -= size;
    return extended(value, size);
}

/* The symbol of any code, or -1. */
static inline int symbol_of(const Table *table, uint64_t bits, int size, int *length)
{
    while (size <= 16 && (int32_t)(bits >> (64 - size)) > table->most[size])
        size++;
    *length = size;
    return size > 16 ? -1 : table->symbols[((int32_t)(bits >> (64 - size)) + table->shift[size]) & 255];
}

/* The symbol of a code that is longer than the table, or whose coefficient is. */
static inline int long_symbol(const Table *table, Symbols seen, uint64_t bits, int *length)
{
    if (!seen.values[0])
        return symbol_of(table, bits, LOOK_AHEAD + 1, length);
    *length = seen.values[0];
    return seen.values[1];
}

/* Read a block, and write its coefficients unless `block` is 0. `first` becomes the change of the first one. Returns whether
   the codes are known, and end before the end of the segment. */
static inline int read_block(Entropy *entropy, const Table *dc, const Table *ac, JCOEF *block, int *first)
{
    uint64_t bits = entropy->bits;
    int count = entropy->count, length = 0;
    const uint8_t *next = entropy->next;
    REFILL;
    Symbols seen = dc->next[bits >> (64 - LOOK_AHEAD)];
    if (seen.length) {
        DROP(seen.length);
        *first = seen.values[0];
    } else {
        int size = long_symbol(dc, seen, bits, &length);
        if (size < 0)
            return 0;
        DROP(length);
        *first = size ? number_of_bits(&bits, &count, size) : 0;
    }
    for (int k = 1; k < 64;) {
        REFILL;
        /* There are 56 bits: enough for some looks at the table, or a long code. */
        for (int i = 0; i < LOOKS && k < 64; i++) {
            seen = ac->next[bits >> (64 - LOOK_AHEAD)];
            if (seen.length && k + seen.places[0] < 63) {
                DROP(seen.length);
                if (block) {
                    block[places[k + seen.places[0]]] = seen.values[0];
                    block[places[k + seen.places[1]]] = seen.values[1];
                }
                k += seen.step;
                continue;
            }
            if (i)
                break;
            /* A long code, or the last coefficient, behind which another block begins. */
            int symbol = seen.length ? symbol_of(ac, bits, 1, &length) : long_symbol(ac, seen, bits, &length);
            if (symbol < 0)
                return 0;
            DROP(length);
            if (symbol & 15) {
                int value = number_of_bits(&bits, &count, symbol & 15);
                k += symbol >> 4;
                if (block)
                    block[places[k]] = (JCOEF)value;
                k++;
            } else {
                k += symbol >> 4 == 15 ? 16 : END;
            }
            break;
        }
    }
    entropy->bits = bits;
    entropy->count = count;
    entropy->next = next;
    return next - (count >> 3) <= entropy->end;
}

static void restart(struct jpeg_decompress_struct *info, Entropy *entropy)
{
    const uint8_t *file = entropy->file;
    if (file[1] != JPEG_RST0 + entropy->restarts || entropy->next - (entropy->count >> 3) < entropy->end)
        fail(info);
    entropy->restarts = (entropy->restarts + 1) & 7;
    entropy->left = info->restart_interval;
    entropy->file += 2;
    open_segment(info, entropy);
}

static boolean decode_blocks(j_decompress_ptr info, JBLOCKROW *blocks)
{
    Entropy *entropy = info->client_data;
    if (info->restart_interval && !entropy->left--) {
        restart(info, entropy);
        entropy->left--;
    }
    for (int i = 0; i < info->blocks_in_MCU; i++) {
        int plane = info->MCU_membership[i], first;
        const jpeg_component_info *component = info->cur_comp_info[plane];
        const Table *dc = entropy->dc + component->dc_tbl_no, *ac = entropy->ac + component->ac_tbl_no;
        int is_needed = blocks && component->component_needed;
        if (!(is_needed ? read_block(entropy, dc, ac, *blocks[i], &first) : read_block(entropy, dc, ac, 0, &first)))
            fail(info);
        entropy->last[plane] += (uint32_t)first;
        if (is_needed)
            (*blocks[i])[0] = (JCOEF)entropy->last[plane];
    }
    return TRUE;
}

int dlk_reaches_end(const Entropy *entropy)
{
    return entropy->file[1] == JPEG_EOI;
}

int dlk_read_codes(struct jpeg_decompress_struct *info, Entropy *entropy)
{
    if (info->progressive_mode || info->arith_code || jpeg_has_multiple_scans(info) || info->data_precision != 8 ||
        info->Ss != 0 || info->Se != 63 || info->unread_marker)
        return 0;
    for (int i = 0; i < info->comps_in_scan; i++) {
        int dc = info->cur_comp_info[i]->dc_tbl_no, ac = info->cur_comp_info[i]->ac_tbl_no;
        if (dc < 0 || dc >= TABLES || ac < 0 || ac >= TABLES || !info->dc_huff_tbl_ptrs[dc] || !info->ac_huff_tbl_ptrs[ac])
            return 0;
        make_table(dc_tables + dc, info->dc_huff_tbl_ptrs[dc], 1);
        if (make_table(ac_tables + ac, info->ac_huff_tbl_ptrs[ac], 0))
            join_symbols(ac_tables + ac);
    }
    entropy->dc = dc_tables;
    entropy->ac = ac_tables;
    entropy->file = info->src->next_input_byte;
    entropy->file_end = entropy->file + info->src->bytes_in_buffer;
    entropy->left = info->restart_interval;
    entropy->restarts = 0;
    if (!(entropy->bytes = malloc(info->src->bytes_in_buffer + PADDING)))
        return 0;
    open_segment(info, entropy);
    info->client_data = entropy;
    ((Decoder *)info->entropy)->decode_mcu = decode_blocks;
    return 1;
}
