/* Windows of JPEGs, decoded by libjpeg-turbo. Compiled only where the headers and the library are; see build_library.py. */

#include "kernels.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entropy.h"

/* Color formats of the result. */
enum { RGB, BGR, GRAY };
/* Pixels beside a window that its pixels depend on: subsampled colors are interpolated between columns. */
enum { CONTEXT_COLUMNS = 2, MOST_ROWS = 16 };

typedef struct {
    struct jpeg_error_mgr base; /* the first member, which the library knows */
    jmp_buf leave;
} Errors;

static void leave(j_common_ptr info)
{
    longjmp(((Errors *)info->err)->leave, 1);
}

static void leave_at_warning(j_common_ptr info, int level)
{
    if (level < 0)
        leave(info);
}

static void do_nothing(j_common_ptr info)
{
    (void)info;
}

/* Not by jpeg_std_error: Debian's static library has its text for programs only, because it uses stderr. */
static void catch_errors(Errors *errors)
{
    memset(&errors->base, 0, sizeof errors->base);
    errors->base.error_exit = leave;
    errors->base.emit_message = leave_at_warning;
    errors->base.output_message = errors->base.reset_error_mgr = do_nothing;
}

typedef struct {
    int64_t top, left, height, width; /* in pixels of the scaled image */
    int64_t factor;                   /* 1, 2, 4 or 8 */
    int64_t format;
    int64_t is_fast;
    int64_t most_pixels; /* of the whole image */
    int64_t scans;       /* that any file may have; each one goes through all pixels */
    int64_t scanned;     /* pixels of all scans of files with more */
} Window;

/* Called while a file with several scans is read. */
typedef struct {
    struct jpeg_progress_mgr base; /* the first member, which the library knows */
    int64_t most_scans;
} Progress;

static void count_scans(j_common_ptr info)
{
    if (((j_decompress_ptr)info)->input_scan_number > ((Progress *)info->progress)->most_scans)
        leave(info);
}

static int start(struct jpeg_decompress_struct *info, const uint8_t *file, int64_t size, const Window *window)
{
    jpeg_mem_src(info, (unsigned char *)file, (unsigned long)size);
    if (jpeg_read_header(info, TRUE) != JPEG_HEADER_OK)
        return 0;
    J_COLOR_SPACE colors = info->jpeg_color_space;
    int64_t pixels = (int64_t)info->image_height * info->image_width, most_scans = window->scanned / (pixels ? pixels : 1);
    if ((colors != JCS_GRAYSCALE && colors != JCS_YCbCr && colors != JCS_RGB) || pixels > window->most_pixels)
        return 0;
    ((Progress *)info->progress)->most_scans = most_scans > window->scans ? most_scans : window->scans;
    info->out_color_space = window->format == GRAY ? JCS_GRAYSCALE : window->format == BGR ? JCS_EXT_BGR : JCS_EXT_RGB;
    info->scale_num = 1;
    info->scale_denom = (unsigned)window->factor;
    info->dct_method = window->is_fast ? JDCT_IFAST : JDCT_ISLOW;
    return jpeg_start_decompress(info) && window->top + window->height <= info->output_height &&
           window->left + window->width <= info->output_width && window->height > 0 && window->width > 0;
}

/* Decode a window into contiguous memory. Returns 0; 1 if another decoder must decode the file: its colors are of another
   kind, the window is not inside it, or libjpeg-turbo warns of a defect above the end of the window. */
EXPORT int64_t dlk_decode_window(const uint8_t *file, int64_t size, const Window *window, uint8_t *to)
{
    struct jpeg_decompress_struct info;
    Errors errors;
    Progress progress;
    Entropy *entropy = malloc(sizeof *entropy);
    uint8_t *volatile beside = 0; /* rows with the columns beside the window */
    volatile int64_t status = 1;

    if (!entropy)
        return 1;
    entropy->bytes = 0;
    catch_errors(&errors);
    memset(&info, 0, sizeof info); /* so that it can be destroyed whatever happens */
    info.err = &errors.base;
    memset(&progress, 0, sizeof progress);
    progress.base.progress_monitor = count_scans;
    if (setjmp(errors.leave)) {
        jpeg_destroy_decompress(&info);
        free(beside);
        free(entropy->bytes);
        free(entropy);
        return status;
    }
    jpeg_create_decompress(&info);
    info.progress = &progress.base;
    if (start(&info, file, size, window)) {
        int64_t last = window->left + window->width + CONTEXT_COLUMNS;
        JDIMENSION first = window->left > CONTEXT_COLUMNS ? (JDIMENSION)(window->left - CONTEXT_COLUMNS) : 0;
        JDIMENSION columns = (JDIMENSION)(last < info.output_width ? last : info.output_width) - first;
        if (columns < info.output_width)
            jpeg_crop_scanline(&info, &first, &columns);
        int is_ours = dlk_read_codes(&info, entropy);
        if (window->top && jpeg_skip_scanlines(&info, (JDIMENSION)window->top) != window->top)
            leave((j_common_ptr)&info);
        int64_t channels = info.output_components, row_bytes = window->width * channels;
        int64_t skipped = (window->left - first) * channels, decoded_bytes = columns * channels;
        int is_alone = decoded_bytes == row_bytes;
        if (!is_alone && !(beside = malloc((size_t)(MOST_ROWS * decoded_bytes))))
            leave((j_common_ptr)&info);
        for (int64_t row = 0; row < window->height;) {
            JSAMPROW rows[MOST_ROWS];
            int64_t left = window->height - row, wanted = left < MOST_ROWS ? left : MOST_ROWS;
            for (int64_t i = 0; i < wanted; i++)
                rows[i] = is_alone ? to + (row + i) * row_bytes : beside + i * decoded_bytes;
            int64_t made = jpeg_read_scanlines(&info, rows, (JDIMENSION)wanted);
            for (int64_t i = 0; !is_alone && i < made; i++)
                memcpy(to + (row + i) * row_bytes, rows[i] + skipped, (size_t)row_bytes);
            row += made;
        }
        /* What follows the last row may tell that the file is damaged. */
        if (info.output_scanline == info.output_height)
            status = is_ours ? !dlk_reaches_end(entropy) : !jpeg_finish_decompress(&info);
        else
            status = 0;
    }
    jpeg_destroy_decompress(&info);
    free(beside);
    free(entropy->bytes);
    free(entropy);
    return status;
}

/* Decode a window for each job: file, its size, to, and a Window. Returns 0, or 1 if another decoder must decode one of them. */
EXPORT int64_t dlk_decode_windows(int64_t count, const int64_t *jobs)
{
    enum { NUMBERS = 3 + sizeof(Window) / sizeof(int64_t) };
    for (int64_t i = 0; i < count; i++, jobs += NUMBERS)
        if (dlk_decode_window((const uint8_t *)jobs[0], jobs[1], (const Window *)(jobs + 3), (uint8_t *)jobs[2]))
            return 1;
    return 0;
}
