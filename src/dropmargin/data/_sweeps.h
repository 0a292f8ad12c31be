/* Products for one type of data and indices: _kernels.c defines KIND, DATA, INDEX, UINDEX and NAMED.
 *
 * Every function reads X once. The element-wise function f is given by `mode`: none, the square, the identity, an array
 * `fdata` of values with the sparsity pattern of X, or x (x - r) with `fdata` having r, one per feature. The operands `right` of X and of f(X) are side by side, one row of
 * doubles per feature, so that all values for an entry are adjacent in memory. Sums are in double precision, and their
 * order depends on the data alone.
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

/* f of entry e. `mode` is a constant in every inlined call, so that the compiler makes a loop for each mode. */
INLINE double NAMED(entry)(const NAMED(row) *row, INDEX e, const int mode)
{
    const double x = row->x[e];
    return mode == MODE_SQUARE ? x * x
           : mode == MODE_IDENTITY ? x
           : mode == MODE_ARRAY ? (double)row->f[e]
           : mode == MODE_DEVIATION ? x * (x - (double)row->f[(UINDEX)row->features[e]])
           : 0.0;
}

/* s and, for two columns of f(X), t += entry e times the row of `right` for its feature. */
INLINE void NAMED(add_pair)(const NAMED(row) *row, INDEX e, const int mode, const int n_f, const double *right,
                            pair *s, double *t)
{
    const double *z = right + (size_t)(1 + n_f) * (UINDEX)row->features[e];
    const double f = NAMED(entry)(row, e, mode);
    *s += (pair){row->x[e], f} * *(const pair *)z;
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

/* out += row times n_x columns of `right` for X and n_f for f(X), at most four in all. The widths are constants, and
 * the sums stay in registers. */
INLINE void NAMED(product_few)(const NAMED(row) *row, const int mode, const int n_x, const int n_f,
                               const double *right, double *out)
{
    double even[4] = {0.0, 0.0, 0.0, 0.0}, odd[4] = {0.0, 0.0, 0.0, 0.0};
    INDEX e = 0;
    for (; e + 1 < row->size; e += 2) {
        const double *z = right + (size_t)(n_x + n_f) * (UINDEX)row->features[e];
        const double *v = right + (size_t)(n_x + n_f) * (UINDEX)row->features[e + 1];
        for (int k = 0; k < n_x + n_f; k++) {
            even[k] += (k < n_x ? (double)row->x[e] : NAMED(entry)(row, e, mode)) * z[k];
            odd[k] += (k < n_x ? (double)row->x[e + 1] : NAMED(entry)(row, e + 1, mode)) * v[k];
        }
    }
    if (e < row->size) {
        const double *z = right + (size_t)(n_x + n_f) * (UINDEX)row->features[e];
        for (int k = 0; k < n_x + n_f; k++)
            even[k] += (k < n_x ? (double)row->x[e] : NAMED(entry)(row, e, mode)) * z[k];
    }
    for (int k = 0; k < n_x + n_f; k++) out[k] += even[k] + odd[k];
}

INLINE void NAMED(product_many)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *right,
                                double *restrict out)
{
    for (INDEX e = 0; e < row->size; e++) {
        const double x = row->x[e], f = NAMED(entry)(row, e, mode);
        const double *restrict z = right + (size_t)(n_x + n_f) * (UINDEX)row->features[e];
        for (int k = 0; k < n_x; k++) out[k] += x * z[k];
        if (mode != MODE_NONE)
            for (int k = n_x; k < n_x + n_f; k++) out[k] += f * z[k];
    }
}

INLINE void NAMED(product_mode)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *right,
                                double *out)
{
    if (n_x == 1 && n_f == 1) NAMED(product_pair)(row, mode, 1, right, out);
    else if (n_x == 1 && n_f == 0) NAMED(product_few)(row, mode, 1, 0, right, out);
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
        default: NAMED(product_mode)(row, MODE_NONE, n_x, n_f, right, out); break;
    }
}

INLINE void NAMED(transposed_pair)(const NAMED(row) *row, const int mode, const double *left, double *out)
{
    pair *z = (pair *)out;
    const pair factors = {left[0], left[1]};
    for (INDEX e = 0; e < row->size; e++)
        z[(UINDEX)row->features[e]] += (pair){row->x[e], NAMED(entry)(row, e, mode)} * factors;
}

INLINE void NAMED(transposed_many)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *restrict left,
                                   double *out)
{
    for (INDEX e = 0; e < row->size; e++) {
        const double x = row->x[e], f = NAMED(entry)(row, e, mode);
        double *restrict z = out + (size_t)(n_x + n_f) * (UINDEX)row->features[e];
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
    else if (n_x == 1 && n_f == 2) NAMED(transposed_many)(row, mode, 1, 2, left, out);
    else if (n_x == 2 && n_f == 1) NAMED(transposed_many)(row, mode, 2, 1, left, out);
    else if (n_x == 2 && n_f == 3) NAMED(transposed_many)(row, mode, 2, 3, left, out);
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
 * Without f (mode 0) there is no t, and right, shift, out and sums have n columns instead of 2 n. `curvature_weight`
 * has n values of A per row, or n of A, then n of B, then n of D. */
CLONES void NAMED(sandwich)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                            const DATA *fdata, int mode, int n, const double *right, const double *shift,
                            const double *curvature_weight, double *out, double *sums)
{
    const int n_f = mode == MODE_NONE ? 0 : n, width = n + n_f;
    double scores[MAX_WIDTH];
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, fdata, mode);
        const double *h = curvature_weight + (n + 2 * n_f) * i;
        for (int k = 0; k < width; k++) scores[k] = shift[k];
        NAMED(product)(&row, mode, n, n_f, right, scores);
        for (int k = 0; k < n; k++) {
            if (mode == MODE_NONE) {
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

/* Groups of features: for coefficients w and a direction p, and with the references r of the features,
 *   S_g = sum over features d of group g of (w_d, p_d) x_d,    s_g = S_g - at_g,    at_g = the same sum with r_d for x_d.
 * `collect` puts the S_g of a row's groups into `sums` and returns their number; `own` are the groups. `last` has the
 * last row of each group, numbered from 1. */
INLINE int64_t NAMED(collect)(const NAMED(row) *row, int64_t number, const int32_t *group, const pair *right, pair *sums,
                              int64_t *last, int32_t *own)
{
    int64_t n = 0;
    for (INDEX e = 0; e < row->size; e++) {
        const UINDEX d = (UINDEX)row->features[e];
        const int32_t g = group[d];
        if (last[g] != number) {
            last[g] = number;
            own[n++] = g;
            sums[g] = (pair){0.0, 0.0};
        }
        sums[g] += (pair){row->x[e], row->x[e]} * right[d];
    }
    return n;
}

/* out[i] = (X[i] @ w, sum over the groups with entries of slope_g (s_g^2 - at_g^2)), for right = (w, w). */
CLONES void NAMED(group_forward)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                                 const int32_t *group, const double *slope, const double *at, const double *right,
                                 double *sums, int64_t *last, int32_t *own, double *out)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, NULL, MODE_NONE);
        const int64_t n = NAMED(collect)(&row, i + 1, group, (const pair *)right, (pair *)sums, last, own);
        double mean = 0.0, variance = 0.0;
        for (int64_t k = 0; k < n; k++) {
            const double s = sums[2 * own[k]];
            mean += s;
            variance += slope[own[k]] * s * (s - 2.0 * at[2 * own[k]]);
        }
        out[2 * i] = mean;
        out[2 * i + 1] = variance;
    }
}

/* With right = (w, p), and for each row, by `weights`: four numbers (A, B, D, h) give
 *   a = X p + shift[0],   t = sum_g slope_g s_g(w) s_g(p),   alpha = A a + B t,   beta = B a + D t;
 * two numbers are alpha and beta themselves, with h = 0. Then, with z_g = slope_g (beta s_g(w) + h s_g(p)),
 *   out_d += sum_i x_id (alpha_i + z_ig)
 *   by_group_g += sum_i slope_g (beta S_g(w) + h S_g(p)),   totals += (alpha, beta, h).
 * shift[1] is the sum of slope_g at_g(w) at_g(p) over all groups. */
CLONES void NAMED(group_sandwich)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                                  const int32_t *group, const double *slope, const double *at, const double *right,
                                  const double *shift, int n_weights, const double *weights, double *sums,
                                  int64_t *last, int32_t *own, double *out, double *by_group, double *totals)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, NULL, MODE_NONE);
        const int64_t n = NAMED(collect)(&row, i + 1, group, (const pair *)right, (pair *)sums, last, own);
        const double *weight = weights + n_weights * i;
        double alpha = weight[0], beta = weight[1], h = 0.0;
        if (n_weights == 4) {
            double a = shift[0], t = shift[1];
            for (int64_t k = 0; k < n; k++) {
                const double *s = sums + 2 * own[k], *r = at + 2 * own[k];
                a += s[1];
                t += slope[own[k]] * (s[0] * (s[1] - r[1]) - r[0] * s[1]);
            }
            alpha = weight[0] * a + weight[1] * t;
            beta = weight[1] * a + weight[2] * t;
            h = weight[3];
        }
        for (int64_t k = 0; k < n; k++) {
            double *s = sums + 2 * own[k];
            const double *r = at + 2 * own[k];
            const double whole = slope[own[k]] * (beta * s[0] + h * s[1]);
            by_group[own[k]] += whole;
            s[0] = alpha + whole - slope[own[k]] * (beta * r[0] + h * r[1]);
        }
        for (INDEX e = 0; e < row.size; e++) {
            const UINDEX d = (UINDEX)row.features[e];
            out[d] += row.x[e] * sums[2 * group[d]];
        }
        totals[0] += alpha;
        totals[1] += beta;
        totals[2] += h;
    }
}

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
            NAMED(product_few)(&row, MODE_NONE, 1, 0, coef, &score);
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
