// Winograd's F(2x2, 3x3) and F(4x4, 3x3) in one dimension, with their transposes.
//
// F(2x2, 3x3) has the points 0, 1, -1 and infinity: 16 products for four pixels instead of 36. F(4x4, 3x3) has 0,
// +-sqrt(1/2), +-sqrt(2) and infinity, which lose fewer digits than the usual 0, +-1, +-2: 36 products for 16 pixels
// instead of 144. `network.py` has the same points.

#pragma once

#include "vectors.h"

namespace {

// T results of a row are read from T + 2 numbers. Numbers are `apart` vectors apart where they are read, and `next` where
// they are written.
template <int T>
struct Tile;

template <>
struct Tile<2> {
    template <typename V>  // B' d
    static inline void in(const V* d, size_t apart, V* to, size_t next) {
        V p = d[0], q = d[apart], r = d[2 * apart], s = d[3 * apart];
        to[0] = p - r, to[next] = q + r, to[2 * next] = r - q, to[3 * next] = q - s;
    }
    template <typename V>  // A' m
    static inline void out(const V* m, size_t apart, V* to, size_t next) {
        V q = m[apart], r = m[2 * apart];
        to[0] = m[0] + q + r, to[next] = q - r - m[3 * apart];
    }
    template <typename V>  // A g
    static inline void spread(const V* g, size_t apart, V* to, size_t next) {
        V p = g[0], q = g[apart];
        to[0] = p, to[next] = p + q, to[2 * next] = p - q, to[3 * next] = -q;
    }
    template <typename V>  // G w
    static inline void filter(const V* w, size_t apart, V* to, size_t next) {
        V even = 0.5f * (w[0] + w[2 * apart]), odd = 0.5f * w[apart];
        to[0] = w[0], to[next] = even + odd, to[2 * next] = even - odd, to[3 * next] = w[2 * apart];
    }
    template <typename V>  // G' u
    static inline void collect(const V* u, size_t apart, V* to, size_t next) {
        V sum = 0.5f * (u[apart] + u[2 * apart]);
        to[0] = u[0] + sum, to[next] = 0.5f * (u[apart] - u[2 * apart]), to[2 * next] = sum + u[3 * apart];
    }
};

template <>
struct Tile<4> {
    static constexpr float A = 0.70710678118654752440f, B = 1.41421356237309504880f;
    template <typename V>
    static inline void in(const V* d, size_t apart, V* to, size_t next) {
        V d0 = d[0], d1 = d[apart], d2 = d[2 * apart], d3 = d[3 * apart], d4 = d[4 * apart], d5 = d[5 * apart];
        V even = d4 - 2.0f * d2, odd = A * d3 - B * d1;
        V other_even = d4 - 0.5f * d2, other_odd = B * d3 - A * d1;
        to[0] = d0 + (d4 - 2.5f * d2), to[next] = even + odd, to[2 * next] = even - odd;
        to[3 * next] = other_even + other_odd, to[4 * next] = other_even - other_odd;
        to[5 * next] = d1 + (d5 - 2.5f * d3);
    }
    template <typename V>
    static inline void out(const V* m, size_t apart, V* to, size_t next) {
        V a = m[apart], b = m[2 * apart], c = m[3 * apart], d = m[4 * apart];
        V sum = a + b, difference = a - b, other_sum = c + d, other = c - d;
        to[0] = m[0] + sum + other_sum;
        to[next] = A * difference + B * other;
        to[2 * next] = 0.5f * sum + 2.0f * other_sum;
        to[3 * next] = A * (0.5f * difference) + B * (2.0f * other) + m[5 * apart];
    }
    template <typename V>
    static inline void spread(const V* g, size_t apart, V* to, size_t next) {
        V g0 = g[0], g1 = g[apart], g2 = g[2 * apart], g3 = g[3 * apart];
        V even = g0 + 0.5f * g2, odd = A * (g1 + 0.5f * g3), other_even = g0 + 2.0f * g2, other_odd = B * (g1 + 2.0f * g3);
        to[0] = g0, to[next] = even + odd, to[2 * next] = even - odd;
        to[3 * next] = other_even + other_odd, to[4 * next] = other_even - other_odd, to[5 * next] = g3;
    }
    template <typename V>
    static inline void filter(const V* w, size_t apart, V* to, size_t next) {
        V w0 = w[0], w1 = w[apart], w2 = w[2 * apart];
        V even = (-2.0f / 3) * (w0 + 0.5f * w2), odd = (-2.0f / 3 * A) * w1;
        V other_even = (1.0f / 6) * (w0 + 2.0f * w2), other_odd = (B / 6) * w1;
        to[0] = w0, to[next] = even + odd, to[2 * next] = even - odd;
        to[3 * next] = other_even + other_odd, to[4 * next] = other_even - other_odd, to[5 * next] = w2;
    }
    template <typename V>
    static inline void collect(const V* u, size_t apart, V* to, size_t next) {
        V sum = (-2.0f / 3) * (u[apart] + u[2 * apart]), difference = (-2.0f / 3 * A) * (u[apart] - u[2 * apart]);
        V other_sum = (1.0f / 6) * (u[3 * apart] + u[4 * apart]), other = (B / 6) * (u[3 * apart] - u[4 * apart]);
        to[0] = u[0] + sum + other_sum, to[next] = difference + other;
        to[2 * next] = 0.5f * sum + 2.0f * other_sum + u[5 * apart];
    }
};

}  // namespace
