// Vectors of floats, the memory of a thread, shares of work, and products of small matrices.
//
// The vectors are GCC's and Clang's: the same source is AVX-512 code on one machine, AVX2 code on another and code for
// another kind of CPU on a third; an x86 CPU without AVX2 would be slower with it than PyTorch is. Each number of a
// product has a sum of its own, whose order does not depend on how long they are. Elsewhere a compiler may fuse other
// multiplications with additions, so CPUs of different kinds may round differently.

#pragma once

#if (defined(__x86_64__) || defined(__i386__)) && !(defined(__AVX2__) && defined(__FMA__))
#error "this CPU has no AVX2, or the compiler does not know it"
#endif

#include "team.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace {

constexpr int L = 8;  // floats in a vector; channels of maps are multiples of it
#ifdef __AVX512F__
constexpr int W = 16;        // floats in the widest vector of the CPU
constexpr int TALLEST = 12;  // rows of a product in registers, 16 columns wide
constexpr int ABREAST = 4;   // wide vectors of channels whose numbers are in registers
constexpr int PANELS = 2;    // panels of filters at once: a number that was loaded is used for each
#else
constexpr int W = 8;
constexpr int TALLEST = 6;
constexpr int ABREAST = 2;
constexpr int PANELS = 1;
#endif
typedef float vec __attribute__((vector_size(4 * L)));
typedef float wide __attribute__((vector_size(4 * W)));
typedef float loose __attribute__((vector_size(4 * L), aligned(4), may_alias));
typedef float loose_wide __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(8 * L)));
typedef double loose_doubles __attribute__((vector_size(8 * L), aligned(8), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * L)));
typedef uint8_t bytes __attribute__((vector_size(L), aligned(1), may_alias));

inline vec load(const float* p) { return *reinterpret_cast<const loose*>(p); }
inline wide get(const float* p) { return *reinterpret_cast<const loose_wide*>(p); }
inline void store(float* p, vec v) { *reinterpret_cast<loose*>(p) = v; }
inline void put(float* p, wide v) { *reinterpret_cast<loose_wide*>(p) = v; }
template <typename V>
inline V load_as(const float* p) {
    if constexpr (std::is_same_v<V, wide>) return get(p);
    else return load(p);
}
template <typename V>
inline void store_as(float* p, V v) {
    if constexpr (std::is_same_v<V, wide>) put(p, v);
    else store(p, v);
}

// A whole cache line past the caches, into which it need not be read first; `end_streams` makes others see it.
#ifdef __AVX512F__
constexpr bool STREAMS = true;
inline void stream(float* p, wide v) { __builtin_ia32_movntps512(p, v); }
inline void end_streams() { __builtin_ia32_sfence(); }
#else
constexpr bool STREAMS = false;
inline void stream(float* p, wide v) { put(p, v); }
inline void end_streams() {}
#endif
#define UNROLL _Pragma("GCC unroll 16")
#define APART __attribute__((noinline))  // so that its registers are its own
inline vec round_down(vec v) {
    vec whole = __builtin_convertvector(__builtin_convertvector(v, ints), vec);
    return whole - (vec)((ints)(vec{} + 1.0f) & (whole > v));
}
// v where `of` is positive or not a number, else 0, as PyTorch's ReLU and its gradient: a NaN stays to be seen.
template <typename V>
inline V where_positive(V of, V v) {
    return of <= 0.0f ? V{} : v;
}

template <int N>
using Number = std::integral_constant<int, N>;

// work(constant) for a count that is at most MOST.
template <int MOST, typename Work>
inline void with_count(size_t count, Work work) {
    if (count == MOST) return work(Number<MOST>());
    if constexpr (MOST > 1) with_count<MOST - 1>(count, work);
}

// work(channel, a vector of zeros, how many vectors) for all channels, from the first on.
template <typename Work>
inline void over_channels(size_t channels, Work work) {
    size_t c = 0;
    for (; c + ABREAST * W <= channels; c += ABREAST * W) work(c, wide{}, Number<ABREAST>());
    for (; c + W <= channels; c += W) work(c, wide{}, Number<1>());
    for (; c < channels; c += L) work(c, vec{}, Number<1>());
}

// --- memory and threads ---------------------------------------------------------------------------

struct Scratch {  // of one thread, kept from call to call
    float* data = nullptr;
    size_t size = 0;
    float* get(size_t wanted) {
        if (wanted > size) {
            free(data);
            size = (wanted + 15) / 16 * 16;
            data = static_cast<float*>(aligned_alloc(64, size * sizeof(float)));
            if (!data) {  // a team of threads cannot raise an exception in Python
                fputs("resnets: memory ran out in a convolution; to train in less, give a smaller --batch or "
                      "--micro-batch, or --memory min.\n", stderr);
                std::_Exit(2);
            }
        }
        return data;
    }
    ~Scratch() { free(data); }
};

// The work of a call is cut into shares. How many there are follows from the shapes; a thread that is free takes the
// next one. Sums are made within a share, and then over the shares in order.
constexpr int64_t SHARES = 16;

// body(share, first, last) for the pieces of each share.
template <typename Body>
void parallel(int64_t threads, int64_t pieces, int64_t shares, Body body) {
    auto work = [&](int64_t share) {
        body(share, pieces * share / shares, pieces * (share + 1) / shares);
        end_streams();
    };
    Team::run(pieces > 1 ? threads : 1, shares, work);
}

// to[j][i] = from[i][j] in a block of 8x8, rows `across` and `down` floats apart
inline void turn(const float* from, size_t across, float* to, size_t down) {
#if defined(__clang__) || __GNUC__ >= 12
#define BOTH(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
    vec row[L], pair[L];
    for (int i = 0; i < L; i++) row[i] = load(from + i * across);
    for (int i = 0; i < L; i += 2) {
        pair[i] = BOTH(row[i], row[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pair[i + 1] = BOTH(row[i], row[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < L; i++) {  // fours: columns i and i + 4 of the upper rows, then of the lower
        vec a = pair[i / 4 * 4 + i % 4 / 2], b = pair[i / 4 * 4 + i % 4 / 2 + 2];
        row[i] = i % 2 ? BOTH(a, b, 2, 3, 10, 11, 6, 7, 14, 15) : BOTH(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
    }
    for (int i = 0; i < L / 2; i++) {
        store(to + i * down, BOTH(row[i], row[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
        store(to + (i + 4) * down, BOTH(row[i], row[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
    }
#undef BOTH
#else
    for (int j = 0; j < L; j++)
        for (int i = 0; i < L; i++) to[j * down + i] = from[i * across + j];
#endif
}

// --- products of small matrices -------------------------------------------------------------------

// At least `floats`, and an odd number of cache lines: matrices that lie so far apart share no places of a cache.
inline size_t spaced(size_t floats) { return ((floats + 15) / 16 | 1) * 16; }

// Filters lie in panels of 16 columns (the last may have 8), each [k][columns], so that they are read in one stream.
inline size_t in_panels(size_t row, size_t column, size_t rows, size_t columns) {
    size_t panel = column / (2 * L) * (2 * L), width = columns - panel < 2 * L ? columns - panel : 2 * L;
    return panel * rows + row * width + column - panel;
}

// work(column, a vector of zeros, how many vectors) for panels of columns, several at once where they are whole.
template <typename Work>
inline void over_panels(size_t columns, Work work) {
    size_t n = 0;
    for (; PANELS > 1 && n + PANELS * 2 * L <= columns; n += PANELS * 2 * L) work(n, wide{}, Number<PANELS * 2 * L / W>());
    for (; n + 2 * L <= columns; n += 2 * L) work(n, wide{}, Number<2 * L / W>());
    if (n < columns) work(n, vec{}, Number<1>());
}

// Rows in blocks of about equal height: work(first row, constant number of rows).
template <typename Work>
inline void over_blocks(size_t rows, Work work) {
    const size_t blocks = (rows + TALLEST - 1) / TALLEST;
    for (size_t i = 0, first = 0; i < blocks; i++) {
        const size_t next = rows * (i + 1) / blocks;
        with_count<TALLEST>(next - first, [&](auto count) { work(first, count); });
        first = next;
    }
}

// sum[R][N vectors] += a[R][k] b[k][N vectors], all in registers. The rows of a are `apart` floats apart, the panels of b
// `panel` floats.
template <typename V, int R, int N>
inline void accumulate_block(const float* a, size_t apart, size_t k, const float* b, size_t panel, V (&sum)[R][N]) {
    constexpr int LANES = sizeof(V) / sizeof(float), IN_PANEL = std::min(N, 2 * L / LANES);
    for (size_t i = 0; i < k; i++) {
        V by[N];
        UNROLL for (int n = 0; n < N; n++) by[n] = load_as<V>(b + n / IN_PANEL * panel + (i * IN_PANEL + n % IN_PANEL) * LANES);
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int n = 0; n < N; n++) sum[r][n] += a[r * apart + i] * by[n];
    }
}

// c[R][N vectors] = a[R][k] b[k][N vectors], or added to c.
template <typename V, int R, int N>
inline void multiply_block(const float* a, size_t apart, size_t k, const float* b, size_t panel, size_t columns, float* c,
                           bool add) {
    constexpr int LANES = sizeof(V) / sizeof(float);
    V sum[R][N] = {};
    if (add)
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int n = 0; n < N; n++) sum[r][n] = load_as<V>(c + r * columns + n * LANES);
    accumulate_block<V, R, N>(a, apart, k, b, panel, sum);
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int n = 0; n < N; n++) store_as<V>(c + r * columns + n * LANES, sum[r][n]);
}

template <typename V, int N>
inline void multiply_rows(size_t rows, const float* a, size_t apart, size_t k, const float* b, size_t panel, size_t columns,
                          float* c, bool add) {
    over_blocks(rows, [&](size_t r, auto count) {
        multiply_block<V, count(), N>(a + r * apart, apart, k, b, panel, columns, c + r * columns, add);
    });
}

constexpr size_t DEPTH = 256;  // rows of b at once: 16 columns of them stay in the first cache

thread_local Scratch rows_memory;

// c[rows][columns] = a[rows][k] b[k][columns], b in panels. Long rows lie so far apart that they fall into the same places
// of the first cache: they are copied together, a part at a time.
APART void multiply(size_t rows, const float* a, size_t k, const float* b, size_t columns, float* c) {
    const bool copied = k >= 2 * DEPTH && columns >= 4 * L;
    size_t from = 0;
    do {  // once at least, as an empty sum is 0
        const size_t deep = k - from < DEPTH + DEPTH / 2 ? k - from : DEPTH;
        const float* part = a + from;
        size_t apart = k;
        if (copied) {
            apart = spaced(deep);
            float* to = rows_memory.get(rows * apart);
            for (size_t r = 0; r < rows; r++) memcpy(to + r * apart, part + r * k, deep * sizeof(float));
            part = to;
        }
        over_panels(columns, [&](size_t n, auto zero, auto vectors) {
            using V = decltype(zero);
            const size_t width = std::is_same_v<V, vec> && vectors() == 1 ? L : 2 * L;
            multiply_rows<V, vectors()>(rows, part, apart, deep, b + n * k + from * width, k * width, columns, c + n, from);
        });
        from += deep;
    } while (from < k);
}

// c += a' b of a[count][R] and b[count][N vectors], whose rows are `tall` and `apart` floats apart, the panels of b `panel`
template <typename V, int R, int N>
inline void outer_block(size_t count, const float* a, size_t tall, const float* b, size_t apart, size_t panel, float* c,
                        size_t columns) {
    constexpr int LANES = sizeof(V) / sizeof(float), IN_PANEL = std::min(N, 2 * L / LANES);
    V sum[R][N] = {};
    for (size_t i = 0; i < count; i++) {
        V by[N];
        UNROLL for (int n = 0; n < N; n++) by[n] = load_as<V>(b + n / IN_PANEL * panel + i * apart + n % IN_PANEL * LANES);
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int n = 0; n < N; n++) sum[r][n] += a[i * tall + r] * by[n];
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int n = 0; n < N; n++) {
            float* at = c + r * columns + n * LANES;
            store_as<V>(at, load_as<V>(at) + sum[r][n]);
        }
}

template <int R>
inline void outer_rows(size_t count, const float* a, size_t tall, const float* b, bool packed, size_t columns, float* c) {
    over_panels(columns, [&](size_t n, auto zero, auto vectors) {
        using V = decltype(zero);
        const size_t width = std::is_same_v<V, vec> && vectors() == 1 ? L : 2 * L;
        outer_block<V, R, vectors()>(count, a, tall, packed ? b + n * count : b + n, packed ? width : columns,
                                     packed ? count * width : width, c + n, columns);
    });
}

thread_local Scratch outer_memory;

// c[rows][columns] += sum over i of a[i][rows] b[i][columns], the rows of a being `tall` floats apart. Wide rows lie so far
// apart that they fall into the same places of the first cache: they are copied together.
APART void add_outer(size_t count, const float* a, size_t tall, size_t rows, const float* b, size_t columns, float* c) {
    const bool pack_b = columns >= 128, pack_a = tall >= 128;
    float* mine = outer_memory.get((pack_b ? count * columns : 0) + count * TALLEST);
    if (pack_b) {
        float* to = mine + count * TALLEST;
        for (size_t n = 0; n < columns; n += 2 * L)
            for (size_t i = 0; i < count; i++)
                for (size_t c = n; c < columns && c < n + 2 * L; c += L, to += L) store(to, load(b + i * columns + c));
        b = mine + count * TALLEST;
    }
    over_blocks(rows, [&](size_t r, auto height) {
        const float* from = a + r;
        if (pack_a) {
            for (size_t i = 0; i < count; i++) memcpy(mine + i * height(), a + i * tall + r, height() * sizeof(float));
            from = mine;
        }
        outer_rows<height()>(count, from, pack_a ? height() : tall, b, pack_b, columns, c + r * columns);
    });
}

}  // namespace
