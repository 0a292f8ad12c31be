/* Sweeps over the rows of a CSR matrix, several products at once.
 *
 * Every function reads X once. Next to X it knows f(X), an element-wise function given by `mode`: none, the square, X
 * itself, or an array of its own with the pattern of X. Weights of X and of f(X) lie side by side, one row of doubles
 * per feature, so that an entry touches one place in memory. All sums are in double precision, in an order that depends
 * on the data alone.
 *
 * Instances: data float or double, indices 32 or 64 bit. Columns are read as unsigned: they are never negative, and the
 * sign extension costs time. Memory belongs to the caller; the outputs of the transposed sweeps start as zeros.
 */
#include <stddef.h>
#include <stdint.h>

enum { MODE_NONE = 0, MODE_SQUARE = 1, MODE_IDENTITY = 2, MODE_ARRAY = 3 };

/* Wider vectors where the machine has them; the operations, and so the results, are the same. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif
/* A feature's two numbers; rows of NumPy's arrays may not be aligned to more than a double. */
typedef double pair __attribute__((vector_size(16), aligned(8), may_alias));
#define INLINE static inline __attribute__((always_inline))

#define ENTRY(x, e)                                                                                                    \
    (mode == MODE_SQUARE ? (x) * (x) : mode == MODE_IDENTITY ? (x) : mode == MODE_ARRAY ? (double)fdata[e] : 0.0)
#define CSR(DATA, INDEX) const INDEX *indptr, const INDEX *indices, const DATA *data, const DATA *fdata
#define MAX_WIDTH 512

/* `mode` is a constant in every call of the inline functions, so that the compiler makes one loop for each. */
#define BY_MODE(CALL)                                                                                                  \
    switch (mode) {                                                                                                    \
        case MODE_SQUARE: CALL(MODE_SQUARE); break;                                                                    \
        case MODE_IDENTITY: CALL(MODE_IDENTITY); break;                                                                \
        case MODE_ARRAY: CALL(MODE_ARRAY); break;                                                                      \
        default: CALL(MODE_NONE); break;                                                                               \
    }

#define DEFINE(NAME, DATA, INDEX, UINDEX)                                                                              \
                                                                                                                       \
/* One row times one column of weights of X and one of f(X), the pair in one vector; four chains of sums hide the latency \
 * of the additions. */                                                                                                \
INLINE void dot_##NAME(INDEX begin, INDEX end, const INDEX *indices, const DATA *data, const DATA *fdata,              \
                       const int mode, const double *weights, double *row)                                             \
{                                                                                                                      \
    const pair *z = (const pair *)weights;                                                                             \
    pair s0 = {row[0], row[1]}, s1 = {0.0, 0.0}, s2 = {0.0, 0.0}, s3 = {0.0, 0.0};                                     \
    INDEX e = begin;                                                                                                   \
    for (; e + 3 < end; e += 4) {                                                                                      \
        const double x0 = data[e], x1 = data[e + 1], x2 = data[e + 2], x3 = data[e + 3];                               \
        s0 += (pair){x0, ENTRY(x0, e)} * z[(UINDEX)indices[e]];                                                        \
        s1 += (pair){x1, ENTRY(x1, e + 1)} * z[(UINDEX)indices[e + 1]];                                                \
        s2 += (pair){x2, ENTRY(x2, e + 2)} * z[(UINDEX)indices[e + 2]];                                                \
        s3 += (pair){x3, ENTRY(x3, e + 3)} * z[(UINDEX)indices[e + 3]];                                                \
    }                                                                                                                  \
    for (; e < end; e++) {                                                                                             \
        const double x = data[e];                                                                                      \
        s0 += (pair){x, ENTRY(x, e)} * z[(UINDEX)indices[e]];                                                          \
    }                                                                                                                  \
    s0 = (s0 + s1) + (s2 + s3);                                                                                        \
    row[0] = s0[0];                                                                                                    \
    row[1] = s0[1];                                                                                                    \
}                                                                                                                      \
                                                                                                                       \
INLINE void scatter_##NAME(INDEX begin, INDEX end, const INDEX *indices, const DATA *data, const DATA *fdata,          \
                           const int mode, const double *row, double *out)                                             \
{                                                                                                                      \
    pair *z = (pair *)out;                                                                                             \
    const pair left = {row[0], row[1]};                                                                                \
    for (INDEX e = begin; e < end; e++) {                                                                              \
        const double x = data[e];                                                                                      \
        z[(UINDEX)indices[e]] += (pair){x, ENTRY(x, e)} * left;                                                        \
    }                                                                                                                  \
}                                                                                                                      \
                                                                                                                       \
/* The same for n_x columns of weights of X and n_f of f(X). */                                                        \
INLINE void dots_##NAME(INDEX begin, INDEX end, const INDEX *indices, const DATA *data, const DATA *fdata,             \
                        const int mode, int n_x, int n_f, const double *weights, double *restrict row)                 \
{                                                                                                                      \
    for (INDEX e = begin; e < end; e++) {                                                                              \
        const double x = data[e];                                                                                      \
        const double *restrict z = weights + (size_t)(n_x + n_f) * (UINDEX)indices[e];                                 \
        for (int k = 0; k < n_x; k++) row[k] += x * z[k];                                                              \
        if (mode != MODE_NONE) {                                                                                       \
            const double f = ENTRY(x, e);                                                                              \
            for (int k = n_x; k < n_x + n_f; k++) row[k] += f * z[k];                                                  \
        }                                                                                                              \
    }                                                                                                                  \
}                                                                                                                      \
                                                                                                                       \
INLINE void scatters_##NAME(INDEX begin, INDEX end, const INDEX *indices, const DATA *data, const DATA *fdata,         \
                            const int mode, int n_x, int n_f, const double *restrict row, double *out)                 \
{                                                                                                                      \
    for (INDEX e = begin; e < end; e++) {                                                                              \
        const double x = data[e];                                                                                      \
        double *restrict z = out + (size_t)(n_x + n_f) * (UINDEX)indices[e];                                           \
        for (int k = 0; k < n_x; k++) z[k] += x * row[k];                                                              \
        if (mode != MODE_NONE) {                                                                                       \
            const double f = ENTRY(x, e);                                                                              \
            for (int k = n_x; k < n_x + n_f; k++) z[k] += f * row[k];                                                  \
        }                                                                                                              \
    }                                                                                                                  \
}                                                                                                                      \
                                                                                                                       \
/* The same for a width of at most four that the compiler knows, with the sums in registers. */                        \
INLINE void few_dots_##NAME(INDEX begin, INDEX end, const INDEX *indices, const DATA *data, const DATA *fdata,         \
                            const int mode, const int n_x, const int n_f, const double *weights, double *row)          \
{                                                                                                                      \
    double sums[4] = {0.0, 0.0, 0.0, 0.0}, more[4] = {0.0, 0.0, 0.0, 0.0};                                             \
    INDEX e = begin;                                                                                                   \
    for (; e + 1 < end; e += 2) {                                                                                      \
        const double x = data[e], y = data[e + 1];                                                                     \
        const double *z = weights + (size_t)(n_x + n_f) * (UINDEX)indices[e];                                          \
        const double *v = weights + (size_t)(n_x + n_f) * (UINDEX)indices[e + 1];                                      \
        for (int k = 0; k < n_x + n_f; k++) sums[k] += (k < n_x ? x : ENTRY(x, e)) * z[k];                             \
        for (int k = 0; k < n_x + n_f; k++) more[k] += (k < n_x ? y : ENTRY(y, e + 1)) * v[k];                         \
    }                                                                                                                  \
    if (e < end) {                                                                                                     \
        const double x = data[e];                                                                                      \
        const double *z = weights + (size_t)(n_x + n_f) * (UINDEX)indices[e];                                          \
        for (int k = 0; k < n_x + n_f; k++) sums[k] += (k < n_x ? x : ENTRY(x, e)) * z[k];                             \
    }                                                                                                                  \
    for (int k = 0; k < n_x + n_f; k++) row[k] += sums[k] + more[k];                                                   \
}                                                                                                                      \
                                                                                                                       \
/* One row forth, and one row back, by the fastest way for its width. */                                               \
INLINE void row_forth_##NAME(INDEX begin, INDEX end, const INDEX *indices, const DATA *data, const DATA *fdata,        \
                             const int mode, int n_x, int n_f, const double *weights, double *row)                     \
{                                                                                                                      \
    if (n_x == 1 && n_f == 1) dot_##NAME(begin, end, indices, data, fdata, mode, weights, row);                        \
    else if (n_x == 1 && n_f == 0) few_dots_##NAME(begin, end, indices, data, fdata, mode, 1, 0, weights, row);        \
    else if (n_x == 1 && n_f == 2) few_dots_##NAME(begin, end, indices, data, fdata, mode, 1, 2, weights, row);        \
    else dots_##NAME(begin, end, indices, data, fdata, mode, n_x, n_f, weights, row);                                  \
}                                                                                                                      \
                                                                                                                       \
INLINE void row_back_##NAME(INDEX begin, INDEX end, const INDEX *indices, const DATA *data, const DATA *fdata,         \
                            const int mode, int n_x, int n_f, const double *row, double *out)                          \
{                                                                                                                      \
    if (n_x == 1 && n_f == 1) scatter_##NAME(begin, end, indices, data, fdata, mode, row, out);                        \
    else if (n_x == 1 && n_f == 0) scatters_##NAME(begin, end, indices, data, fdata, mode, 1, 0, row, out);            \
    else if (n_x == 0 && n_f == 1) scatters_##NAME(begin, end, indices, data, fdata, mode, 0, 1, row, out);            \
    else scatters_##NAME(begin, end, indices, data, fdata, mode, n_x, n_f, row, out);                                  \
}                                                                                                                      \
                                                                                                                       \
/* out[i] = (X[i] @ weights_x, f(X)[i] @ weights_f), one row of n_x + n_f doubles each. */                             \
CLONES void forward_##NAME(int64_t n_rows, CSR(DATA, INDEX), int mode, int n_x, int n_f, const double *weights,        \
                           double *out)                                                                                \
{                                                                                                                      \
    const int width = n_x + n_f;                                                                                       \
    for (int64_t i = 0; i < n_rows * width; i++) out[i] = 0.0;                                                         \
    for (int64_t i = 0; i < n_rows; i++) {                                                                             \
        double *row = out + width * i;                                                                                 \
        BY_MODE(FORTH_##NAME)                                                                                          \
    }                                                                                                                  \
}                                                                                                                      \
                                                                                                                       \
/* out[j] += (X' @ left_x, f(X)' @ left_f)[j]. */                                                                      \
CLONES void backward_##NAME(int64_t n_rows, CSR(DATA, INDEX), int mode, int n_x, int n_f, const double *left,          \
                            double *out)                                                                               \
{                                                                                                                      \
    for (int64_t i = 0; i < n_rows; i++) {                                                                             \
        const double *row = left + (n_x + n_f) * i;                                                                    \
        BY_MODE(BACK_##NAME)                                                                                           \
    }                                                                                                                  \
}                                                                                                                      \
                                                                                                                       \
/* Forth and back in one sweep, for n columns: with (a, t) = (X @ p, f(X) @ u) + shift of a row,                       \
 *   out += (X' (A a + B t), f(X)' (B a + D t)),  sums += (A a + B t, B a + D t).                                      \
 * Without f (mode 0) there is no t, and weights, shift, out and sums have n columns instead of 2 n. `curved` holds n  \
 * values of A per row, or n of A, then n of B, then n of D. */                                                        \
CLONES void sandwich_##NAME(int64_t n_rows, CSR(DATA, INDEX), int mode, int n, const double *weights,                  \
                            const double *shift, const double *curved, double *out, double *sums)                      \
{                                                                                                                      \
    const int n_x = n, n_f = mode == MODE_NONE ? 0 : n, width = n_x + n_f;                                             \
    double row[MAX_WIDTH];                                                                                             \
    for (int64_t i = 0; i < n_rows; i++) {                                                                             \
        const double *h = curved + (mode == MODE_NONE ? n : 3 * n) * i;                                                \
        for (int k = 0; k < width; k++) row[k] = shift[k];                                                             \
        BY_MODE(FORTH_##NAME)                                                                                          \
        for (int k = 0; k < n; k++) {                                                                                  \
            if (mode == MODE_NONE) {                                                                                   \
                row[k] *= h[k];                                                                                        \
            } else {                                                                                                   \
                const double a = row[k], t = row[n + k];                                                               \
                row[k] = h[k] * a + h[n + k] * t;                                                                      \
                row[n + k] = h[n + k] * a + h[2 * n + k] * t;                                                          \
            }                                                                                                          \
        }                                                                                                              \
        for (int k = 0; k < width; k++) sums[k] += row[k];                                                             \
        BY_MODE(BACK_##NAME)                                                                                           \
    }                                                                                                                  \
}

#define ROW indptr[i], indptr[i + 1], indices, data, fdata
#define FORTH_f4i4(M) row_forth_f4i4(ROW, M, n_x, n_f, weights, row)
#define FORTH_f4i8(M) row_forth_f4i8(ROW, M, n_x, n_f, weights, row)
#define FORTH_f8i4(M) row_forth_f8i4(ROW, M, n_x, n_f, weights, row)
#define FORTH_f8i8(M) row_forth_f8i8(ROW, M, n_x, n_f, weights, row)
#define BACK_f4i4(M) row_back_f4i4(ROW, M, n_x, n_f, row, out)
#define BACK_f4i8(M) row_back_f4i8(ROW, M, n_x, n_f, row, out)
#define BACK_f8i4(M) row_back_f8i4(ROW, M, n_x, n_f, row, out)
#define BACK_f8i8(M) row_back_f8i8(ROW, M, n_x, n_f, row, out)

DEFINE(f4i4, float, int32_t, uint32_t)
DEFINE(f4i8, float, int64_t, uint64_t)
DEFINE(f8i4, double, int32_t, uint32_t)
DEFINE(f8i8, double, int64_t, uint64_t)
