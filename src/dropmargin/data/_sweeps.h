/* The sweeps for one kind of data and indices: KIND, DATA, INDEX, UINDEX and NAMED come from _kernels.c.
 *
 * Every sweep reads X once. Next to X it knows f(X), an element-wise function given by `mode`: none, the square, X
 * itself, or an array of its own with the pattern of X. Weights of X and of f(X) lie side by side, one row of doubles
 * per feature, so that an entry touches one place in memory. All sums are in double precision, in an order that depends
 * on the data alone.
 *
 * Columns are read as unsigned: they are never negative, and the sign extension costs time. Memory belongs to the
 * caller; the outputs of the transposed sweeps start as zeros.
 */

/* The entries of one row. */
typedef struct {
    const INDEX *columns;
    const DATA *x;
    const DATA *f;
    INDEX size;
} NAMED(row);

INLINE NAMED(row) NAMED(row_at)(int64_t i, const INDEX *indptr, const INDEX *indices, const DATA *data,
                                const DATA *fdata)
{
    const INDEX begin = indptr[i];
    return (NAMED(row)){indices + begin, data + begin, fdata ? fdata + begin : NULL, indptr[i + 1] - begin};
}

/* f of entry e. In every inlined call `mode` is a constant, so that each mode gets a loop of its own. */
INLINE double NAMED(entry)(const NAMED(row) *row, INDEX e, const int mode)
{
    const double x = row->x[e];
    return mode == MODE_SQUARE ? x * x : mode == MODE_IDENTITY ? x : mode == MODE_ARRAY ? (double)row->f[e] : 0.0;
}

/* out += row times one column of weights of X and one of f(X): the pair in one vector, and four chains of sums to hide
 * the latency of the additions. */
INLINE void NAMED(forth_pair)(const NAMED(row) *row, const int mode, const double *weights, double *out)
{
    const pair *z = (const pair *)weights;
    pair s[4] = {{out[0], out[1]}, {0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}};
    INDEX e = 0;
    for (; e + 3 < row->size; e += 4)
        for (int c = 0; c < 4; c++)
            s[c] += (pair){row->x[e + c], NAMED(entry)(row, e + c, mode)} * z[(UINDEX)row->columns[e + c]];
    for (; e < row->size; e++)
        s[0] += (pair){row->x[e], NAMED(entry)(row, e, mode)} * z[(UINDEX)row->columns[e]];
    const pair sum = (s[0] + s[1]) + (s[2] + s[3]);
    out[0] = sum[0];
    out[1] = sum[1];
}

/* out += row times n_x columns of weights of X and n_f of f(X). If the compiler knows a small width, `few`, the sums
 * stay in registers. */
INLINE void NAMED(forth_few)(const NAMED(row) *row, const int mode, const int n_x, const int n_f, const double *weights,
                             double *out)
{
    double even[4] = {0.0, 0.0, 0.0, 0.0}, odd[4] = {0.0, 0.0, 0.0, 0.0};
    INDEX e = 0;
    for (; e + 1 < row->size; e += 2) {
        const double *z = weights + (size_t)(n_x + n_f) * (UINDEX)row->columns[e];
        const double *v = weights + (size_t)(n_x + n_f) * (UINDEX)row->columns[e + 1];
        for (int k = 0; k < n_x + n_f; k++) {
            even[k] += (k < n_x ? (double)row->x[e] : NAMED(entry)(row, e, mode)) * z[k];
            odd[k] += (k < n_x ? (double)row->x[e + 1] : NAMED(entry)(row, e + 1, mode)) * v[k];
        }
    }
    if (e < row->size) {
        const double *z = weights + (size_t)(n_x + n_f) * (UINDEX)row->columns[e];
        for (int k = 0; k < n_x + n_f; k++)
            even[k] += (k < n_x ? (double)row->x[e] : NAMED(entry)(row, e, mode)) * z[k];
    }
    for (int k = 0; k < n_x + n_f; k++) out[k] += even[k] + odd[k];
}

INLINE void NAMED(forth_many)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *weights,
                              double *restrict out)
{
    for (INDEX e = 0; e < row->size; e++) {
        const double x = row->x[e], f = NAMED(entry)(row, e, mode);
        const double *restrict z = weights + (size_t)(n_x + n_f) * (UINDEX)row->columns[e];
        for (int k = 0; k < n_x; k++) out[k] += x * z[k];
        if (mode != MODE_NONE)
            for (int k = n_x; k < n_x + n_f; k++) out[k] += f * z[k];
    }
}

INLINE void NAMED(forth_mode)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *weights,
                              double *out)
{
    if (n_x == 1 && n_f == 1) NAMED(forth_pair)(row, mode, weights, out);
    else if (n_x == 1 && n_f == 0) NAMED(forth_few)(row, mode, 1, 0, weights, out);
    else if (n_x == 1 && n_f == 2) NAMED(forth_few)(row, mode, 1, 2, weights, out);
    else NAMED(forth_many)(row, mode, n_x, n_f, weights, out);
}

/* out += row times the weights, by the fastest way. */
INLINE void NAMED(forth)(const NAMED(row) *row, int mode, int n_x, int n_f, const double *weights, double *out)
{
    switch (mode) {
        case MODE_SQUARE: NAMED(forth_mode)(row, MODE_SQUARE, n_x, n_f, weights, out); break;
        case MODE_IDENTITY: NAMED(forth_mode)(row, MODE_IDENTITY, n_x, n_f, weights, out); break;
        case MODE_ARRAY: NAMED(forth_mode)(row, MODE_ARRAY, n_x, n_f, weights, out); break;
        default: NAMED(forth_mode)(row, MODE_NONE, n_x, n_f, weights, out); break;
    }
}

INLINE void NAMED(back_pair)(const NAMED(row) *row, const int mode, const double *left, double *out)
{
    pair *z = (pair *)out;
    const pair factors = {left[0], left[1]};
    for (INDEX e = 0; e < row->size; e++)
        z[(UINDEX)row->columns[e]] += (pair){row->x[e], NAMED(entry)(row, e, mode)} * factors;
}

INLINE void NAMED(back_many)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *restrict left,
                             double *out)
{
    for (INDEX e = 0; e < row->size; e++) {
        const double x = row->x[e], f = NAMED(entry)(row, e, mode);
        double *restrict z = out + (size_t)(n_x + n_f) * (UINDEX)row->columns[e];
        for (int k = 0; k < n_x; k++) z[k] += x * left[k];
        if (mode != MODE_NONE)
            for (int k = n_x; k < n_x + n_f; k++) z[k] += f * left[k];
    }
}

INLINE void NAMED(back_mode)(const NAMED(row) *row, const int mode, int n_x, int n_f, const double *left, double *out)
{
    if (n_x == 1 && n_f == 1) NAMED(back_pair)(row, mode, left, out);
    else if (n_x == 1 && n_f == 0) NAMED(back_many)(row, mode, 1, 0, left, out);
    else if (n_x == 0 && n_f == 1) NAMED(back_many)(row, mode, 0, 1, left, out);
    else if (n_x == 1 && n_f == 2) NAMED(back_many)(row, mode, 1, 2, left, out);
    else if (n_x == 2 && n_f == 1) NAMED(back_many)(row, mode, 2, 1, left, out);
    else if (n_x == 2 && n_f == 3) NAMED(back_many)(row, mode, 2, 3, left, out);
    else if (n_x == 3 && n_f == 4) NAMED(back_many)(row, mode, 3, 4, left, out);
    else NAMED(back_many)(row, mode, n_x, n_f, left, out);
}

/* out[columns of the row] += the row's entries times its factors `left`, by the fastest way. */
INLINE void NAMED(back)(const NAMED(row) *row, int mode, int n_x, int n_f, const double *left, double *out)
{
    switch (mode) {
        case MODE_SQUARE: NAMED(back_mode)(row, MODE_SQUARE, n_x, n_f, left, out); break;
        case MODE_IDENTITY: NAMED(back_mode)(row, MODE_IDENTITY, n_x, n_f, left, out); break;
        case MODE_ARRAY: NAMED(back_mode)(row, MODE_ARRAY, n_x, n_f, left, out); break;
        default: NAMED(back_mode)(row, MODE_NONE, n_x, n_f, left, out); break;
    }
}

/* out[i] = (X[i] @ weights_x, f(X)[i] @ weights_f), one row of n_x + n_f doubles each. */
CLONES void NAMED(forward)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                           const DATA *fdata, int mode, int n_x, int n_f, const double *weights, double *out)
{
    const int width = n_x + n_f;
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, fdata);
        for (int k = 0; k < width; k++) out[width * i + k] = 0.0;
        NAMED(forth)(&row, mode, n_x, n_f, weights, out + width * i);
    }
}

/* out[j] += (X' @ left_x, f(X)' @ left_f)[j]. */
CLONES void NAMED(backward)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                            const DATA *fdata, int mode, int n_x, int n_f, const double *left, double *out)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, fdata);
        NAMED(back)(&row, mode, n_x, n_f, left + (n_x + n_f) * i, out);
    }
}

/* Forth and back in one sweep, for n columns: with (a, t) = (X @ p, f(X) @ u) + shift of a row,
 *   out += (X' (A a + B t), f(X)' (B a + D t)),  sums += (A a + B t, B a + D t).
 * Without f (mode 0) there is no t, and weights, shift, out and sums have n columns instead of 2 n. `curved` holds n
 * values of A per row, or n of A, then n of B, then n of D. */
CLONES void NAMED(sandwich)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                            const DATA *fdata, int mode, int n, const double *weights, const double *shift,
                            const double *curved, double *out, double *sums)
{
    const int n_f = mode == MODE_NONE ? 0 : n, width = n + n_f;
    double scores[MAX_WIDTH];
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, fdata);
        const double *h = curved + (n + 2 * n_f) * i;
        for (int k = 0; k < width; k++) scores[k] = shift[k];
        NAMED(forth)(&row, mode, n, n_f, weights, scores);
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
        NAMED(back)(&row, mode, n, n_f, scores, out);
    }
}

/* The row of this number in several blocks, whose first rows are `edges`. */
INLINE NAMED(row) NAMED(row_of_blocks)(int64_t i, const int64_t *edges, const INDEX *const *indptr,
                                       const INDEX *const *indices, const DATA *const *data)
{
    int k = 0;
    while (i >= edges[k + 1]) k++;
    return NAMED(row_at)(i - edges[k], indptr[k], indices[k], data[k], NULL);
}

/* Coordinate descent in the dual of the hinge loss (Hsieh et al. 2008), over all blocks, in a random order. Row i, with
 * score m = X[i] @ weights + offset[0], has its dual variable a in [0, upper] moved to where its slope
 *   label m - margin
 * becomes zero, the curvature being scale |X[i]|^2 + offset_scale; a change of label a adds `scale` X[i] times it to the
 * weights, and `offset_scale` times it to the offset. offset[1] is the sum of all label a, which should be zero: after
 * an epoch the offset moves on by offset_scale times that, a proximal step.
 *
 * `active` is a permutation of rows, of which the first n_active are at work. Rows at a bound whose slope is beyond all
 * violations of the epoch before, kept in `beyond`, are left out from then on. `state` is the random generator's. */
CLONES void NAMED(descend_dual)(const int64_t *edges, const INDEX *const *indptr, const INDEX *const *indices,
                                const DATA *const *data, int n_epochs, const double *labels, const double *upper,
                                const double *squares, double margin, double scale, double offset_scale,
                                int64_t *active, int64_t *n_active, double *beyond, uint64_t *state, double *dual,
                                double *weights, double *offset)
{
    int64_t n = *n_active;
    for (int epoch = 0; epoch < n_epochs; epoch++) {
        double least = 0.0, largest = 0.0;
        for (int64_t k = n - 1; k > 0; k--) swap(active + k, active + next_random(state) % (uint64_t)(k + 1));
        for (int64_t k = 0; k < n; k++) {
            const int64_t i = active[k];
            const NAMED(row) row = NAMED(row_of_blocks)(i, edges, indptr, indices, data);
            double score = offset[0];
            NAMED(forth_few)(&row, MODE_NONE, 1, 0, weights, &score);
            const double slope = labels[i] * score - margin;
            const int lowest = dual[i] <= 0.0, highest = dual[i] >= upper[i];
            if ((lowest && slope > beyond[1]) || (highest && slope < beyond[0])) {
                swap(active + k--, active + --n);
                continue;
            }
            if (slope == 0.0 || (lowest && slope > 0.0) || (highest && slope < 0.0)) continue;
            if (slope < least) least = slope;
            if (slope > largest) largest = slope;
            /* without any curvature (a row without entries, and no offset) it goes all the way */
            const double curvature = scale * squares[i] + offset_scale;
            const double aim = curvature > 0.0 ? dual[i] - slope / curvature : slope < 0.0 ? upper[i] : 0.0;
            const double moved = aim < 0.0 ? 0.0 : aim > upper[i] ? upper[i] : aim;
            const double change = labels[i] * (moved - dual[i]), step = scale * change;
            dual[i] = moved;
            offset[0] += offset_scale * change;
            offset[1] += change;
            NAMED(back_many)(&row, MODE_NONE, 1, 0, &step, weights);
        }
        offset[0] += offset_scale * offset[1];
        beyond[0] = least < 0.0 ? least : -INFINITY;
        beyond[1] = largest > 0.0 ? largest : INFINITY;
    }
    *n_active = n;
}

#undef KIND
#undef DATA
#undef INDEX
#undef UINDEX
