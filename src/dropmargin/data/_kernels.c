/* Products with a CSR matrix, several in one pass over the rows. _sweeps.h is compiled once for each type of data
 * (float, double) and of indices (32, 64 bit). */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MODE_NONE = 0,
    MODE_SQUARE = 1,
    MODE_IDENTITY = 2,
    MODE_ARRAY = 3,
    MODE_DEVIATION = 4,
    MODE_PRESENCE = 5
};

/* The largest width of a row of results in `sandwich`. */
enum { MAX_WIDTH = 512 };

/* The two values of a feature, for X and for f(X). Arrays of NumPy may be aligned to a double only. */
typedef double pair __attribute__((vector_size(16), aligned(8), may_alias));

/* Which of two doubles are kept. */
typedef int64_t mask __attribute__((vector_size(16), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* AVX2 if the machine supports it; the operations, and therefore the results, are the same. The choice when the library
 * is loaded needs GNU's C library. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

/* compiled.py has the same number, and uses no library with another one: it changes with the arguments of a function. */
int dropmargin_abi(void)
{
    return 1;
}

/* A random number by xorshift64*. The state must not be zero; the lowest bits, of poor quality, are dropped. */
INLINE uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * 0x2545F4914F6CDD1DULL) >> 11;
}

INLINE void swap(int64_t *one, int64_t *other)
{
    const int64_t value = *one;
    *one = *other;
    *other = value;
}

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
