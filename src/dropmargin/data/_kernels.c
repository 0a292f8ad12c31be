/* Compiled sweeps over the rows of a CSR matrix: moments of the scores, their gradients, the inner solve of Newton's
 * method, and coordinate descent in the dual of the hinge. Plain C99 without extensions. _sweeps.h is compiled once for
 * each type of data (float, double) and of indices (32, 64 bit).
 *
 * With x the entries of a row, g the second number of each entry (the part of its variance that depends on it), w the
 * coefficients and r the references of groups:
 *
 *     independent features     m = sum x w             v = sum g w^2
 *     groups                   m = sum over groups t   v = sum c t (t - 2 a)    t = sum x w,  a = sum r w  of a group
 *
 * What all rows share (intercept, floor of the variance, groups without entries) is added by the caller, or enters as
 * `shift`. Columns are sorted by group, so that the entries of a group are consecutive. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_MSC_VER)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif
#define RESTRICT __restrict

/* AVX2 if the machine supports it; the choice when the library is loaded needs GNU's compiler and C library. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

/* The rows and the noise; kernels.py has the same structure. `x` is NULL if all entries are 1, `g` if the
 * variance does not depend on the entries, `group` if features are independent. */
typedef struct {
    int64_t n_rows, n_features, n_groups, longest;
    const void *indptr, *indices, *x, *g;
    const int32_t *group;    /* of each feature */
    const double *slope;     /* c of each group */
    const double *reference; /* r of each feature */
    const double *floor;     /* what all rows share of the variance of each feature; NULL for groups */
} rows_t;

/* A quadratic model at the coefficients w: row by row the second derivatives (A, B, D) of the loss by mean and variance
 * and the first one by the variance, all times the weights; and mean, without the intercept, and variance. */
typedef struct {
    const double *w, *curvature, *by_variance, *mean, *variance;
    const double *own;         /* diagonal of the penalty and, for independent features, of the noise */
    const unsigned char *free; /* which coefficients may move; NULL for all */
    int64_t fit_intercept, deflates_coef;
    /* results: images of w and of the intercept, preconditioner, all of length n_features + 1 */
    double *coef_image, *intercept_image, *diagonal;
} model_t;

/* compiled.py has the same number, and uses no library with another one: it changes with the arguments of a function. */
EXPORT int dropmargin_abi(void)
{
    return 4;
}

/* A random number by xorshift64*. The state must not be zero; the lowest bits, of poor quality, are dropped. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * 0x2545F4914F6CDD1DULL) >> 11;
}

static void swap(int64_t *one, int64_t *other)
{
    const int64_t value = *one;
    *one = *other;
    *other = value;
}

static double dot(int64_t n, const double *a, const double *b)
{
    double s[4] = {0.0, 0.0, 0.0, 0.0};
    int64_t i = 0;
    for (; i + 3 < n; i += 4)
        for (int c = 0; c < 4; c++) s[c] += a[i + c] * b[i + c];
    for (; i < n; i++) s[0] += a[i] * b[i];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* The plane of the coefficients and the intercept, on which the model is known. Conjugate gradients search what is left
 * (Saad et al. 2000). `inverse` is that of the 2 x 2 matrix of the model on the plane. */
typedef struct {
    const double *w, *w_image, *b_image;
    double inverse[3];
    int64_t n;
    int has_intercept;
} plane_t;

static plane_t make_plane(int64_t n, const double *w, const model_t *model)
{
    plane_t plane = {w, model->coef_image, model->intercept_image, {0.0, 0.0, 0.0}, n, model->fit_intercept != 0};
    const double a = model->deflates_coef ? dot(n, w, model->coef_image) : 0.0;
    const double b = model->coef_image[n], c = plane.has_intercept ? model->intercept_image[n] : 0.0;
    const double determinant = a * c - b * b;
    if (a > 0.0 && c > 0.0 && determinant > 1e-6 * a * c) {
        plane.inverse[0] = c / determinant;
        plane.inverse[1] = -b / determinant;
        plane.inverse[2] = a / determinant;
    } else if (c > 0.0) {
        plane.inverse[2] = 1.0 / c;
    } else if (a > 0.0 && !plane.has_intercept) {
        plane.inverse[0] = 1.0 / a;
    }
    return plane;
}

/* direction -= its part in the plane, so that it is conjugate to it */
static void project(const plane_t *plane, double *direction)
{
    const int64_t n = plane->n;
    const double along = plane->inverse[0] != 0.0 ? dot(n + 1, plane->w_image, direction) : 0.0;
    const double level = plane->has_intercept ? dot(n + 1, plane->b_image, direction) : 0.0;
    const double x = plane->inverse[0] * along + plane->inverse[1] * level;
    const double y = plane->inverse[1] * along + plane->inverse[2] * level;
    if (x != 0.0)
        for (int64_t d = 0; d < n; d++) direction[d] -= x * plane->w[d];
    direction[n] -= y;
}

/* What is below this share of a number was lost to rounding errors. */
#define ROUNDING 1e-12

#define PASTE(a, b) a##_##b
#define PASTE_EXPANDED(a, b) PASTE(a, b)
#define NAMED(function) PASTE_EXPANDED(function, KIND)

#define KIND f4i4
#define DATA float
#define INDEX int32_t
#define UINDEX uint32_t
#include "_sweeps.h"

#define KIND f4i8
#define DATA float
#define INDEX int64_t
#define UINDEX uint64_t
#include "_sweeps.h"

#define KIND f8i4
#define DATA double
#define INDEX int32_t
#define UINDEX uint32_t
#include "_sweeps.h"

#define KIND f8i8
#define DATA double
#define INDEX int64_t
#define UINDEX uint64_t
#include "_sweeps.h"

#define KIND ones_i4
#define ONES
#define DATA double
#define INDEX int32_t
#define UINDEX uint32_t
#include "_sweeps.h"

#define KIND ones_i8
#define ONES
#define DATA double
#define INDEX int64_t
#define UINDEX uint64_t
#include "_sweeps.h"
