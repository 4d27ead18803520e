// Vectors of eight floats, the memory of a thread, shares of work, and products of small matrices.
//
// The vectors are GCC's and Clang's: the same source is AVX2 code on one machine and plain code on another.

#pragma once

#include "team.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int L = 8;  // floats in a vector
typedef float vec __attribute__((vector_size(4 * L)));
typedef float loose __attribute__((vector_size(4 * L), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * L)));

inline vec load(const float* p) { return *reinterpret_cast<const loose*>(p); }
inline void store(float* p, vec v) { *reinterpret_cast<loose*>(p) = v; }
#define UNROLL _Pragma("GCC unroll 16")
#define APART __attribute__((noinline))  // so that its registers are its own
inline vec round_down(vec v) {
    vec whole = __builtin_convertvector(__builtin_convertvector(v, ints), vec);
    return whole - (vec)((ints)(vec{} + 1.0f) & (whole > v));
}
inline vec where_positive(vec of, vec v) { return (vec)((ints)v & (of > (vec){})); }

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
    auto work = [&](int64_t share) { body(share, pieces * share / shares, pieces * (share + 1) / shares); };
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

// c[R][N vectors] = a[R][k] b[k][N vectors], or added to c; all in registers. The rows of a are `apart` floats apart.
template <int R, int N>
inline void multiply_block(const float* a, size_t apart, size_t k, const float* b, size_t columns, float* c, bool add) {
    vec sum[R][N] = {};
    if (add)
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int n = 0; n < N; n++) sum[r][n] = load(c + r * columns + n * L);
    for (size_t i = 0; i < k; i++) {
        vec by[N];
        UNROLL for (int n = 0; n < N; n++) by[n] = load(b + (i * N + n) * L);
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int n = 0; n < N; n++) sum[r][n] += a[r * apart + i] * by[n];
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int n = 0; n < N; n++) store(c + r * columns + n * L, sum[r][n]);
}

template <int N>
inline void multiply_rows(size_t rows, const float* a, size_t apart, size_t k, const float* b, size_t columns, float* c,
                          bool add) {
    size_t r = 0;
    for (; r + 6 <= rows; r += 6) multiply_block<6, N>(a + r * apart, apart, k, b, columns, c + r * columns, add);
    a += r * apart, c += r * columns;
    switch (rows - r) {
        case 5: return multiply_block<5, N>(a, apart, k, b, columns, c, add);
        case 4: return multiply_block<4, N>(a, apart, k, b, columns, c, add);
        case 3: return multiply_block<3, N>(a, apart, k, b, columns, c, add);
        case 2: return multiply_block<2, N>(a, apart, k, b, columns, c, add);
        case 1: return multiply_block<1, N>(a, apart, k, b, columns, c, add);
    }
}

constexpr size_t DEPTH = 256;  // rows of b at once: 16 columns of them stay in the first cache

// c[rows][columns] = a[rows][k] b[k][columns], b in panels
APART void multiply(size_t rows, const float* a, size_t k, const float* b, size_t columns, float* c) {
    size_t from = 0;
    do {  // once at least, as an empty sum is 0
        const size_t deep = k - from < DEPTH + DEPTH / 2 ? k - from : DEPTH;
        size_t n = 0;
        for (; n + 2 * L <= columns; n += 2 * L)
            multiply_rows<2>(rows, a + from, k, deep, b + n * k + from * 2 * L, columns, c + n, from);
        if (n < columns) multiply_rows<1>(rows, a + from, k, deep, b + n * k + from * L, columns, c + n, from);
        from += deep;
    } while (from < k);
}

// c += a' b of a[count][R] and b[count][N vectors], whose rows are `tall` and `wide` floats apart
template <int R, int N>
inline void outer_block(size_t count, const float* a, size_t tall, const float* b, size_t wide, float* c, size_t columns) {
    vec sum[R][N] = {};
    for (size_t i = 0; i < count; i++) {
        vec by[N];
        UNROLL for (int n = 0; n < N; n++) by[n] = load(b + i * wide + n * L);
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int n = 0; n < N; n++) sum[r][n] += a[i * tall + r] * by[n];
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int n = 0; n < N; n++) {
            float* at = c + r * columns + n * L;
            store(at, load(at) + sum[r][n]);
        }
}

template <int R>
inline void outer_rows(size_t count, const float* a, size_t tall, const float* b, bool packed, size_t columns, float* c) {
    size_t n = 0;
    for (; n + 2 * L <= columns; n += 2 * L)
        outer_block<R, 2>(count, a, tall, packed ? b + n * count : b + n, packed ? 2 * L : columns, c + n, columns);
    if (n < columns)
        outer_block<R, 1>(count, a, tall, packed ? b + n * count : b + n, packed ? L : columns, c + n, columns);
}

thread_local Scratch outer_memory;

// c[rows][columns] += sum over i of a[i][rows] b[i][columns], the rows of a being `tall` floats apart. Wide rows lie so far
// apart that they fall into the same places of the first cache: they are copied together.
APART void add_outer(size_t count, const float* a, size_t tall, size_t rows, const float* b, size_t columns, float* c) {
    const bool pack_b = columns >= 128, pack_a = tall >= 128;
    float* mine = outer_memory.get((pack_b ? count * columns : 0) + count * 6);
    if (pack_b) {
        float* to = mine + count * 6;
        for (size_t n = 0; n < columns; n += 2 * L)
            for (size_t i = 0; i < count; i++)
                for (size_t c = n; c < columns && c < n + 2 * L; c += L, to += L) store(to, load(b + i * columns + c));
        b = mine + count * 6;
    }
    size_t r = 0;
    for (; r + 6 <= rows; r += 6) {
        const float* from = a + r;
        if (pack_a) {
            for (size_t i = 0; i < count; i++) memcpy(mine + i * 6, a + i * tall + r, 6 * sizeof(float));
            from = mine;
        }
        outer_rows<6>(count, from, pack_a ? 6 : tall, b, pack_b, columns, c + r * columns);
    }
    for (; r + 4 <= rows; r += 4) outer_rows<4>(count, a + r, tall, b, pack_b, columns, c + r * columns);
    for (; r + 2 <= rows; r += 2) outer_rows<2>(count, a + r, tall, b, pack_b, columns, c + r * columns);
    if (r < rows) outer_rows<1>(count, a + r, tall, b, pack_b, columns, c + r * columns);
}

}  // namespace
