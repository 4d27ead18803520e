// Convolutions with what stands around them in a residual unit, for float32 maps in channels_last order.
//
// A convolution here reads its input through a Source (raw, BN-ReLU, or BN's backward, computed on the way in) and
// leaves its output through a Sink (plus the shortcut, or masked by ReLU, with the sums that the next BN wants), so that
// a map travels through memory as seldom as can be. 3x3 convolutions use Winograd's F(2x2, 3x3): 16 products for four
// pixels instead of 36, with an error like that of the direct sum. 1x1 convolutions are products of matrices.
//
// Pointers come in through ctypes, so no header of PyTorch is needed. The order of every sum follows from the shapes alone:
// the result is the same on any number of threads. Channels are multiples of 8.

#include "vectors.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

extern "C" {

// How numbers come in. RAW: x. ACT: max(a x + d, 0). LINEAR: a x + b (z - c) + d. RELU: max(x, 0). AFFINE: a x + d.
enum Way : int64_t { RAW = 0, ACT = 1, LINEAR = 2, RELU = 3, AFFINE = 4 };
struct Source {
    int64_t way;
    const float *x, *z;
    const float *a, *b, *c, *d;  // of each channel
};

// How numbers go out. PLAIN: y = v. ADD: v + add. ADD_RELU: max(v + add, 0). MASK: v where a m + d > 0 (m > 0 without
// a), else 0. Without y nothing is kept but the sums: those of y and of y (q - c) over all pixels, 2 x channels; y y where
// there is no q.
enum End : int64_t { PLAIN = 0, ADD = 1, ADD_RELU = 2, MASK = 3 };
struct Sink {
    int64_t end;
    float* y;
    const float *add, *m, *a, *d, *q, *c;
    double* sums;
};

struct Shape {
    int64_t n, height, width, into, out, threads;
};

}  // extern "C"

namespace {

thread_local Scratch padded_memory, left_memory, right_memory, sums_memory, filters_memory;

// Sums over pixels: floats within a piece, doubles beyond it, one row for each share.
class Sums {
  public:
    Sums(const Sink& sink, int64_t channels) : to(sink.sums), count(to ? 2 * channels : 0), rows(count * SHARES) {}
    float* begin() {
        float* part = sums_memory.get(count + 1);
        memset(part, 0, count * sizeof(float));
        return part;
    }
    void piece_done(int64_t share, float* part) {
        for (int64_t i = 0; i < count; i++) rows[share * count + i] += part[i];
        memset(part, 0, count * sizeof(float));
    }
    void finish() {
        for (int64_t i = 0; i < count; i++) {
            to[i] = 0;
            for (size_t at = i; at < rows.size(); at += count) to[i] += rows[at];
        }
    }

  private:
    double* to;
    int64_t count;
    std::vector<double> rows;
};

// --- in and out -----------------------------------------------------------------------------------

template <int WAY>
void read_pixels(const Source& s, size_t pixel, size_t count, size_t channels, float* to) {
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < channels; c += L) {
            size_t at = (pixel + i) * channels + c;
            vec x = load(s.x + at);
            if (WAY == ACT || WAY == AFFINE) x = load(s.a + c) * x + load(s.d + c);
            if (WAY == LINEAR) x = load(s.a + c) * x + (load(s.b + c) * (load(s.z + at) - load(s.c + c)) + load(s.d + c));
            if (WAY == ACT || WAY == RELU) x = where_positive(x, x);
            store(to + i * channels + c, x);
        }
}

// Pixels as they come in, into a block of memory.
void fetch(const Source& s, size_t pixel, size_t count, size_t channels, float* to) {
    switch (s.way) {
        case ACT: return read_pixels<ACT>(s, pixel, count, channels, to);
        case LINEAR: return read_pixels<LINEAR>(s, pixel, count, channels, to);
        case RELU: return read_pixels<RELU>(s, pixel, count, channels, to);
        case AFFINE: return read_pixels<AFFINE>(s, pixel, count, channels, to);
        default: memcpy(to, s.x + pixel * channels, count * channels * sizeof(float));
    }
}

// Eight channels of one pixel go out, and into the sums.
template <int END, bool SUMS>
inline void write(const Sink& s, size_t at, size_t c, size_t channels, vec v, float* sums) {
    vec m{};
    if (END == ADD || END == ADD_RELU) v += load(s.add + at);
    if (END == ADD_RELU) v = where_positive(v, v);
    if (END == MASK) {
        m = load(s.m + at);
        v = where_positive(s.a ? load(s.a + c) * m + load(s.d + c) : m, v);
    }
    if (SUMS) {
        vec q = !s.q ? v : (END == MASK && s.q == s.m ? m : load(s.q + at)) - load(s.c + c);
        store(sums + c, load(sums + c) + v);
        store(sums + channels + c, load(sums + channels + c) + v * q);
    }
    if (s.y) store(s.y + at, v);
}

// work(end, sums) with the kind of sink as constants.
template <typename Work>
void with_sink(const Sink& s, Work work) {
    auto choose = [&](auto end) { s.sums ? work(end, std::true_type()) : work(end, std::false_type()); };
    switch (s.end) {
        case ADD: return choose(std::integral_constant<int, ADD>());
        case ADD_RELU: return choose(std::integral_constant<int, ADD_RELU>());
        case MASK: return choose(std::integral_constant<int, MASK>());
        default: return choose(std::integral_constant<int, PLAIN>());
    }
}

// --- 3x3: Winograd's F(2x2, 3x3) ------------------------------------------------------------------

// A map is cut into tiles of 2x2 pixels, their rows into bands: a band with its rim fits into the second cache.
struct Tiling {
    size_t height, width, rows, columns, band, bands;
    Tiling(const Shape& s)
        : height(s.height), width(s.width), rows((height + 1) / 2), columns((width + 1) / 2) {
        size_t most = 32768 / (2 * (2 * columns + 2) * s.into);
        bands = most ? (rows + most - 1) / most : rows;
        band = (rows + bands - 1) / bands;
        bands = (rows + band - 1) / band;
    }
    size_t across() const { return 2 * columns + 2; }  // pixels in a row with its rim
    // Tiles worked on at once: few, so that they stay in the first cache, more where the filters leave it anyway.
    static size_t group(const Shape& s) { return s.into >= 128 || s.out >= 128 ? 24 : 12; }
};

// The rows of tiles first to last with a rim of zeros, as they come in.
void fill(const Tiling& t, const Source& s, size_t image, size_t first, size_t last, size_t channels, float* to) {
    size_t across = t.across() * channels;
    for (size_t row = 0; row < 2 * (last - first) + 2; row++, to += across) {
        size_t y = 2 * first + row - 1;  // wraps above the image
        if (y >= t.height) {
            memset(to, 0, across * sizeof(float));
            continue;
        }
        memset(to, 0, channels * sizeof(float));
        fetch(s, (image * t.height + y) * t.width, t.width, channels, to + channels);
        size_t done = (t.width + 1) * channels;
        memset(to + done, 0, (across - done) * sizeof(float));
    }
}

// A walk over the tiles of a band, row by row.
struct Walk {
    const Tiling& t;
    size_t row, column;
    Walk(const Tiling& t, size_t first) : t(t), row(first / t.columns), column(first % t.columns) {}
    void next() {
        if (++column == t.columns) column = 0, row++;
    }
};

// B' d B of `count` tiles from number `first` of a band on, as 16 matrices [count][channels].
void transform_in(const Tiling& t, const float* band, size_t first, size_t count, size_t channels, float* to) {
    size_t across = t.across() * channels, step = count * channels;
    Walk tile(t, first);
    for (size_t i = 0; i < count; i++, tile.next()) {
        const float* corner = band + tile.row * 2 * across + tile.column * 2 * channels;
        for (size_t c = 0; c < channels; c += L, to += L, corner += L) {
            vec d[4][4];
            UNROLL for (int x = 0; x < 4; x++) {
                const float* at = corner + x * channels;
                vec p = load(at), q = load(at + across), r = load(at + 2 * across), s = load(at + 3 * across);
                d[0][x] = p - r, d[1][x] = q + r, d[2][x] = r - q, d[3][x] = q - s;
            }
            float* at = to;
            UNROLL for (int y = 0; y < 4; y++, at += 4 * step) {
                store(at, d[y][0] - d[y][2]);
                store(at + step, d[y][1] + d[y][2]);
                store(at + 2 * step, d[y][2] - d[y][1]);
                store(at + 3 * step, d[y][1] - d[y][3]);
            }
        }
    }
}

// A' m A of each tile goes out.
template <int END, bool SUMS>
void transform_out(const Tiling& t, const Sink& sink, size_t image, size_t first_row, size_t first, size_t count,
                   size_t channels, const float* from, float* sums) {
    size_t step = count * channels, below = t.width * channels;
    Walk tile(t, first);
    for (size_t i = 0; i < count; i++, tile.next()) {
        size_t y = 2 * (first_row + tile.row), x = 2 * tile.column;
        size_t to = ((image * t.height + y) * t.width + x) * channels;
        bool low = y + 1 < t.height, right = x + 1 < t.width;
        for (size_t c = 0; c < channels; c += L, from += L, to += L) {
            vec m[2][4];
            const float* at = from;
            UNROLL for (int k = 0; k < 4; k++, at += step) {
                vec p = load(at), q = load(at + 4 * step), r = load(at + 8 * step), s = load(at + 12 * step);
                m[0][k] = p + q + r, m[1][k] = q - r - s;
            }
            write<END, SUMS>(sink, to, c, channels, m[0][0] + m[0][1] + m[0][2], sums);
            if (right) write<END, SUMS>(sink, to + channels, c, channels, m[0][1] - m[0][2] - m[0][3], sums);
            if (low) write<END, SUMS>(sink, to + below, c, channels, m[1][0] + m[1][1] + m[1][2], sums);
            if (low && right)
                write<END, SUMS>(sink, to + below + channels, c, channels, m[1][1] - m[1][2] - m[1][3], sums);
        }
    }
}

// A g A' of each tile of the gradient, as 16 matrices [count][channels]; `band` has a rim.
void transform_gradient(const Tiling& t, const float* band, size_t first, size_t count, size_t channels, float* to) {
    size_t across = t.across() * channels, step = count * channels;
    Walk tile(t, first);
    for (size_t i = 0; i < count; i++, tile.next()) {
        const float* corner = band + (tile.row * 2 + 1) * across + (tile.column * 2 + 1) * channels;
        for (size_t c = 0; c < channels; c += L, to += L, corner += L) {
            vec p = load(corner), q = load(corner + channels);
            vec r = load(corner + across), s = load(corner + across + channels);
            vec d[4][2] = {{p, q}, {p + r, q + s}, {p - r, q - s}, {-r, -s}};
            float* at = to;
            UNROLL for (int y = 0; y < 4; y++, at += 4 * step) {
                store(at, d[y][0]);
                store(at + step, d[y][0] + d[y][1]);
                store(at + 2 * step, d[y][0] - d[y][1]);
                store(at + 3 * step, -d[y][1]);
            }
        }
    }
}

// --- pixel by pixel: 1x1 convolutions and passes ------------------------------------------------------

constexpr size_t BLOCK = 48;  // pixels at once, and between sums in double

// A block of pixels as they come in: where they lie, or in a thread's own memory.
const float* block_of(const Source& s, size_t pixel, size_t count, size_t channels, Scratch& memory) {
    if (s.way == RAW) return s.x + pixel * channels;
    float* block = memory.get(BLOCK * channels);
    fetch(s, pixel, count, channels, block);
    return block;
}

// What work(pixel, count) makes of each block goes out.
template <typename Work>
void in_blocks(const Shape& s, size_t channels, const Sink& sink, Work work) {
    size_t pixels = s.n * s.height * s.width;
    Sums sums(sink, channels);
    with_sink(sink, [&](auto end, auto summed) {
        parallel(s.threads, (pixels + BLOCK - 1) / BLOCK, SHARES, [&](int64_t share, int64_t from, int64_t to) {
            float* part = sums.begin();
            for (size_t at = from * BLOCK; at < to * BLOCK && at < pixels; at += BLOCK) {
                size_t count = pixels - at < BLOCK ? pixels - at : BLOCK;
                const float* v = work(at, count);
                for (size_t i = 0; i < count; i++)
                    for (size_t c = 0; c < channels; c += L)
                        write<end(), summed()>(sink, (at + i) * channels + c, c, channels, load(v + i * channels + c), part);
                if (summed()) sums.piece_done(share, part);
            }
        });
    });
    sums.finish();
}

// --- filters --------------------------------------------------------------------------------------

// work(row, column) for each block of 8x8 of a matrix, by several threads where it is worth their while.
template <typename Work>
void in_squares(const Shape& s, size_t rows, size_t columns, Work work) {
    parallel(rows * columns < 1024 ? 1 : s.threads, rows / L, SHARES, [&](int64_t, int64_t from, int64_t to) {
        for (size_t row = from * L; row < size_t(to) * L; row += L)
            for (size_t column = 0; column < columns; column += L) work(row, column);
    });
}

// 1x1 filters [out][in] as a matrix [in][out], or [out][in] for the gradient of the input, in panels.
const float* pointwise(const float* filters, const Shape& s, bool backward) {
    float* to = filters_memory.get(s.into * s.out);
    const size_t k = s.into, columns = s.out;
    if (backward)
        in_squares(s, k, columns, [&](size_t row, size_t column) {
            for (size_t r = row; r < row + L; r++)
                store(to + in_panels(r, column, k, columns), load(filters + r * columns + column));
        });
    else
        in_squares(s, columns, k, [&](size_t column, size_t row) {
            float* at = to + in_panels(row, column, k, columns);
            turn(filters + column * k + row, k, at, in_panels(1, column, k, columns) - in_panels(0, column, k, columns));
        });
    return to;
}

// (w0, w1, w2) by Winograd's G
inline void spread(vec w0, vec w1, vec w2, vec* to, size_t apart) {
    vec even = 0.5f * (w0 + w2), odd = 0.5f * w1;
    to[0] = w0, to[apart] = even + odd, to[2 * apart] = even - odd, to[3 * apart] = w2;
}

// 3x3 filters [out][3][3][in] as 16 such matrices; for the gradient of the input they are turned around.
const float* winograd(const float* filters, const Shape& s, bool backward) {
    const size_t k = s.into, columns = s.out, matrix = k * columns;
    const size_t out = backward ? k : columns, into = backward ? columns : k;
    float* to = filters_memory.get(16 * matrix);
    in_squares(s, out, into, [&](size_t o, size_t i) {
        vec square[16][L];
        for (int r = 0; r < L; r++) {
            vec tall[4][3], wide[16];
            for (int x = 0; x < 3; x++) {
                vec w[3];
                for (int y = 0; y < 3; y++) {
                    int tap = y * 3 + x;
                    w[y] = load(filters + ((o + r) * 9 + (backward ? 8 - tap : tap)) * into + i);
                }
                spread(w[0], w[1], w[2], &tall[0][x], 3);
            }
            for (int y = 0; y < 4; y++) spread(tall[y][0], tall[y][1], tall[y][2], wide + 4 * y, 1);
            for (int p = 0; p < 16; p++) square[p][r] = wide[p];
        }
        const size_t row = backward ? o : i, column = backward ? i : o;
        const size_t at = in_panels(row, column, k, columns), next = in_panels(row + 1, column, k, columns) - at;
        for (int p = 0; p < 16; p++)
            if (backward)
                for (int r = 0; r < L; r++) store(to + p * matrix + at + r * next, square[p][r]);
            else
                turn(reinterpret_cast<const float*>(square[p]), L, to + p * matrix + at, next);
    });
    return to;
}

// Matrices of each share, added up in order; fewer shares where the matrices are large.
class Parts {
  public:
    Parts(size_t size)
        : shares(size * SHARES <= MOST ? SHARES : FEWEST), size(size), all(filters_memory.get(shares * size)) {}
    float* begin(int64_t share) {
        float* part = all + share * size;
        memset(part, 0, size * sizeof(float));
        return part;
    }
    vec sum(size_t at) const {
        vec found = load(all + at);
        for (int64_t share = 1; share < shares; share++) found += load(all + share * size + at);
        return found;
    }
    const int64_t shares;

  private:
    static constexpr size_t MOST = 1 << 20;  // floats of all matrices
    static constexpr int64_t FEWEST = 4;
    size_t size;
    float* all;
};

}  // namespace

extern "C" {

// A 3x3 convolution by filters [out][3][3][in]; backward, from the gradient of its output to that of its input.
void conv3x3(const Shape* shape, const Source* source, const float* weight, int64_t backward, const Sink* sink) {
    const Shape s = *shape;
    const Tiling t(s);
    const float* filters = winograd(weight, s, backward);
    Sums sums(*sink, s.out);
    size_t group = t.group(s), matrix = s.into * s.out;
    with_sink(*sink, [&](auto end, auto summed) {
        parallel(s.threads, s.n * t.bands, SHARES, [&](int64_t share, int64_t from, int64_t to) {
            float* band = padded_memory.get((2 * t.band + 2) * t.across() * s.into);
            float* in = left_memory.get(16 * group * s.into);
            float* out = right_memory.get(16 * group * s.out);
            float* part = sums.begin();
            for (int64_t piece = from; piece < to; piece++) {
                size_t image = piece / t.bands, first = piece % t.bands * t.band;
                size_t last = first + t.band < t.rows ? first + t.band : t.rows;
                fill(t, *source, image, first, last, s.into, band);
                size_t tiles = (last - first) * t.columns;
                for (size_t at = 0; at < tiles; at += group) {
                    size_t count = tiles - at < group ? tiles - at : group;
                    transform_in(t, band, at, count, s.into, in);
                    for (int p = 0; p < 16; p++)
                        multiply(count, in + p * count * s.into, s.into, filters + p * matrix, s.out,
                                 out + p * count * s.out);
                    transform_out<end(), summed()>(t, *sink, image, first, at, count, s.out, out, part);
                    if (summed()) sums.piece_done(share, part);
                }
            }
        });
    });
    sums.finish();
}

// The gradient of 3x3 filters [out][3][3][in].
void conv3x3_filters_gradient(const Shape* shape, const Source* source, const Source* gradient, float* filters) {
    const Shape s = *shape;
    const Tiling t(s);
    size_t group = t.group(s), matrix = s.into * s.out;
    Parts parts(16 * matrix);
    parallel(s.threads, s.n * t.bands, parts.shares, [&](int64_t share, int64_t from, int64_t to) {
        size_t rim = (2 * t.band + 2) * t.across();
        float* band = padded_memory.get(rim * (s.into + s.out));
        float* band_out = band + rim * s.into;
        float* in = left_memory.get(16 * group * s.into);
        float* out = right_memory.get(16 * group * s.out);
        float* mine = parts.begin(share);
        for (int64_t piece = from; piece < to; piece++) {
            size_t image = piece / t.bands, first = piece % t.bands * t.band;
            size_t last = first + t.band < t.rows ? first + t.band : t.rows;
            fill(t, *source, image, first, last, s.into, band);
            fill(t, *gradient, image, first, last, s.out, band_out);
            size_t tiles = (last - first) * t.columns;
            for (size_t at = 0; at < tiles; at += group) {
                size_t count = tiles - at < group ? tiles - at : group;
                transform_in(t, band, at, count, s.into, in);
                transform_gradient(t, band_out, at, count, s.out, out);
                for (int p = 0; p < 16; p++)
                    add_outer(count, in + p * count * s.into, s.into, out + p * count * s.out, s.out, mine + p * matrix);
            }
        }
    });
    in_squares(s, s.into, s.out, [&](size_t i, size_t o) {  // G' u G
        vec square[9][L];
        for (int r = 0; r < L; r++) {
            vec tall[3][4];
            for (int x = 0; x < 4; x++) {
                vec u[4];
                for (int y = 0; y < 4; y++) u[y] = parts.sum((y * 4 + x) * matrix + (i + r) * s.out + o);
                vec sum = 0.5f * (u[1] + u[2]);
                tall[0][x] = u[0] + sum, tall[1][x] = 0.5f * (u[1] - u[2]), tall[2][x] = sum + u[3];
            }
            for (int y = 0; y < 3; y++) {
                vec sum = 0.5f * (tall[y][1] + tall[y][2]);
                square[3 * y][r] = tall[y][0] + sum, square[3 * y + 2][r] = sum + tall[y][3];
                square[3 * y + 1][r] = 0.5f * (tall[y][1] - tall[y][2]);
            }
        }
        for (int tap = 0; tap < 9; tap++)
            turn(reinterpret_cast<const float*>(square[tap]), L, filters + (o * 9 + tap) * s.into + i, 9 * s.into);
    });
}

// A 1x1 convolution by filters [out][in]; backward, from the gradient of its output to that of its input.
void conv1x1(const Shape* shape, const Source* source, const float* weight, int64_t backward, const Sink* sink) {
    const Shape s = *shape;
    const float* filters = pointwise(weight, s, backward);
    in_blocks(s, s.out, *sink, [&](size_t at, size_t count) {
        float* out = right_memory.get(BLOCK * s.out);
        multiply(count, block_of(*source, at, count, s.into, left_memory), s.into, filters, s.out, out);
        return static_cast<const float*>(out);
    });
}

// The gradient of 1x1 filters [out][in].
void conv1x1_filters_gradient(const Shape* shape, const Source* source, const Source* gradient, float* filters) {
    const Shape s = *shape;
    size_t pixels = s.n * s.height * s.width, matrix = s.into * s.out;
    Parts parts(matrix);
    parallel(s.threads, (pixels + BLOCK - 1) / BLOCK, parts.shares, [&](int64_t share, int64_t from, int64_t to) {
        float* mine = parts.begin(share);
        for (int64_t block = from; block < to; block++) {
            size_t at = block * BLOCK, count = pixels - at < BLOCK ? pixels - at : BLOCK;
            const float* x = block_of(*source, at, count, s.into, left_memory);
            const float* g = block_of(*gradient, at, count, s.out, right_memory);
            add_outer(count, x, s.into, g, s.out, mine);
        }
    });
    in_squares(s, s.into, s.out, [&](size_t i, size_t o) {
        vec square[L];
        for (int r = 0; r < L; r++) square[r] = parts.sum((i + r) * s.out + o);
        turn(reinterpret_cast<const float*>(square), L, filters + o * s.into + i, s.into);
    });
}

// A map from a source to a sink, pixel by pixel (`into` channels).
void pass(const Shape* shape, const Source* source, const Sink* sink) {
    const Shape s = *shape;
    in_blocks(s, s.into, *sink,
              [&](size_t at, size_t count) { return block_of(*source, at, count, s.into, left_memory); });
}

// BN of a batch as max(a x + d, 0) wants it, from the sums of x and x x over `pixels`: the mean and the inverse of the
// deviation, then the mean rounded, a and d. Running statistics move along unless they are missing.
struct Norm {
    int64_t channels, pixels;
    double eps, momentum;
    const float *gamma, *beta;
    float *running_mean, *running_var;
};

void norm_forward(const Norm* norm, const double* sums, double* exact, float* rounded) {
    const Norm n = *norm;
    double *mean = exact, *deviation = mean + n.channels;
    float *center = rounded, *a = center + n.channels, *d = a + n.channels;
    for (int64_t c = 0; c < n.channels; c++) {
        double m = sums[c] / n.pixels, v = sums[n.channels + c] / n.pixels - m * m;
        v = v > 0 ? v : 0;
        double r = 1 / std::sqrt(v + n.eps);
        mean[c] = m, deviation[c] = r, center[c] = float(m);
        a[c] = float(n.gamma[c] * r), d[c] = float(n.beta[c] - m * n.gamma[c] * r);
        if (n.running_mean) {
            double unbiased = n.pixels > 1 ? v * n.pixels / (n.pixels - 1) : v;
            n.running_mean[c] = float(n.running_mean[c] + n.momentum * (m - n.running_mean[c]));
            n.running_var[c] = float(n.running_var[c] + n.momentum * (unbiased - n.running_var[c]));
        }
    }
}

// From the sums of g and g (x - c), c being the mean as a float: the gradients of gamma and beta, and a, b, d of BN's
// backward a g + b (x - c) + d. Without c, x would have to cancel where its mean is large beside its deviation.
void norm_backward(const Norm* norm, const double* sums, const double* exact, float* results) {
    const Norm n = *norm;
    const double *mean = exact, *deviation = mean + n.channels;
    float *gamma = results, *beta = gamma + n.channels, *a = beta + n.channels, *b = a + n.channels, *d = b + n.channels;
    for (int64_t c = 0; c < n.channels; c++) {
        double rest = mean[c] - float(mean[c]), k = n.gamma[c] * deviation[c];
        double scale = deviation[c] * (sums[n.channels + c] - rest * sums[c]);
        double slope = -k * deviation[c] * scale / n.pixels;
        gamma[c] = float(scale), beta[c] = float(sums[c]);
        a[c] = float(k), b[c] = float(slope), d[c] = float(-k * sums[c] / n.pixels - slope * rest);
    }
}

}  // extern "C"
