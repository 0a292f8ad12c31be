/* Products with groups of features, for one type of data and indices; part of _sweeps.h.
 *
 * For coefficients w and a direction p, and with the references r of the features,
 *   S_g = sum over features d of group g of (w_d, p_d) x_d,    s_g = S_g - at_g,    at_g = the same with r_d for x_d.
 * `group` has the group of each feature, `right` rows (w) or (w, p), and `at` rows (c_g, at_g(w), at_g(p)), c_g being
 * the variance factor. The entries of a group are adjacent in a row: either the features are, or the entries of each
 * row are arranged so, which needs `stamp`, a number per group. `memory` is for the entries of a row. */
typedef struct {
    pair *sums;         /* of each group of a row */
    int32_t *group;     /* which group */
    int32_t *end;       /* where its entries end, while they are arranged */
    int32_t *number;    /* of each entry, the group's number in the row */
    double *x;          /* the arranged entries */
    INDEX *features;
    int64_t *stamp;
} NAMED(scratch);

INLINE NAMED(scratch) NAMED(scratch_at)(double *memory, int64_t longest, int64_t *stamp)
{
    int32_t *group = (int32_t *)(memory + 3 * longest);
    return (NAMED(scratch)){(pair *)memory,      group, group + longest, group + 2 * longest, memory + 2 * longest,
                            (INDEX *)(memory + 5 * longest), stamp};
}

/* Arrange the entries of a row by group, in the order in which groups occur first; `begin` is the row's first entry.
 * A group's stamp is its number in the row plus begin + 1, so that stamps need not be reset. */
INLINE void NAMED(arrange)(NAMED(row) row, int64_t begin, const int32_t *group, NAMED(scratch) own)
{
    int32_t n = 0, position = 0;
    for (INDEX e = 0; e < row.size; e++) {
        int64_t *stamp = own.stamp + group[(UINDEX)row.features[e]];
        if (*stamp <= begin) {
            *stamp = begin + 1 + n;
            own.end[n++] = 0;
        }
        own.number[e] = (int32_t)(*stamp - begin - 1);
        own.end[own.number[e]]++;
    }
    for (int32_t k = 0; k < n; k++) {
        const int32_t size = own.end[k];
        own.end[k] = position;
        position += size;
    }
    for (INDEX e = 0; e < row.size; e++) {
        const int32_t to = own.end[own.number[e]]++;
        own.features[to] = row.features[e];
        own.x[to] = row.x[e];
    }
}

INLINE double NAMED(x_of)(const NAMED(row) *row, INDEX e, const int arranged, const NAMED(scratch) own)
{
    return arranged ? own.x[e] : (double)row->x[e];
}

/* Return the number of groups of a row; their sums, which groups they are and the numbers of the entries are in `own`.
 * There is no branch for the end of a group: it would be mispredicted too often. */
INLINE int32_t NAMED(collect)(NAMED(row) *row, int64_t begin, const int arranged, const int32_t *group,
                              const int n_right, const double *right, NAMED(scratch) own)
{
    int32_t k = -1, last = -1;
    pair sum = {0.0, 0.0};
    if (arranged) {
        NAMED(arrange)(*row, begin, group, own);
        row->features = own.features;
    }
    for (INDEX e = 0; e < row->size; e++) {
        const size_t d = (UINDEX)row->features[e];
        const int32_t g = group[d];
        const int64_t same = -(int64_t)(g == last);
        const double *z = right + n_right * d, x = NAMED(x_of)(row, e, arranged, own);
        sum = (pair)((mask)sum & (mask){same, same});
        if (n_right == 2) sum += (pair){x, x} * *(const pair *)z;
        else sum[0] += x * z[0];
        k += g != last;
        last = g;
        own.group[k] = g;
        own.sums[k] = sum;
        own.number[e] = k;
    }
    return k + 1;
}

INLINE void NAMED(group_forward_of)(const int arranged, int64_t n_rows, const INDEX *indptr, const INDEX *indices,
                                    const DATA *data, const int32_t *group, const double *right, const double *at,
                                    NAMED(scratch) own, double *out)
{
    for (int64_t i = 0; i < n_rows; i++) {
        NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, NULL, MODE_NONE);
        const int32_t n = NAMED(collect)(&row, indptr[i], arranged, group, 1, right, own);
        double mean = 0.0, variance = 0.0;
        for (int32_t k = 0; k < n; k++) {
            const double s = own.sums[k][0], *c = at + 3 * (size_t)own.group[k];
            mean += s;
            variance += c[0] * s * (s - 2.0 * c[1]);
        }
        out[2 * i] = mean;
        out[2 * i + 1] = variance;
    }
}

/* out[i] = (X[i] @ w, sum over the groups with entries of c_g (s_g^2 - at_g^2)). */
CLONES void NAMED(group_forward)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                                 int64_t longest, const int32_t *group, const double *right, const double *at,
                                 double *memory, int64_t *stamp, double *out)
{
    const NAMED(scratch) own = NAMED(scratch_at)(memory, longest, stamp);
    if (stamp) NAMED(group_forward_of)(1, n_rows, indptr, indices, data, group, right, at, own, out);
    else NAMED(group_forward_of)(0, n_rows, indptr, indices, data, group, right, at, own, out);
}

INLINE void NAMED(group_sandwich_of)(const int arranged, int64_t n_rows, const INDEX *indptr, const INDEX *indices,
                                     const DATA *data, const int32_t *group, const double *right, const double *at,
                                     NAMED(scratch) own, const double *shift, const double *weights, double *out,
                                     double *by_group, double *totals)
{
    for (int64_t i = 0; i < n_rows; i++) {
        NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, NULL, MODE_NONE);
        const int32_t n = NAMED(collect)(&row, indptr[i], arranged, group, 2, right, own);
        const double *weight = weights + 4 * i;
        double a = shift[0], t = shift[1];
        for (int32_t k = 0; k < n; k++) {
            const double *c = at + 3 * (size_t)own.group[k];
            const pair s = own.sums[k];
            a += s[1];
            t += c[0] * (s[0] * (s[1] - c[2]) - c[1] * s[1]);
        }
        const double alpha = weight[0] * a + weight[1] * t, beta = weight[1] * a + weight[2] * t, h = weight[3];
        for (int32_t k = 0; k < n; k++) {
            const double *c = at + 3 * (size_t)own.group[k];
            const double whole = c[0] * (beta * own.sums[k][0] + h * own.sums[k][1]);
            by_group[own.group[k]] += whole;
            own.sums[k][0] = alpha + whole - c[0] * (beta * c[1] + h * c[2]);
        }
        for (INDEX e = 0; e < row.size; e++)
            out[(UINDEX)row.features[e]] += NAMED(x_of)(&row, e, arranged, own) * own.sums[own.number[e]][0];
        totals[0] += alpha;
        totals[1] += beta;
        totals[2] += h;
    }
}

/* With right = (w, p), and (A, B, D, h) for each row:
 *   a = X p + shift[0],   t = sum_g c_g s_g(w) s_g(p),   alpha = A a + B t,   beta = B a + D t,
 *   z_g = c_g (beta s_g(w) + h s_g(p)),
 *   out_d += sum_i x_id (alpha_i + z_ig)
 *   by_group_g += sum_i c_g (beta S_g(w) + h S_g(p)),   totals += (alpha, beta, h).
 * shift[1] is the sum of c_g at_g(w) at_g(p) over all groups. */
CLONES void NAMED(group_sandwich)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                                  int64_t longest, const int32_t *group, const double *right, const double *at,
                                  double *memory, int64_t *stamp, const double *shift, const double *weights,
                                  double *out, double *by_group, double *totals)
{
    const NAMED(scratch) own = NAMED(scratch_at)(memory, longest, stamp);
#define SANDWICH(ARRANGED) \
    NAMED(group_sandwich_of)(ARRANGED, n_rows, indptr, indices, data, group, right, at, own, shift, weights, out, \
                             by_group, totals)
    if (stamp) SANDWICH(1);
    else SANDWICH(0);
#undef SANDWICH
}

INLINE void NAMED(group_images_of)(const int n, const int arranged, int64_t n_rows, const INDEX *indptr,
                                   const INDEX *indices, const DATA *data, const int32_t *group, const double *right,
                                   const double *at, NAMED(scratch) own, const double *left, double *out,
                                   double *by_group)
{
    for (int64_t i = 0; i < n_rows; i++) {
        NAMED(row) row = NAMED(row_at)(i, indptr, indices, data, NULL, MODE_NONE);
        const int32_t n_groups = NAMED(collect)(&row, indptr[i], arranged, group, 1, right, own);
        const double *alpha = left + (2 * n + 1) * i, *beta = alpha + n, h = beta[n];
        for (int32_t k = 0; k < n_groups; k++) {
            const double *c = at + 3 * (size_t)own.group[k], s = own.sums[k][0];
            for (int j = 0; j < n; j++) {
                by_group[n * (size_t)own.group[k] + j] += c[0] * beta[j] * s;
                own.sums[k][j] = alpha[j] + c[0] * beta[j] * (s - c[1]);
            }
        }
        for (INDEX e = 0; e < row.size; e++) {
            double *z = out + (size_t)(n + 2) * (UINDEX)row.features[e];
            const double x = NAMED(x_of)(&row, e, arranged, own);
            for (int j = 0; j < n; j++) z[j] += x * own.sums[own.number[e]][j];
            z[n] += x * (x - z[n + 1]) * h;
        }
    }
}

/* n transposed products, n = 1 or 2, with left = (n values of alpha, n of beta, h) for each row:
 *   out_d += (sum_i x_id (alpha_i + c_g beta_i s_ig(w)) for each,  sum_i x_id (x_id - r_d) h_i),  r_d beside them,
 *   by_group_g += sum_i c_g beta_i S_ig(w) for each. */
CLONES void NAMED(group_images)(int64_t n_rows, const INDEX *indptr, const INDEX *indices, const DATA *data,
                                int64_t longest, const int32_t *group, const double *right, const double *at,
                                double *memory, int64_t *stamp, int n, const double *left, double *out,
                                double *by_group)
{
    const NAMED(scratch) own = NAMED(scratch_at)(memory, longest, stamp);
#define IMAGES(N, ARRANGED) \
    NAMED(group_images_of)(N, ARRANGED, n_rows, indptr, indices, data, group, right, at, own, left, out, by_group)
    if (n == 1 && stamp) IMAGES(1, 1);
    else if (n == 1) IMAGES(1, 0);
    else if (stamp) IMAGES(2, 1);
    else IMAGES(2, 0);
#undef IMAGES
}
