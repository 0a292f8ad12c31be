/* Rows of svmlight text: labels, feature indices, values. Accepts exactly what svmlight.py accepts; which line is wrong
 * is found here, what is wrong with it is said there.
 *
 * Memory safety: the text ends in a newline, which no scan steps over, either its own last byte or the one that the
 * caller puts behind it; and no array is written beyond the size that the caller gives. */
#define _GNU_SOURCE /* strtod_l */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

/* compiled.py has the same number, and uses no library with another one: it changes with the arguments of a function. */
int dropmargin_abi(void) { return 1; }

enum { DONE = 0, REJECTED = 1, FULL = 2, NO_LOCALE = 3 };

typedef struct {
    int64_t lowest, highest;       /* feature indices that are allowed, as written */
    int64_t max_rows, max_entries; /* sizes of the arrays */
    int64_t n_lines;               /* lines read, empty ones too; after a rejection, without the rejected one */
    int64_t n_rows, n_entries;     /* what was written */
    int64_t begin;                 /* where the rejected line begins */
    int64_t smallest, largest;     /* feature indices seen, kept from call to call */
} svmlight_state;

/* The caller's locale may write decimal commas: numbers are read in a locale of their own. */
static locale_t c_locale(void) {
    static locale_t made = (locale_t)0;
    if (made == (locale_t)0) made = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return made;
}

static inline int is_digit(char c) { return (unsigned char)(c - '0') < 10; }

static inline int is_blank(char c) { return c == ' ' || c == '\t'; }

/* Whether a token may end here: at a blank, a comment, or the end of the line (which "\r\n" is, too). */
static inline int at_end(const char *p) {
    if (is_blank(*p) || *p == '\n' || *p == '#') return 1;
    if (*p != '\r') return 0;
    while (*p == '\r') p++;
    return *p == '\n';
}

static const double EXACT_POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

#if defined(__SIZEOF_INT128__)
typedef unsigned __int128 wide;
enum { WIDE_POWER = 19 }; /* 10^19 < 2^64 */

/* digits * 10^exponent for |exponent| <= 19, rounded once, to even: the exact product, or the quotient in 64 bits or
 * more and whether anything remained. */
static double round_scaled(uint64_t digits, int64_t exponent) {
    int shift = __builtin_clzll(digits), binary;
    wide scaled;
    int remained = 0;
    if (exponent >= 0) {
        scaled = (wide)(digits << shift) * (uint64_t)EXACT_POWERS[exponent];
        binary = -shift;
    } else {
        uint64_t divisor = (uint64_t)EXACT_POWERS[-exponent];
        int divisor_shift = __builtin_clzll(divisor);
        divisor <<= divisor_shift;
        wide numerator = (wide)(digits << shift) << 64;
        scaled = numerator / divisor;
        remained = scaled * divisor != numerator;
        binary = divisor_shift - shift - 64;
    }
    uint64_t high = (uint64_t)(scaled >> 64);
    int n_bits = high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll((uint64_t)scaled);
    int dropped = n_bits - 53;
    uint64_t mantissa = (uint64_t)(scaled >> dropped);
    wide rest = scaled & (((wide)1 << dropped) - 1), half = (wide)1 << (dropped - 1);
    if (rest > half || (rest == half && (remained || (mantissa & 1)))) mantissa++;
    uint64_t bits = (uint64_t)(1023 + binary + dropped) << 52;
    double power_of_two;
    memcpy(&power_of_two, &bits, sizeof bits);
    return (double)mantissa * power_of_two;
}
#else
enum { WIDE_POWER = -1 };
static double round_scaled(uint64_t digits, int64_t exponent) { return (double)digits + (double)exponent; }
#endif

/* Read a decimal number, correctly rounded. Returns the byte after it, or NULL if there is none. */
static inline const char *read_number(const char *p, double *out) {
    const char *token = p;
    int negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    const char *begin = p;
    uint64_t digits = 0;
    int64_t exponent = 0;
    while (is_digit(*p)) digits = 10 * digits + (uint64_t)(*p++ - '0');
    int64_t n_digits = p - begin;
    if (*p == '.') {
        const char *fraction = ++p;
        while (is_digit(*p)) digits = 10 * digits + (uint64_t)(*p++ - '0');
        exponent = fraction - p;
        n_digits -= exponent;
    }
    if (n_digits == 0) return NULL;
    int plain = 1;
    if (*p == 'e' || *p == 'E') {
        int64_t written = 0;
        p++;
        int down = *p == '-';
        if (*p == '-' || *p == '+') p++;
        if (!is_digit(*p)) return NULL;
        for (; is_digit(*p); p++) {
            if (written < 100000000) written = 10 * written + (*p - '0');
            else plain = 0;
        }
        exponent += down ? -written : written;
    }
    if (n_digits > 19) { /* zeros in front do not count; what is left may not fit into 64 bits */
        for (const char *q = begin; *q == '0' || *q == '.'; q++) n_digits -= *q == '0';
        if (n_digits > 19) plain = 0;
        if (n_digits == 0) digits = 0;
    }
    double value;
    if (n_digits <= 19 && digits == 0) value = 0.0;
    else if (plain && FLT_EVAL_METHOD == 0 && digits <= (1ull << 53) && exponent >= -22 && exponent <= 22)
        value = exponent < 0 ? (double)digits / EXACT_POWERS[-exponent] : (double)digits * EXACT_POWERS[exponent];
    else if (plain && exponent >= -WIDE_POWER && exponent <= WIDE_POWER) value = round_scaled(digits, exponent);
    else {
        *out = strtod_l(token, NULL, c_locale());
        return p;
    }
    *out = negative ? -value : value;
    return p;
}

static inline const char *read_value(const char *p, double *out) {
    const char *end = read_number(p, out);
    if (end) return isfinite(*out) ? end : NULL;
    if ((p[0] | 32) != 'n' || (p[1] | 32) != 'a' || (p[2] | 32) != 'n') return NULL;
    *out = NAN;
    return p + 3;
}

/* Read digits as an integer below 2^63. Returns the byte after them, or NULL. */
static inline const char *read_integer(const char *p, int64_t *out) {
    uint64_t value = 0;
    const char *begin = p;
    for (; is_digit(*p); p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (value > ((uint64_t)INT64_MAX - digit) / 10) return NULL;
        value = 10 * value + digit;
    }
    *out = (int64_t)value;
    return p > begin ? p : NULL;
}

static void sift_down(int64_t *keys, double *values, int64_t root, int64_t n) {
    int64_t key = keys[root], child;
    double value = values[root];
    for (; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && keys[child + 1] > keys[child]) child++;
        if (keys[child] <= key) break;
        keys[root] = keys[child];
        values[root] = values[child];
    }
    keys[root] = key;
    values[root] = value;
}

/* Heap sort: no memory, and never more than n log n steps. Returns 0 if a key is there twice. */
static int sort_row(int64_t *keys, double *values, int64_t n) {
    for (int64_t root = n / 2; root-- > 0;) sift_down(keys, values, root, n);
    for (int64_t last = n - 1; last > 0; last--) {
        int64_t key = keys[0];
        double value = values[0];
        keys[0] = keys[last];
        values[0] = values[last];
        keys[last] = key;
        values[last] = value;
        sift_down(keys, values, 0, last);
    }
    for (int64_t i = 1; i < n; i++)
        if (keys[i] == keys[i - 1]) return 0;
    return 1;
}

static inline const char *skip_blanks(const char *p) {
    while (is_blank(*p)) p++;
    return p;
}

/* Read the label and skip a qid. Returns the byte after them, or NULL. */
static const char *read_head(const char *p, double *label) {
    p = read_number(p, label);
    if (!p || !at_end(p) || !(*label >= -9007199254740992.0 && *label <= 9007199254740992.0)) return NULL;
    p = skip_blanks(p);
    if (*p == 'q') {
        int64_t qid;
        if (p[1] != 'i' || p[2] != 'd' || p[3] != ':') return NULL;
        p = read_integer(p + 4, &qid);
        if (!p || !at_end(p)) return NULL;
    }
    return p;
}

int64_t svmlight_read(const char *text, int64_t length, svmlight_state *state, double *labels, int64_t *row_ends,
                       int64_t *indices, double *values) {
    const char *p = text, *end = text + length;
    int64_t n = 0;
    if (c_locale() == (locale_t)0) return NO_LOCALE;
    state->n_rows = state->n_entries = 0;
    for (; p < end; state->n_lines++, p++) { /* the step is over the newline */
        state->begin = p - text;
        p = skip_blanks(p);
        if (!at_end(p)) {
            if (state->n_rows >= state->max_rows) return FULL;
            p = read_head(p, labels + state->n_rows);
            if (!p) return REJECTED;
            int64_t first = n, previous = -1;
            int sorted = 1;
            for (p = skip_blanks(p); !at_end(p); p = skip_blanks(p)) {
                int64_t index;
                if (n >= state->max_entries) return FULL;
                p = read_integer(p, &index);
                if (!p || *p != ':' || index < state->lowest || index > state->highest) return REJECTED;
                p = read_value(p + 1, values + n);
                if (!p || !at_end(p)) return REJECTED;
                sorted &= index > previous;
                previous = index;
                indices[n++] = index;
            }
            if (!sorted && !sort_row(indices + first, values + first, n - first)) return REJECTED;
            if (n > first) {
                if (indices[first] < state->smallest) state->smallest = indices[first];
                if (indices[n - 1] > state->largest) state->largest = indices[n - 1];
            }
            row_ends[state->n_rows++] = n;
            state->n_entries = n;
        }
        if (*p != '\n') p = memchr(p, '\n', (size_t)(end - p) + 1);
    }
    return DONE;
}
