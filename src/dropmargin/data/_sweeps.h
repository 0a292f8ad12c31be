/* Products for one type of data and indices: _kernels.c defines KIND, DATA, INDEX, UINDEX and NAMED.
 *
 * Every function reads X once. The element-wise function f is given by `mode`: none, the square, the identity, an array
 * `fdata` of values with the sparsity pattern of X, the deviation x (x - r) with one r per feature, or presence, the
 * identity of values that are all 1 and are not read. The operands `right` of X and of f(X) are side by
 * side, one row of doubles per feature, so that all values for an entry are adjacent in memory; for a deviation, r is
 * the last of the row, also in the results `out` of transposed products. Sums are in double precision, and their order
 * depends on the data alone.
 *
 * Feature indices are read as unsigned: they are not negative, and sign extension takes time. The caller allocates all
 * memory, and sets the results of transposed products to zero.
 */

/* The entries of one row. */
typedef struct {
    const INDEX *features;
    const DATA *x;
    const DATA *f;
    INDEX size;
} NAMED(row);

INLINE NAMED(row) NAMED(row_at)(int64_t i, const INDEX *indptr, const INDEX *indices, const DATA *data,
                                const DATA *fdata, int mode)
{
    const INDEX begin = indptr[i];
    const DATA *f = mode == MODE_ARRAY ? fdata + begin : fdata;
    return (NAMED(row)){indices + begin, data + begin, f, indptr[i + 1] - begin};
}

/* x and f of entry e. `mode` is a constant in every inlined call, so that the compiler makes a loop for each mode. */
INLINE double NAMED(value)(const NAMED(row) *row, INDEX e, const int mode)
{
    return mode == MODE_PRESENCE ? 1.0 : (double)row->x[e];
}

INLINE double NAMED(entry)(const NAMED(row) *row, INDEX e, const int mode, const double *r)
{
    const double x = NAMED(value)(row, e, mode);
    return mode == MODE_SQUARE ? x * x
           : mode == MODE_IDENTITY || mode == MODE_PRESENCE ? x
           : mode == MODE_ARRAY ? (double)row->f[e]
           : mode == MODE_DEVIATION ? x * (x - *r)
           : 0.0;
}

/* The doubles per feature of an operand with so many columns. */
INLINE int NAMED(stride)(const int mode, int n_x, int n_f)
{
    return n_x + n_f + (mode == MODE_DEVIATION);
}

/* s and, for two columns of f(X), t += entry e times the row of `right` for its feature. */
INLINE void NAMED(add_pair)(const NAMED(row) *row, INDEX e, const int mode, const int n_f, const double *right,
                            pair *s, double *t)
{
    const double *z = right + (size_t)NAMED(stride)(mode, 1, n_f) * (UINDEX)row->features[e];
    const double f = NAMED(entry)(row, e, mode, z + 1 + n_f);
    *s += (pair){NAMED(value)(row, e, mode), f} * *(const pair *)z;
    if (n_f == 2) *t += f * z[2];
}

/* out += row times one column of `right` for X and n_f, one or two, for f(X). The first two products are one vector
 * operation, and four independent sums hide the latency of the additions. */
INLINE void NAMED(product_pair)(const NAMED(row) *row, const int mode, const int n_f, const double *right, double *out)
{
    pair s[4] = {{out[0], out[1]}, {0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}};
    double t[4] = {n_f == 2 ? out[2] : 0.0, 0.0, 0.0, 0.0};
    INDEX e = 0;
    for (; e + 3 < row->size; e += 4)
        for (int c = 0; c < 4; c++) NAMED(add_pair)(row, e + c, mode, n_f, right, s + c, t + c);
    for (; e < row->size; e++) NAMED(add_pair)(row, e, mode, n_f, right, s, t);
    const pair sum = (s[0] + s[1]) + (s[2] + s[3]);
    out[0] = sum[0];
    out[1] = sum[1];
    if (n_f == 2) out[2] = (t[0] + t[1]) + (t[2] + t[3]);
}

/* out += row times one column of `right` for X. */
INLINE void NAMED(product_one)(const NAMED(row) *row, const int mode, const double *right, double *out)
{
    double s[4] = {*out, 0.0, 0.0, 0.0};
    INDEX e = 0;
    for (; e + 3 < row->size; e += 4)
        for (int c = 0; c < 4; c++) s[c] += NAMED(value)(row, e + c, mode) * right[(UINDEX)row->features[e + c]];
    for (; e < row->size; e++) s[0] += NAMED(value)(row, e, mode) * right[(UINDEX)row->features[e]];
    *out = (s[0] + s[1]) + (s[2] + s[3]);
}

INLINE void NAMED(product_many)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *right,
                                double *restrict out)
{
    const size_t stride = (size_t)NAMED(stride)(mode, n_x, n_f);
    for (INDEX e = 0; e < row->size; e++) {
        const double *restrict z = right + stride * (UINDEX)row->features[e];
        const double x = NAMED(value)(row, e, mode), f = NAMED(entry)(row, e, mode, z + n_x + n_f);
        for (int k = 0; k < n_x; k++) out[k] += x * z[k];
        if (mode != MODE_NONE)
            for (int k = n_x; k < n_x + n_f; k++) out[k] += f * z[k];
    }
}

INLINE void NAMED(product_mode)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *right,
                                double *out)
{
    if (n_x == 1 && n_f == 1) NAMED(product_pair)(row, mode, 1, right, out);
    else if (n_x == 1 && n_f == 0) NAMED(product_one)(row, mode, right, out);
    else if (n_x == 1 && n_f == 2) NAMED(product_pair)(row, mode, 2, right, out);
    else NAMED(product_many)(row, mode, n_x, n_f, right, out);
}

/* out += row times `right`, by the fastest of the functions above. */
INLINE void NAMED(product)(const NAMED(row) *row, int mode, int n_x, int n_f, const double *right, double *out)
{
    switch (mode) {
        case MODE_SQUARE: NAMED(product_mode)(row, MODE_SQUARE, n_x, n_f, right, out); break;
        case MODE_IDENTITY: NAMED(product_mode)(row, MODE_IDENTITY, n_x, n_f, right, out); break;
        case MODE_ARRAY: NAMED(product_mode)(row, MODE_ARRAY, n_x, n_f, right, out); break;
        case MODE_DEVIATION: NAMED(product_mode)(row, MODE_DEVIATION, n_x, n_f, right, out); break;
        case MODE_PRESENCE: NAMED(product_mode)(row, MODE_PRESENCE, n_x, n_f, right, out); break;
        default: NAMED(product_mode)(row, MODE_NONE, n_x, n_f, right, out); break;
    }
}

INLINE void NAMED(transposed_pair)(const NAMED(row) *row, const int mode, const double *left, double *out)
{
    const pair factors = {left[0], left[1]};
    for (INDEX e = 0; e < row->size; e++) {
        double *z = out + (size_t)NAMED(stride)(mode, 1, 1) * (UINDEX)row->features[e];
        *(pair *)z += (pair){NAMED(value)(row, e, mode), NAMED(entry)(row, e, mode, z + 2)} * factors;
    }
}

INLINE void NAMED(transposed_many)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *restrict left,
                                   double *out)
{
    const size_t stride = (size_t)NAMED(stride)(mode, n_x, n_f);
    for (INDEX e = 0; e < row->size; e++) {
        double *restrict z = out + stride * (UINDEX)row->features[e];
        const double x = NAMED(value)(row, e, mode), f = NAMED(entry)(row, e, mode, z + n_x + n_f);
        for (int k = 0; k < n_x; k++) z[k] += x * left[k];
        if (mode != MODE_NONE)
            for (int k = n_x; k < n_x + n_f; k++) z[k] += f * left[k];
    }
}

INLINE void NAMED(transposed_mode)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *left,
                                   double *out)
{
    if (n_x == 1 && n_f == 1) NAMED(transposed_pair)(row, mode, left, out);
    else if (n_x == 1 && n_f == 0) NAMED(transposed_many)(row, mode, 1, 0, left, out);
    else if (n_x == 0 && n_f == 1) NAMED(transposed_many)(row, mode, 0, 1, left, out);
    else if (n_x == 2 && n_f == 1) NAMED(transposed_many)(row, mode, 2, 1, left, out);
    else if (n_x == 3 && n_f == 4) NAMED(transposed_many)(row, mode, 3, 4, left, out);
    else NAMED(transposed_many)(row, mode, n_x, n_f, left, out);
}

/* out[features of the row] += the entries of the row times `left`, by the fastest of the functions above. */
INLINE void NAMED(transposed)(const NAMED(row) *row, int mode, int n_x, int n_f, const double *left, double *out)
{
    switch (mode) {
        case MODE_SQUARE: NAMED(transposed_mode)(row, MODE_SQUARE, n_x, n_f, left, out); break;
        case MODE_IDENTITY: NAMED(transposed_mode)(row, MODE_IDENTITY, n_x, n_f, left, out); break;
        case MODE_ARRAY: NAMED(transposed_mode)(row, MODE_ARRAY, n_x, n_f, left, out); break;
        case MODE_DEVIATION: NAMED(transposed_mode)(row, MODE_DEVIATION, n_x, n_f, left, out); break;
        case MODE_PRESENCE: NAMED(transposed_mode)(row, MODE_PRESENCE, n_x, n_f, left, out); break;
        default: NAMED(transposed_mode)(row, MODE_NONE, n_x, n_f, left, out); break;
    }
}

/* out[i] = (X[i] @ right_x, f(X)[i] @ right_f), one row of n_x + n_f doubles each. */
CLONES void NAMED(forward)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                           const DATA *fdata, int mode, int n_x, int n_f, const double *right, double *out)
{
    const int width = n_x + n_f;
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, fdata, mode);
        for (int k = 0; k < width; k++) out[width * i + k] = 0.0;
        NAMED(product)(&row, mode, n_x, n_f, right, out + width * i);
    }
}

/* out[j] += (X' @ left_x, f(X)' @ left_f)[j]. */
CLONES void NAMED(backward)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                            const DATA *fdata, int mode, int n_x, int n_f, const double *left, double *out)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, fdata, mode);
        NAMED(transposed)(&row, mode, n_x, n_f, left + (n_x + n_f) * i, out);
    }
}

/* Hessian products of n outputs in one pass: with right = (p, u) and (a, t) = (X @ p, f(X) @ u) + shift of a row,
 *   out += (X' (A a + B t), f(X)' (B a + D t)),  sums += (A a + B t, B a + D t).
 * n_f is n; or it is 0: then there is no t, and right, shift, out and sums have n columns instead of 2 n.
 * `curvature_weight` has n values of A per row, or n of A, then n of B, then n of D. */
CLONES void NAMED(sandwich)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                            const DATA *fdata, int mode, int n, int n_f, const double *right, const double *shift,
                            const double *curvature_weight, double *out, double *sums)
{
    const int width = n + n_f;
    double scores[MAX_WIDTH];
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, fdata, mode);
        const double *h = curvature_weight + (n + 2 * n_f) * i;
        for (int k = 0; k < width; k++) scores[k] = shift[k];
        NAMED(product)(&row, mode, n, n_f, right, scores);
        for (int k = 0; k < n; k++) {
            if (n_f == 0) {
                scores[k] *= h[k];
            } else {
                const double a = scores[k], t = scores[n + k];
                scores[k] = h[k] * a + h[n + k] * t;
                scores[n + k] = h[n + k] * a + h[2 * n + k] * t;
            }
        }
        for (int k = 0; k < width; k++) sums[k] += scores[k];
        NAMED(transposed)(&row, mode, n, n_f, scores, out);
    }
}

/* For one output, with G = f(X) diag(s): g[e] = s f(x) of each entry of a row, and
 *   scores += (sum x p, sum g p),  for rows (p, s) of `right`. */
INLINE void NAMED(add_coupled)(const NAMED(row) *row, INDEX e, const int mode, const double *right, double *restrict g,
                               pair *sum)
{
    const double *z = right + (size_t)NAMED(stride)(mode, 1, 1) * (UINDEX)row->features[e];
    g[e] = z[1] * NAMED(entry)(row, e, mode, z + 2);
    *sum += (pair){NAMED(value)(row, e, mode), g[e]} * (pair){z[0], z[0]};
}

INLINE void NAMED(coupled_product)(const NAMED(row) *row, const int mode, const double *right, double *restrict g,
                                   double *scores)
{
    pair sums[4] = {{scores[0], scores[1]}, {0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}};
    INDEX e = 0;
    for (; e + 3 < row->size; e += 4)
        for (int c = 0; c < 4; c++) NAMED(add_coupled)(row, e + c, mode, right, g, sums + c);
    for (; e < row->size; e++) NAMED(add_coupled)(row, e, mode, right, g, sums);
    const pair sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    scores[0] = sum[0];
    scores[1] = sum[1];
}

INLINE void NAMED(coupled_mode)(const int mode, int64_t n_rows, const INDEX *indptr, const INDEX *indices,
                                const DATA *data, const DATA *fdata, const double *right, const double *shift,
                                const double *curvature_weight, double *restrict g, double *out, double *sums)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, fdata, mode);
        const double *h = curvature_weight + 3 * i;
        double scores[2] = {shift[0], shift[1]};
        NAMED(coupled_product)(&row, mode, right, g, scores);
        const double alpha = h[0] * scores[0] + h[1] * scores[1], beta = h[1] * scores[0] + h[2] * scores[1];
        for (INDEX e = 0; e < row.size; e++)
            out[(UINDEX)row.features[e]] += NAMED(value)(&row, e, mode) * alpha + g[e] * beta;
        sums[0] += alpha;
        sums[1] += beta;
    }
}

/* The Hessian product of one output: as `sandwich`, but with right = (p, s), t = f(X) (s p), and
 *   out += X' (A a + B t) + s f(X)' (B a + D t).
 * `g` is scratch memory for the entries of a row. */
CLONES void NAMED(coupled)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                           const DATA *fdata, int mode, const double *right, const double *shift,
                           const double *curvature_weight, double *g, double *out, double *sums)
{
#define COUPLED(MODE) \
    case MODE: \
        NAMED(coupled_mode)(MODE, n_rows, indptr, indices, data, fdata, right, shift, curvature_weight, g, out, sums); \
        break
    switch (mode) {
        COUPLED(MODE_SQUARE);
        COUPLED(MODE_IDENTITY);
        COUPLED(MODE_ARRAY);
        COUPLED(MODE_DEVIATION);
    }
#undef COUPLED
}

INLINE void NAMED(images_mode)(const int mode, int64_t n_rows, const INDEX *indptr, const INDEX *indices,
                               const DATA *data, const DATA *fdata, const double *right, const double *left,
                               double *out)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, fdata, mode);
        const double *h = left + 5 * i;
        for (INDEX e = 0; e < row.size; e++) {
            const size_t d = (UINDEX)row.features[e];
            const double *s = right + NAMED(stride)(mode, 1, 0) * d, x = NAMED(value)(&row, e, mode);
            const double g = *s * NAMED(entry)(&row, e, mode, s + 1);
            double *z = out + 3 * d;
            *(pair *)z += (pair){x, x} * (pair){h[0], h[1]} + (pair){g, g} * (pair){h[2], h[3]};
            z[2] += x * x * h[4];
        }
    }
}

/* Two images of a Hessian and a diagonal, for one output, with left = (a, b, c, d, h) for each row and right = s:
 *   out += (X' a + s f(X)' c,  X' b + s f(X)' d,  (X * X)' h). */
CLONES void NAMED(images)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                          const DATA *fdata, int mode, const double *right, const double *left, double *out)
{
#define IMAGES(MODE) \
    case MODE: NAMED(images_mode)(MODE, n_rows, indptr, indices, data, fdata, right, left, out); break
    switch (mode) {
        IMAGES(MODE_SQUARE);
        IMAGES(MODE_IDENTITY);
        IMAGES(MODE_ARRAY);
        IMAGES(MODE_DEVIATION);
        IMAGES(MODE_PRESENCE);
    }
#undef IMAGES
}

#include "_groups.h"

/* Row i of several blocks, whose first rows are `edges`. */
INLINE NAMED(row) NAMED(row_of_blocks)(int64_t i, const int64_t *edges, const INDEX *const *indptr,
                                       const INDEX *const *indices, const DATA *const *data)
{
    int k = 0;
    while (i >= edges[k + 1]) k++;
    return NAMED(row_at)(i - edges[k], indptr[k], indices[k], data[k], NULL, MODE_NONE);
}

/* Dual coordinate descent for the hinge loss (Hsieh et al. 2008), over all blocks, in a random order. A step on row i,
 * with score m = X[i] @ coef + intercept[0], minimises the dual over its variable a in [0, upper]: the gradient is
 *   label m - margin
 * and the curvature is scale |X[i]|^2 + intercept_step. A change of label a adds `scale` X[i] times it to the
 * coefficients, and `intercept_step` times it to the intercept. intercept[1] is the sum of all label a, which is zero
 * at the optimum: after each epoch the intercept changes by intercept_step times that sum, a proximal step.
 *
 * Shrinking: `active` is a permutation of the rows, of which the first n_active are active. A row at a bound becomes
 * inactive if its gradient exceeds all violations of the previous epoch, whose extremes are in `violations`. `state` is
 * the state of the random generator. */
CLONES void NAMED(descend_dual)(const int64_t *edges, const INDEX *const *indptr, const INDEX *const *indices,
                                const DATA *const *data, int n_epochs, const double *labels, const double *upper,
                                const double *squares, double margin, double scale, double intercept_step,
                                int64_t *active, int64_t *n_active, double *violations, uint64_t *state, double *dual,
                                double *coef, double *intercept)
{
    int64_t n = *n_active;
    for (int epoch = 0; epoch < n_epochs; epoch++) {
        double least = 0.0, largest = 0.0;
        for (int64_t k = n - 1; k > 0; k--) swap(active + k, active + next_random(state) % (uint64_t)(k + 1));
        for (int64_t k = 0; k < n; k++) {
            const int64_t i = active[k];
            const NAMED(row) row = NAMED(row_of_blocks)(i, edges, indptr, indices, data);
            double score = intercept[0];
            NAMED(product_one)(&row, MODE_NONE, coef, &score);
            const double gradient = labels[i] * score - margin;
            const int lowest = dual[i] <= 0.0, highest = dual[i] >= upper[i];
            if ((lowest && gradient > violations[1]) || (highest && gradient < violations[0])) {
                swap(active + k--, active + --n);
                continue;
            }
            if (gradient == 0.0 || (lowest && gradient > 0.0) || (highest && gradient < 0.0)) continue;
            if (gradient < least) least = gradient;
            if (gradient > largest) largest = gradient;
            /* Without curvature (a row without entries, and no intercept) the minimum is at a bound. */
            const double curvature = scale * squares[i] + intercept_step;
            const double minimum = curvature > 0.0 ? dual[i] - gradient / curvature : gradient < 0.0 ? upper[i] : 0.0;
            const double clipped = minimum < 0.0 ? 0.0 : minimum > upper[i] ? upper[i] : minimum;
            const double change = labels[i] * (clipped - dual[i]), step = scale * change;
            dual[i] = clipped;
            intercept[0] += intercept_step * change;
            intercept[1] += change;
            NAMED(transposed_many)(&row, MODE_NONE, 1, 0, &step, coef);
        }
        intercept[0] += intercept_step * intercept[1];
        violations[0] = least < 0.0 ? least : -INFINITY;
        violations[1] = largest > 0.0 ? largest : INFINITY;
    }
    *n_active = n;
}

#undef KIND
#undef DATA
#undef INDEX
#undef UINDEX
