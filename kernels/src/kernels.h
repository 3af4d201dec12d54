/* Loops over batches of samples, for dali_like.common.kernel_library.

   Each function computes a whole batch. A table of int64 has a row, a "job", for each sample, with addresses, extents and
   strides; distances are in bytes. Functions check nothing, take no lock, and may run in several threads at once. Results
   have the bits of the NumPy code that they replace: no contraction to fused operations, and sums in the same order. */

#ifndef DALI_LIKE_KERNELS_H
#define DALI_LIKE_KERNELS_H

#include <stdint.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* The compiler makes two versions; the loader chooses. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define VECTORS
#endif

/* Codes of element types. dali_like.common.kernel_library has the same. */
enum element { U8, I8, U16, I16, U32, I32, U64, I64, F32, F64 };

enum { MOST_AXES = 16 };

void dlk_move_one(char *to, const char *from, const int64_t *extents, const int64_t *from_strides, const int64_t *to_strides,
                  int ndim, int64_t item);
void dlk_fill(int64_t count, int64_t ndim, const char *pattern, int64_t size, const int64_t *jobs);
void dlk_repeat(char *to, int64_t nbytes, const char *pattern, int64_t size);

#endif
