/* Sweeps for one type of data and indices: _kernels.c defines KIND, DATA, INDEX, UINDEX and NAMED, and ONES if all
 * entries are 1, as in texts as the presence of words: then only the indices are read, and `g` has a number per feature.
 *
 * Feature indices are read as unsigned: they are not negative, and sign extension takes time. What is read and written
 * for a feature is a pair of doubles side by side, so that an entry needs one place in memory. Sums are in double
 * precision, and their order depends on the data alone. The caller sets the results of transposed products to zero. */

#ifdef ONES
#define ENTRY(values, e) ((void)(values), 1.0)
#define FEATURE_G(rows, d) ((rows)->g ? ((const double *)(rows)->g)[d] : 1.0)
#else
#define ENTRY(values, e) (values)[e]
#define FEATURE_G(rows, d) 1.0
#endif

typedef struct {
    const UINDEX *features;
    const DATA *x, *g;
    INDEX size;
} NAMED(row);

static NAMED(row) NAMED(row_at)(const rows_t *rows, int64_t i)
{
    const INDEX *indptr = (const INDEX *)rows->indptr;
    const INDEX begin = indptr[i];
    NAMED(row) row;
    row.features = (const UINDEX *)rows->indices + begin;
#ifdef ONES
    row.x = row.g = (const DATA *)rows->g; /* not read */
#else
    row.x = (const DATA *)rows->x + begin;
    row.g = rows->g ? (const DATA *)rows->g + begin : NULL;
#endif
    row.size = indptr[i + 1] - begin;
    return row;
}

/* The end of the run of entries of one group that begins at e. */
static INDEX NAMED(run_end)(const rows_t *rows, const NAMED(row) *row, INDEX e)
{
    const int32_t group = rows->group[row->features[e]];
    INDEX end = e + 1;
    while (end < row->size && rows->group[row->features[end]] == group) end++;
    return end;
}

/* Sums of r_d p_d over the features of each group. */
static void NAMED(at_reference)(const rows_t *rows, const double *p, double *at)
{
    memset(at, 0, (size_t)rows->n_groups * sizeof(double));
    for (int64_t d = 0; d < rows->n_features; d++) at[rows->group[d]] += rows->reference[d] * p[d];
}

/* Mean and variance of the scores at coefficients w, intercept last. `buffer` has room for two numbers per feature. */
CLONES EXPORT void NAMED(moments)(const rows_t *rows, const double *w, double *RESTRICT buffer, double *RESTRICT mean,
                                  double *RESTRICT variance)
{
    const int64_t n = rows->n_features;
    double shared = 0.0;
    if (rows->group) {
        NAMED(at_reference)(rows, w, buffer);
        for (int64_t k = 0; k < rows->n_groups; k++) shared += rows->slope[k] * buffer[k] * buffer[k];
    } else {
        for (int64_t d = 0; d < n; d++) {
            buffer[2 * d] = w[d];
            buffer[2 * d + 1] = w[d] * w[d] * FEATURE_G(rows, d);
            if (rows->floor) shared += rows->floor[d] * w[d] * w[d];
        }
    }
    for (int64_t i = 0; i < rows->n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(rows, i);
        const UINDEX *RESTRICT features = row.features;
        const DATA *RESTRICT x = row.x, *RESTRICT g = row.g;
        double m = 0.0, v = 0.0;
        if (rows->group)
            for (INDEX e = 0, end; e < row.size; e = end) {
                const int32_t k = rows->group[features[e]];
                double t = 0.0;
                end = NAMED(run_end)(rows, &row, e);
                for (INDEX j = e; j < end; j++) t += ENTRY(x, j) * w[features[j]];
                m += t;
                v += rows->slope[k] * t * (t - 2.0 * buffer[k]);
            }
        else if (g)
            for (int64_t e = 0; e < row.size; e++) {
                const double *z = buffer + 2 * (size_t)features[e];
                m += ENTRY(x, e) * z[0];
                v += ENTRY(g, e) * z[1];
            }
        else
            for (int64_t e = 0; e < row.size; e++) m += ENTRY(x, e) * w[features[e]];
        mean[i] = m + w[n];
        variance[i] = v + shared;
    }
}

/* The gradient of sum_i (by_mean m + by_variance v) at coefficients w, intercept last; for independent features also
 * own[d] = sum_i by_variance V_d(x_id). `buffer` has room for two numbers per feature. */
CLONES EXPORT void NAMED(gradient)(const rows_t *rows, const double *w, const double *by_mean, const double *by_variance,
                                   double *RESTRICT buffer, double *RESTRICT gradient, double *own)
{
    const int64_t n = rows->n_features, n_groups = rows->n_groups;
    double totals[2] = {0.0, 0.0}, *at = buffer, *sums = buffer + n_groups;
    for (int64_t i = 0; i < rows->n_rows; i++) {
        totals[0] += by_mean[i];
        totals[1] += by_variance[i];
    }
    memset(buffer, 0, (size_t)(2 * n) * sizeof(double));
    memset(gradient, 0, (size_t)n * sizeof(double));
    if (rows->group) NAMED(at_reference)(rows, w, at);
    for (int64_t i = 0; i < rows->n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(rows, i);
        const UINDEX *RESTRICT features = row.features;
        const DATA *RESTRICT x = row.x, *RESTRICT g = row.g;
        const double a = by_mean[i], b = by_variance[i];
        if (rows->group)
            for (INDEX e = 0, end; e < row.size; e = end) {
                const int32_t k = rows->group[features[e]];
                const double factor = 2.0 * rows->slope[k] * b;
                double t = 0.0;
                end = NAMED(run_end)(rows, &row, e);
                for (INDEX j = e; j < end; j++) t += ENTRY(x, j) * w[features[j]];
                sums[k] += factor * t;
                for (INDEX j = e; j < end; j++) gradient[features[j]] += ENTRY(x, j) * (a + factor * (t - at[k]));
            }
        else if (g)
            for (int64_t e = 0; e < row.size; e++) {
                double *z = buffer + 2 * (size_t)features[e];
                z[0] += ENTRY(x, e) * a;
                z[1] += ENTRY(g, e) * b;
            }
        else
            for (int64_t e = 0; e < row.size; e++) buffer[2 * (size_t)features[e]] += ENTRY(x, e) * a;
    }
    for (int64_t d = 0; d < n; d++) {
        if (rows->group) {
            const int32_t k = rows->group[d];
            gradient[d] -= rows->reference[d] * (sums[k] - 2.0 * rows->slope[k] * at[k] * totals[1]);
        } else {
            own[d] = buffer[2 * d + 1] * FEATURE_G(rows, d) + (rows->floor ? rows->floor[d] * totals[1] : 0.0);
            gradient[d] = buffer[2 * d] + 2.0 * w[d] * own[d];
        }
    }
    gradient[n] = totals[0];
}

/* The rows' part of the product of the model with a direction, for independent features: `pairs` has (p, 2 w), `shift`
 * what all rows share of the changes (a, t) of mean and variance, `buffer` room for a row. totals += (A a + B t, B a + D t). */
CLONES static void NAMED(multiply)(const rows_t *rows, const model_t *model, const double *RESTRICT pairs,
                                   const double *shift, double *RESTRICT buffer, double *RESTRICT out, double *totals)
{
    for (int64_t i = 0; i < rows->n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(rows, i);
        const UINDEX *RESTRICT features = row.features;
        const DATA *RESTRICT x = row.x, *RESTRICT g = row.g;
        const double *h = model->curvature + 3 * i;
        const int64_t size = row.size;
        double a = shift[0], t = shift[1], a2 = 0.0, t2 = 0.0;
        int64_t e = 0;
        if (g) {
            for (; e + 1 < size; e += 2) {
                const double *z = pairs + 2 * (size_t)features[e], *y = pairs + 2 * (size_t)features[e + 1];
                const double u = ENTRY(g, e) * z[1], v = ENTRY(g, e + 1) * y[1];
                buffer[e] = u;
                buffer[e + 1] = v;
                a += ENTRY(x, e) * z[0];
                a2 += ENTRY(x, e + 1) * y[0];
                t += u * z[0];
                t2 += v * y[0];
            }
            if (e < size) {
                const double *z = pairs + 2 * (size_t)features[e];
                buffer[e] = ENTRY(g, e) * z[1];
                a += ENTRY(x, e) * z[0];
                t += buffer[e] * z[0];
            }
        } else {
            for (; e < size; e++) a += ENTRY(x, e) * pairs[2 * (size_t)features[e]];
        }
        a += a2;
        t += t2;
        const double by_mean = h[0] * a + h[1] * t, by_variance = h[1] * a + h[2] * t;
        totals[0] += by_mean;
        totals[1] += by_variance;
        if (g)
            for (e = 0; e < size; e++) out[features[e]] += ENTRY(x, e) * by_mean + buffer[e] * by_variance;
        else
            for (e = 0; e < size; e++) out[features[e]] += ENTRY(x, e) * by_mean;
    }
}

/* The same for groups: `pairs` has (w, p), at and along are sum r w and sum r p of each group. sums += the parts of
 * 2 c ((B a + D t) s(w) + by_variance s(p)) that need the references. */
CLONES static void NAMED(group_multiply)(const rows_t *rows, const model_t *model, const double *pairs,
                                         const double *shift, const double *at, const double *along, double *buffer,
                                         double *out, double *sums, double *totals)
{
    for (int64_t i = 0; i < rows->n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(rows, i);
        const double *h = model->curvature + 3 * i, second = model->by_variance[i];
        double a = shift[0], t = shift[1];
        int64_t n = 0;
        for (INDEX e = 0, end; e < row.size; e = end) {
            const int32_t k = rows->group[row.features[e]];
            double tw = 0.0, tp = 0.0;
            end = NAMED(run_end)(rows, &row, e);
            for (INDEX j = e; j < end; j++) {
                const double *z = pairs + 2 * (size_t)row.features[j];
                tw += ENTRY(row.x, j) * z[0];
                tp += ENTRY(row.x, j) * z[1];
            }
            a += tp;
            t += 2.0 * rows->slope[k] * (tw * tp - tw * along[k] - at[k] * tp);
            buffer[n++] = tw;
            buffer[n++] = tp;
        }
        const double by_mean = h[0] * a + h[1] * t, by_variance = h[1] * a + h[2] * t;
        totals[0] += by_mean;
        totals[1] += by_variance;
        n = 0;
        for (INDEX e = 0, end; e < row.size; e = end) {
            const int32_t k = rows->group[row.features[e]];
            const double c = 2.0 * rows->slope[k], tw = buffer[n], tp = buffer[n + 1];
            const double u = by_mean + c * (by_variance * (tw - at[k]) + second * (tp - along[k]));
            end = NAMED(run_end)(rows, &row, e);
            sums[k] += c * (by_variance * tw + second * tp);
            for (INDEX j = e; j < end; j++) out[row.features[j]] += ENTRY(row.x, j) * u;
            n += 2;
        }
    }
}

/* The images of the coefficients and of the intercept, and the diagonal, by one transposed sweep: along w, the changes
 * of mean and variance are the mean and twice the variance. out has a triple for each feature; `pairs` is that of `multiply`. */
CLONES static void NAMED(images)(const rows_t *rows, const model_t *model, const double *RESTRICT pairs,
                                 const double *at, double *RESTRICT out, double *sums, double *totals)
{
    const double *RESTRICT w = model->w;
    for (int64_t i = 0; i < rows->n_rows; i++) {
        const NAMED(row) row = NAMED(row_at)(rows, i);
        const double *h = model->curvature + 3 * i, a = model->mean[i], t = 2.0 * model->variance[i];
        const double along[2] = {h[0] * a + h[1] * t, h[1] * a + h[2] * t};
        const double second = model->by_variance[i];
        totals[0] += along[0];
        totals[1] += along[1];
        totals[2] += h[0];
        totals[3] += h[1];
        if (!rows->group) {
            const UINDEX *RESTRICT features = row.features;
            const DATA *RESTRICT x = row.x, *RESTRICT g = row.g;
            if (g)
                for (int64_t e = 0; e < row.size; e++) {
                    double *z = out + 3 * (size_t)features[e];
                    const double u = pairs[2 * (size_t)features[e] + 1] * ENTRY(g, e);
                    z[0] += ENTRY(x, e) * along[0] + u * along[1];
                    z[1] += ENTRY(x, e) * h[0] + u * h[1];
                    z[2] += ENTRY(x, e) * ENTRY(x, e) * h[0];
                }
            else
                for (int64_t e = 0; e < row.size; e++) {
                    double *z = out + 3 * (size_t)features[e];
                    z[0] += ENTRY(x, e) * along[0];
                    z[1] += ENTRY(x, e) * h[0];
                    z[2] += ENTRY(x, e) * ENTRY(x, e) * h[0];
                }
            continue;
        }
        for (INDEX e = 0, end; e < row.size; e = end) {
            const int32_t k = rows->group[row.features[e]];
            const double c = 2.0 * rows->slope[k];
            double tw = 0.0;
            end = NAMED(run_end)(rows, &row, e);
            for (INDEX j = e; j < end; j++) tw += ENTRY(row.x, j) * w[row.features[j]];
            const double u = along[0] + c * (along[1] + second) * (tw - at[k]), v = h[0] + c * h[1] * (tw - at[k]);
            sums[2 * k] += c * (along[1] + second) * tw;
            sums[2 * k + 1] += c * h[1] * tw;
            for (INDEX j = e; j < end; j++) {
                const size_t d = row.features[j];
                const double x = ENTRY(row.x, j);
                out[3 * d] += x * u;
                out[3 * d + 1] += x * v;
                out[3 * d + 2] += x * x * h[0] + c * second * x * (x - 2.0 * rows->reference[d]);
            }
        }
    }
}

/* What the solve needs beside the vectors of conjugate gradients. */
typedef struct {
    double *pairs, *buffer, *out, *at, *along, *sums;
    double by_variance; /* the sum of the first derivatives by the variance */
} NAMED(work);

/* image = model times p, both of length n_features + 1 */
static void NAMED(product)(const rows_t *rows, const model_t *model, NAMED(work) *work, const double *p, double *image)
{
    const int64_t n = rows->n_features;
    double shift[2] = {model->fit_intercept ? p[n] : 0.0, 0.0}, totals[2] = {0.0, 0.0};
    memset(image, 0, (size_t)(n + 1) * sizeof(double));
    if (rows->group) {
        NAMED(at_reference)(rows, p, work->along);
        for (int64_t k = 0; k < rows->n_groups; k++) shift[1] += 2.0 * rows->slope[k] * work->at[k] * work->along[k];
        for (int64_t d = 0; d < n; d++) work->pairs[2 * d + 1] = p[d];
        memset(work->sums, 0, (size_t)rows->n_groups * sizeof(double));
        NAMED(group_multiply)(rows, model, work->pairs, shift, work->at, work->along, work->buffer, image, work->sums, totals);
        for (int64_t d = 0; d < n; d++) {
            const int32_t k = rows->group[d];
            const double c = 2.0 * rows->slope[k];
            const double of_all = c * (work->at[k] * totals[1] + work->along[k] * work->by_variance);
            image[d] += model->own[d] * p[d] - rows->reference[d] * (work->sums[k] - of_all);
        }
    } else {
        if (rows->floor)
            for (int64_t d = 0; d < n; d++) shift[1] += 2.0 * rows->floor[d] * model->w[d] * p[d];
        for (int64_t d = 0; d < n; d++) work->pairs[2 * d] = p[d];
        NAMED(multiply)(rows, model, work->pairs, shift, work->buffer, image, totals);
        for (int64_t d = 0; d < n; d++) image[d] += model->own[d] * p[d];
        if (rows->floor)
            for (int64_t d = 0; d < n; d++) image[d] += 2.0 * rows->floor[d] * model->w[d] * totals[1];
    }
    image[n] = model->fit_intercept ? totals[0] : p[n];
    if (model->free)
        for (int64_t d = 0; d < n; d++)
            if (!model->free[d]) image[d] = 0.0;
}

/* The images and the preconditioner of a model. */
static void NAMED(prepare)(const rows_t *rows, const model_t *model, NAMED(work) *work)
{
    const int64_t n = rows->n_features;
    double totals[4] = {0.0, 0.0, 0.0, 0.0}, *out = work->out;
    memset(out, 0, (size_t)(3 * n) * sizeof(double));
    work->by_variance = 0.0;
    for (int64_t i = 0; i < rows->n_rows; i++) work->by_variance += model->by_variance[i];
    if (rows->group) {
        NAMED(at_reference)(rows, model->w, work->at);
        memset(work->sums, 0, (size_t)(2 * rows->n_groups) * sizeof(double));
    }
    for (int64_t d = 0; d < n; d++)
        work->pairs[2 * d] = work->pairs[2 * d + 1] = rows->group ? model->w[d] : 2.0 * model->w[d] * FEATURE_G(rows, d);
    NAMED(images)(rows, model, work->pairs, work->at, out, work->sums, totals);
    for (int64_t d = 0; d < n; d++) {
        double along = out[3 * d] + model->own[d] * model->w[d], level = out[3 * d + 1], square = out[3 * d + 2];
        if (rows->group) {
            const int32_t k = rows->group[d];
            const double c = 2.0 * rows->slope[k], r = rows->reference[d];
            along -= r * (work->sums[2 * k] - c * work->at[k] * (totals[1] + work->by_variance));
            level -= r * (work->sums[2 * k + 1] - c * work->at[k] * totals[3]);
            square += r * r * c * work->by_variance;
        } else if (rows->floor) {
            along += 2.0 * rows->floor[d] * model->w[d] * totals[1];
            level += 2.0 * rows->floor[d] * model->w[d] * totals[3];
        }
        /* The preconditioner is that of directions conjugate to the intercept. */
        const double whole = square + model->own[d];
        if (model->fit_intercept && totals[2] > 0.0) square -= level * level / totals[2];
        const double diagonal = square + model->own[d] > ROUNDING * whole ? square + model->own[d] : ROUNDING * whole;
        const int is_free = !model->free || model->free[d];
        model->coef_image[d] = is_free ? along : 0.0;
        model->intercept_image[d] = is_free ? level : 0.0;
        model->diagonal[d] = diagonal > 0.0 ? diagonal : 1.0;
    }
    model->coef_image[n] = model->fit_intercept ? totals[0] : 0.0;
    model->intercept_image[n] = model->fit_intercept ? totals[2] : 1.0;
    model->diagonal[n] = model->fit_intercept && totals[2] > 0.0 ? totals[2] : 1.0;
}

/* Preconditioned conjugate gradients with deflation of the plane of coefficients and intercept: x approximates the
 * solution of (model) x = right. They stop when the residual, in the norm of the preconditioner, has fallen to `rtol` of
 * its start, or when at most `atol` is left to decrease and it has fallen to 0.3; after max_iter steps; or for want of
 * curvature. `steps` and `ratios` describe the Lanczos matrix, `left` is the decrease that is left. Returns the number
 * of steps, or -1 if there is no memory. */
EXPORT int64_t NAMED(solve)(const rows_t *rows, const model_t *model, const double *right, double rtol, double atol,
                            int64_t max_iter, double *x, double *steps, double *ratios, double *left)
{
    const int64_t n = rows->n_features, size = n + 1, n_groups = rows->group ? rows->n_groups : 0;
    double *memory = (double *)malloc((size_t)(3 * size + 2 * n + 3 * n + 2 * rows->longest + 4 * n_groups + 1) * sizeof(double));
    if (!memory) return -1;
    double *residual = memory, *direction = residual + size, *image = direction + size;
    NAMED(work) work;
    work.pairs = image + size;
    work.out = work.pairs + 2 * n;
    work.buffer = work.out + 3 * n;
    work.at = work.buffer + 2 * rows->longest;
    work.along = work.at + n_groups;
    work.sums = work.along + n_groups;
    NAMED(prepare)(rows, model, &work);
    /* 1. The solution in the plane. */
    const plane_t plane = make_plane(n, model->w, model);
    const double along = plane.inverse[0] != 0.0 ? dot(n, model->w, right) : 0.0, level = plane.has_intercept ? right[n] : 0.0;
    const double on_w = plane.inverse[0] * along + plane.inverse[1] * level;
    const double on_b = plane.inverse[1] * along + plane.inverse[2] * level;
    for (int64_t d = 0; d < size; d++) {
        x[d] = (d < n ? on_w * model->w[d] : on_b) * (d == n || !model->free || model->free[d]);
        residual[d] = right[d] - on_w * model->coef_image[d] - (plane.has_intercept ? on_b * model->intercept_image[d] : 0.0);
        if (d < n && model->free && !model->free[d]) residual[d] = 0.0;
        direction[d] = residual[d] / model->diagonal[d];
    }
    double square = dot(size, residual, direction);
    project(&plane, direction);
    const double goal = rtol * rtol * square, halfway = 0.09 * square;
    const int has_part = on_w != 0.0 || on_b != 0.0;
    *left = has_part || square == 0.0 ? 0.5 * square : INFINITY;
    int64_t k = 0;
    for (; k < max_iter && square > 0.0; k++) {
        /* 2. The step along the direction. Without curvature, the solution so far is the result. */
        NAMED(product)(rows, model, &work, direction, image);
        const double curvature = dot(size, direction, image);
        if (!(curvature > 1e-20 * square)) break;
        const double step = square / curvature;
        for (int64_t d = 0; d < size; d++) {
            x[d] += step * direction[d];
            residual[d] -= step * image[d];
            image[d] = residual[d] / model->diagonal[d];
        }
        *left = (k + 1 > 5 ? (double)(k + 1) : 5.0) * 0.5 * step * square;
        /* 3. The next direction, conjugate to this one. */
        const double next = dot(size, residual, image), ratio = next / square;
        project(&plane, image);
        for (int64_t d = 0; d < size; d++) direction[d] = image[d] + ratio * direction[d];
        steps[k] = step;
        ratios[k] = ratio;
        square = next;
        if (!(square > goal) || (*left <= atol && square <= halfway)) {
            k++;
            break;
        }
    }
    free(memory);
    return k;
}

/* Dual coordinate descent for the hinge loss (Hsieh et al. 2008), in a random order. A step on row i, with score
 * m = X[i] @ coef + intercept[0], minimises the dual over its variable a in [0, upper]: the gradient is label m - margin
 * and the curvature is scale |X[i]|^2 + intercept_step. A change of label a adds `scale` X[i] times it to the
 * coefficients, and `intercept_step` times it to the intercept. intercept[1] is the sum of all label a, which is zero
 * at the optimum: after each epoch the intercept changes by intercept_step times that sum, a proximal step.
 *
 * Shrinking: `active` is a permutation of the rows, of which the first n_active are active. A row at a bound becomes
 * inactive if its gradient exceeds all violations of the previous epoch, whose extremes are in `violations`. `state` is
 * the state of the random generator. */
CLONES EXPORT void NAMED(descend_dual)(const rows_t *rows, int64_t n_epochs, const double *labels, const double *upper,
                                       const double *squares, double margin, double scale, double intercept_step,
                                       int64_t *active, int64_t *n_active, double *violations, uint64_t *state,
                                       double *dual, double *coef, double *intercept)
{
    int64_t n = *n_active;
    for (int64_t epoch = 0; epoch < n_epochs; epoch++) {
        double least = 0.0, largest = 0.0;
        for (int64_t k = n - 1; k > 0; k--) swap(active + k, active + next_random(state) % (uint64_t)(k + 1));
        for (int64_t k = 0; k < n; k++) {
            const int64_t i = active[k];
            const NAMED(row) row = NAMED(row_at)(rows, i);
            double score = intercept[0], other = 0.0;
            INDEX e = 0;
            for (; e + 1 < row.size; e += 2) {
                score += ENTRY(row.x, e) * coef[row.features[e]];
                other += ENTRY(row.x, e + 1) * coef[row.features[e + 1]];
            }
            for (; e < row.size; e++) score += ENTRY(row.x, e) * coef[row.features[e]];
            const double gradient = labels[i] * (score + other) - margin;
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
            for (e = 0; e < row.size; e++) coef[row.features[e]] += ENTRY(row.x, e) * step;
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
#undef ONES
#undef ENTRY
#undef FEATURE_G
