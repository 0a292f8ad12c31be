/* Products with groups of features, for one type of data and indices; part of _sweeps.h.
 *
 * Most groups of a sparse row have one entry. So a sweep first treats every entry as the only one of its group, like
 * the sweeps without groups, and then goes over the runs, the entries of a row that share a group with another one:
 *   sum over groups of S_g(w) S_g(p) = sum over entries of x^2 w_d p_d
 *                                      + sum over runs of (S_g(w) S_g(p) - sum over its entries of x^2 w_d p_d),
 *   S_g(w) = sum over the features d of group g of w_d x_d.
 * The runs of row i are in `members` from first[i] on, unless there are none: the number of pairs, the pairs, and for
 * each longer run its size and its entries. An entry is its position in the row. Pairs, the most frequent runs, have a
 * loop of their own: ends of runs of different sizes are mispredicted. `scaled` has rows (c w, c p), with the variance
 * factor c of the group. */
typedef struct {
    const int64_t *first;
    const int32_t *members;
    const double *scaled;
    pair *sums; /* of each longer run of a row, of x c w and x c p */
    double *g;  /* of each entry of a row, x c w */
} NAMED(runs);

/* Find the runs; return the size of `members`. `stamp` has a zero per group, `own` 3 (longest + 1) zeros:
 * a group's stamp is its number in the row plus the row's first entry plus 1, so that stamps need not be reset. */
CLONES int64_t NAMED(group_runs)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, int64_t longest,
                                 const int32_t *group, int64_t *stamp, int32_t *own, int64_t *first, int32_t *members)
{
    /* Of each entry its group's number, of each group its next place, of each size of a run the space that it takes. */
    int32_t *number = own, *next = own + longest, *space = own + 2 * longest + 1;
    int64_t end = 0;
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t begin = indptr[i], size = indptr[i + 1] - begin;
        int32_t n = 0;
        for (int64_t e = 0; e < size; e++) {
            /* Without a branch for a new group: it would be mispredicted too often. */
            int64_t *own_stamp = stamp + group[(UINDEX)indices[begin + e]];
            const int is_new = *own_stamp <= begin;
            *own_stamp = is_new ? begin + 1 + n : *own_stamp;
            number[e] = (int32_t)(*own_stamp - begin - 1);
            next[n] = 0;
            next[number[e]]++;
            n += is_new;
        }
        first[i] = end;
        if (n == size) continue;
        int32_t largest = 2, place = 1;
        for (int32_t k = 0; k < n; k++) {
            if (next[k] > 1) space[next[k]] += next[k] + (next[k] > 2);
            if (next[k] > largest) largest = next[k];
        }
        members[end] = space[2] / 2;
        for (int32_t count = 2; count <= largest; count++) {
            const int32_t needed = space[count];
            space[count] = place;
            place += needed;
        }
        for (int32_t k = 0; k < n; k++) {
            const int32_t count = next[k];
            next[k] = -1;
            if (count == 1) continue;
            next[k] = space[count] + (count > 2);
            if (count > 2) members[end + space[count]] = count;
            space[count] += count + (count > 2);
        }
        for (int32_t count = 2; count <= largest; count++) space[count] = 0;
        for (int64_t e = 0; e < size; e++)
            if (next[number[e]] >= 0) members[end + next[number[e]]++] = (int32_t)e;
        end += place;
    }
    first[n_rows] = end;
    return end;
}

INLINE pair NAMED(scaled_entry)(const NAMED(row) *row, INDEX e, const int mode, const double *scaled)
{
    const double x = NAMED(value)(row, e, mode);
    return (pair){x, x} * *(const pair *)(scaled + 2 * (size_t)(UINDEX)row->features[e]);
}

/* x p of an entry, p being the first of a row of `right`. */
INLINE double NAMED(direction_entry)(const NAMED(row) *row, INDEX e, const int mode, const double *right)
{
    return NAMED(value)(row, e, mode) * right[(mode == MODE_PRESENCE ? 2 : 3) * (size_t)(UINDEX)row->features[e]];
}

/* Return the sum over the runs of row i that is added to that over the entries, if there is a `right`; the sums of
 * longer runs are stored. */
INLINE double NAMED(add_runs)(const NAMED(row) *row, int64_t i, const int mode, const NAMED(runs) runs,
                              const double *right)
{
    const int32_t *m = runs.members + runs.first[i], *last = runs.members + runs.first[i + 1];
    if (m == last) return 0.0;
    const int32_t *pairs_end = m + 1 + 2 * *m;
    double total = 0.0;
    if (right)
        for (m++; m < pairs_end; m += 2) {
            const pair one = NAMED(scaled_entry)(row, m[0], mode, runs.scaled);
            const pair other = NAMED(scaled_entry)(row, m[1], mode, runs.scaled);
            total += one[0] * NAMED(direction_entry)(row, m[1], mode, right)
                     + other[0] * NAMED(direction_entry)(row, m[0], mode, right);
        }
    m = pairs_end;
    for (pair *sums = runs.sums; m < last; sums++) {
        const int32_t *end = m + 1 + *m;
        pair sum = {0.0, 0.0};
        double sum_p = 0.0, alone = 0.0;
        for (m++; m < end; m++) {
            const pair z = NAMED(scaled_entry)(row, *m, mode, runs.scaled);
            const double p = right ? NAMED(direction_entry)(row, *m, mode, right) : 0.0;
            sum += z;
            sum_p += p;
            alone += z[0] * p;
        }
        *sums = sum;
        total += sum[0] * sum_p - alone;
    }
    return total;
}

/* out[stride d] += x_d c (beta (S_g(w) - w_d x_d) + h (S_g(p) - p_d x_d)) for the entries of the runs of row i; if
 * there is a second beta, the same for it to `second`, without h. */
INLINE void NAMED(spread_entry)(const NAMED(row) *row, INDEX e, const int mode, const double *beta, double h,
                                pair others, const int stride, double *out, double *second)
{
    const size_t d = (UINDEX)row->features[e];
    out[stride * d] += NAMED(value)(row, e, mode) * (beta[0] * others[0] + h * others[1]);
    if (second) second[d] += NAMED(value)(row, e, mode) * beta[1] * others[0];
}

INLINE void NAMED(spread_runs)(const NAMED(row) *row, int64_t i, const int mode, const NAMED(runs) runs,
                               const double *beta, double h, const int stride, double *out, double *second)
{
    const int32_t *m = runs.members + runs.first[i], *last = runs.members + runs.first[i + 1];
    if (m == last) return;
    const int32_t *pairs_end = m + 1 + 2 * *m;
    for (m++; m < pairs_end; m += 2) {
        const pair one = NAMED(scaled_entry)(row, m[0], mode, runs.scaled);
        const pair other = NAMED(scaled_entry)(row, m[1], mode, runs.scaled);
        NAMED(spread_entry)(row, m[0], mode, beta, h, other, stride, out, second);
        NAMED(spread_entry)(row, m[1], mode, beta, h, one, stride, out, second);
    }
    for (const pair *sums = runs.sums; m < last; sums++) {
        const int32_t *end = m + 1 + *m;
        for (m++; m < end; m++) {
            const pair others = *sums - NAMED(scaled_entry)(row, *m, mode, runs.scaled);
            NAMED(spread_entry)(row, *m, mode, beta, h, others, stride, out, second);
        }
    }
}

INLINE void NAMED(add_entry)(const NAMED(row) *row, INDEX e, const double *right, double *restrict g, pair *sum)
{
    const double x = (double)row->x[e], *z = right + 3 * (size_t)(UINDEX)row->features[e];
    g[e] = x * z[2];
    *sum += (pair){x, x} * (pair){z[0], z[1] + g[e] * z[0]};
}

/* scores += (sum x p, sum x u + x^2 v p) for rows (p, u, v) of `right`, and g[e] = x v of each entry; if all x are 1,
 * the rows are (p, u + v p), and there is no g. */
INLINE void NAMED(entries_product)(const NAMED(row) *row, const int mode, const double *right, double *scores,
                                   double *restrict g)
{
    if (mode == MODE_PRESENCE) {
        NAMED(product_pair)(row, mode, 1, right, scores);
        return;
    }
    pair sums[4] = {{scores[0], scores[1]}, {0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}};
    INDEX e = 0;
    for (; e + 3 < row->size; e += 4)
        for (int c = 0; c < 4; c++) NAMED(add_entry)(row, e + c, right, g, sums + c);
    for (; e < row->size; e++) NAMED(add_entry)(row, e, right, g, sums);
    const pair sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    scores[0] = sum[0];
    scores[1] = sum[1];
}

INLINE void NAMED(group_forward_of)(const int mode, int64_t n_rows, const INDEX *indptr, const INDEX *indices,
                                    const DATA *data, const NAMED(runs) runs, const double *right, double *out)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, NULL, mode);
        out[2 * i] = out[2 * i + 1] = 0.0;
        NAMED(entries_product)(&row, mode, right, out + 2 * i, runs.g);
        out[2 * i + 1] += NAMED(add_runs)(&row, i, mode, runs, right);
    }
}

/* out[i] = (sum x p, sum over groups of c S_g(w) S_g(p) + sum x u), for rows (p, u, c w) of `right`. */
CLONES void NAMED(group_forward)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data, int mode,
                                 const int64_t *first, const int32_t *members, const double *scaled, int64_t longest,
                                 double *memory, const double *right, double *out)
{
    const NAMED(runs) runs = {first, members, scaled, (pair *)memory, memory + longest};
    if (mode == MODE_PRESENCE)
        NAMED(group_forward_of)(MODE_PRESENCE, n_rows, indptr, indices, data, runs, right, out);
    else NAMED(group_forward_of)(MODE_SQUARE, n_rows, indptr, indices, data, runs, right, out);
}

INLINE void NAMED(group_sandwich_of)(const int mode, const int is_coupled, int64_t n_rows, const INDEX *indptr,
                                     const INDEX *indices, const DATA *data, const NAMED(runs) runs,
                                     const double *right, const double *shift, const double *weights, double *out,
                                     double *totals)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, NULL, mode);
        const double *weight = weights + 4 * i;
        double scores[2] = {shift[0], shift[1]}, left[2] = {0.0, 0.0};
        if (is_coupled) {
            NAMED(entries_product)(&row, mode, right, scores, runs.g);
            scores[1] += NAMED(add_runs)(&row, i, mode, runs, right);
            left[0] = weight[0] * scores[0] + weight[1] * scores[1];
            left[1] = weight[1] * scores[0] + weight[2] * scores[1];
            if (mode == MODE_PRESENCE) NAMED(transposed_pair)(&row, mode, left, out);
            else
                for (INDEX e = 0; e < row.size; e++)
                    *(pair *)(out + 2 * (size_t)(UINDEX)row.features[e]) +=
                        (pair){row.x[e], row.x[e]} * (pair){left[0] + runs.g[e] * left[1], left[1]};
            NAMED(spread_runs)(&row, i, mode, runs, left + 1, weight[3], 2, out, NULL);
        } else {
            NAMED(product_one)(&row, mode, right, scores);
            NAMED(add_runs)(&row, i, mode, runs, NULL);
            left[0] = weight[0] * scores[0];
            NAMED(transposed_many)(&row, mode, 1, 0, left, out);
            NAMED(spread_runs)(&row, i, mode, runs, left + 1, weight[3], 1, out, NULL);
        }
        totals[0] += left[0];
        totals[1] += left[1];
    }
}

/* With (a, t) of `group_forward` + shift, and (A, B, D, h) for each row, alpha = A a + B t, beta = B a + D t:
 *   out += (X' alpha + c w (X * X)' beta + what `spread_runs` adds, X' beta),   totals += (alpha, beta);
 * without the squares if all x are 1. If `is_coupled` is zero there is no t: B, D and beta are zero, and right and out
 * have their first columns only. */
CLONES void NAMED(group_sandwich)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data, int mode,
                                  const int64_t *first, const int32_t *members, const double *scaled, int64_t longest,
                                  double *memory, int is_coupled, const double *right, const double *shift,
                                  const double *weights, double *out, double *totals)
{
    const NAMED(runs) runs = {first, members, scaled, (pair *)memory, memory + longest};
#define SANDWICH(MODE, IS_COUPLED) \
    NAMED(group_sandwich_of)(MODE, IS_COUPLED, n_rows, indptr, indices, data, runs, right, shift, weights, out, totals)
    if (mode == MODE_PRESENCE && is_coupled) SANDWICH(MODE_PRESENCE, 1);
    else if (mode == MODE_PRESENCE) SANDWICH(MODE_PRESENCE, 0);
    else if (is_coupled) SANDWICH(MODE_SQUARE, 1);
    else SANDWICH(MODE_SQUARE, 0);
#undef SANDWICH
}

INLINE void NAMED(group_backward_of)(const int mode, const int n, int64_t n_rows, const INDEX *indptr,
                                     const INDEX *indices, const DATA *data, const NAMED(runs) runs, const double *left,
                                     double *out, double *second)
{
    const int n_squares = mode == MODE_PRESENCE ? 0 : 2 * n - 1, stride = 2 * n + n_squares;
    for (int64_t i = 0; i < n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, NULL, mode);
        const double *own = left + 2 * n * i, *beta = own + n;
        const double of_one[3] = {own[0], own[1], own[1]};
        const double of_two[7] = {own[0], own[1], beta[0], beta[n - 1], beta[0], beta[n - 1], own[1]};
        if (n == 1 && mode == MODE_PRESENCE) NAMED(transposed_pair)(&row, mode, own, out);
        else NAMED(transposed_many)(&row, mode, 2 * n, n_squares, n == 1 ? of_one : of_two, out);
        NAMED(add_runs)(&row, i, mode, runs, NULL);
        NAMED(spread_runs)(&row, i, mode, runs, beta, 0.0, stride, out, n == 2 ? second : NULL);
    }
}

/* n pairs of transposed products, n = 1 or 2, with left = (n values of alpha, n of beta) for each row:
 *   out += (X' alpha, X' beta, (X * X)' beta), then (X * X)' of the second alpha if there is one; without the squares
 * if all x are 1. The part of the runs is added to the first column, that of the second alpha is in `second`. */
CLONES void NAMED(group_backward)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data, int mode,
                                  const int64_t *first, const int32_t *members, const double *scaled, int64_t longest,
                                  double *memory, int n, const double *left, double *out, double *second)
{
    const NAMED(runs) runs = {first, members, scaled, (pair *)memory, memory + longest};
#define BACKWARD(MODE, N) NAMED(group_backward_of)(MODE, N, n_rows, indptr, indices, data, runs, left, out, second)
    if (mode == MODE_PRESENCE && n == 1) BACKWARD(MODE_PRESENCE, 1);
    else if (mode == MODE_PRESENCE) BACKWARD(MODE_PRESENCE, 2);
    else if (n == 1) BACKWARD(MODE_SQUARE, 1);
    else BACKWARD(MODE_SQUARE, 2);
#undef BACKWARD
}
