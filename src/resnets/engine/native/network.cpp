// A network in testing as one call: a list of layers over a few buffers, for float32 maps in channels_last order.
//
// BN is folded before it comes here. Every layer leaves its result through a Sink, which adds the shortcut, applies
// ReLU and may write a second map, relu(scale y + shift), that the next pre-activation unit reads. 3x3 convolutions of
// stride 1 use Winograd's F(4x4, 3x3) or F(2x2, 3x3), other convolutions are products of matrices.
//
// One thread takes a few images at a time through the layers of a stage, so that their maps stay in its second cache;
// images that are left over, fewer than threads, are shared by all threads layer by layer. A number of the result is
// made by the same operations either way: it depends neither on the number of threads nor on the other images of the
// batch. Channels of maps are padded with zeros to whole vectors.

#include "winograd.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

extern "C" {

enum Kind : int64_t { FIRST = 0, CONV = 1, WINOGRAD2 = 2, WINOGRAD4 = 3, POOL = 4, RESIZE = 5, PASS = 6, MEAN = 7 };

// A map is `height` x `width` pixels of `channels` floats; buffers are numbered, and -1 is none.
struct Layer {
    int64_t kind, segment;
    int64_t from, to, add, also;                   // buffers: y = relu(v + alpha add), also = relu(scale y + shift)
    int64_t into, height, width;                   // of the map that is read
    int64_t out, rows, columns;                    // of the map that is made
    int64_t side, stride, padding;                 // of a window
    int64_t front, average;                        // RESIZE: zero channels in front, and whether pixels are averaged
    int64_t relu, also_relu;
    double alpha, gain;                            // PASS: v = gain x
    const float *filters, *bias, *scale, *shift;
};

struct Buffer {
    int64_t size;     // floats of an image
    int64_t segment;  // that uses it, or -1: several do
};

struct Network {
    int64_t layers, buffers, segments, group, classes, scores;  // group: images at a time; scores: their buffer
    const Layer* layer;
    const Buffer* buffer;
    const int64_t* groups;  // images at a time in each segment
};

struct Images {
    const float* data;
    int64_t count, channels;
    int64_t next_image, next_channel, next_row, next_column;  // in floats
};

}  // extern "C"

namespace {

// --- wide vectors ---------------------------------------------------------------------------------

#ifdef __AVX512F__
constexpr int WIDEST = 4;  // wide vectors in a panel of filters: 4, 2 or 1
constexpr int tallest(int n) { return n == 4 ? 6 : n == 2 ? 12 : 16; }  // rows of a block of results in registers
#else
constexpr int WIDEST = 2;
constexpr int tallest(int n) { return n == 2 ? 6 : 12; }
#endif

inline wide relu(wide v) { return v < 0 ? wide{} : v; }  // NaN stays NaN

// --- how results go out ---------------------------------------------------------------------------

struct Sink {
    float* y;
    const float* add;
    float* also;
    const float *scale, *shift;
    float alpha;
    bool relu, also_relu;
};

// R x N vectors of results, of which row r goes to place at(r) of the maps; c is the channel of the first.
template <int R, int N, typename At>
inline void write(const Sink& s, size_t c, wide (&v)[R][N], At at) {
    if (s.add)
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int n = 0; n < N; n++) v[r][n] += s.alpha * get(s.add + at(r) + n * W);
    if (s.relu)
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) v[r][n] = relu(v[r][n]);
    if (s.y)
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) put(s.y + at(r) + n * W, v[r][n]);
    if (s.also)
        UNROLL for (int n = 0; n < N; n++) {
            wide scale = get(s.scale + c + n * W), shift = get(s.shift + c + n * W);
            UNROLL for (int r = 0; r < R; r++) {
                wide z = scale * v[r][n] + shift;
                put(s.also + at(r) + n * W, s.also_relu ? relu(z) : z);
            }
        }
}

inline void write_one(const Sink& s, size_t at, size_t c, wide v) {
    wide one[1][1] = {{v}};
    write<1, 1>(s, c, one, [=](int) { return at; });
}

// --- products of matrices -------------------------------------------------------------------------

// sum[R][N vectors] += a[R][k] b[k][N vectors]; rows of a are `apart` floats apart, its columns at `offsets` if given;
// rows of b are `next` floats apart.
template <int R, int N, bool OFFSETS>
inline void accumulate(const float* a, size_t apart, const int32_t* offsets, size_t k, const float* b, size_t next,
                       wide (&sum)[R][N]) {
    const float* row[(R + 3) / 4];
    UNROLL for (int r = 0; r < R; r += 4) row[r / 4] = a + r * apart;
    for (size_t i = 0; i < k; i++, b += next) {
        size_t at = OFFSETS ? offsets[i] : i;
        wide by[N];
        UNROLL for (int n = 0; n < N; n++) by[n] = get(b + n * W);
        UNROLL for (int r = 0; r < R; r++) {
            float x = row[r / 4][(r % 4) * apart + at];
            UNROLL for (int n = 0; n < N; n++) sum[r][n] += x * by[n];
        }
    }
}

// Rows in blocks of about equal height: work(first row, constant number of rows).
template <int N, typename Work>
inline void over_blocks(size_t rows, Work work) {
    size_t blocks = (rows + tallest(N) - 1) / tallest(N);
    for (size_t i = 0, first = 0; i < blocks; i++) {
        size_t next = rows * (i + 1) / blocks;
        with_count<tallest(N)>(next - first, [&](auto count) { work(first, count); });
        first = next;
    }
}

// Filters lie in panels of WIDEST vectors of columns, then of 2 and of 1, each [k][columns].
inline size_t panel_at(size_t column, size_t columns) {  // vectors in the panel that begins at a column
    size_t left = (columns - column) / W;
    return left >= WIDEST ? WIDEST : left >= 2 ? 2 : 1;
}

constexpr size_t PIECE = 2 * W;  // columns; a panel of 4 vectors may be cut in two

// work(column, constant number of vectors, filters of these columns, how far apart their rows are) for from..to.
template <typename Work>
inline void over_panels(const float* filters, size_t k, size_t from, size_t to, size_t columns, Work work) {
    for (size_t column = from; column < to;) {
        size_t start = column / (WIDEST * W) * (WIDEST * W);
        if (panel_at(start, columns) < WIDEST) start = column;
        size_t vectors = panel_at(start, columns), n = std::min(start + vectors * W, to) - column;
        const float* b = filters + start * k + column - start;
        if (WIDEST == 4 && n == 4 * W) work(column, Number<WIDEST>(), b, vectors * W);
        else if (n == 2 * W) work(column, Number<2>(), b, vectors * W);
        else work(column, Number<1>(), b, vectors * W);
        column += n;
    }
}

template <int R, int N, bool OFFSETS>
inline void product_block(const float* a, size_t apart, const int32_t* offsets, size_t k, const float* b, size_t next,
                           const float* bias, const Sink& sink, size_t at, size_t column, size_t columns) {
    wide sum[R][N];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) sum[r][n] = get(bias + column + n * W);
    accumulate<R, N, OFFSETS>(a, apart, offsets, k, b, next, sum);
    write<R, N>(sink, column, sum, [=](int r) { return at + r * columns + column; });
}

// a[rows][k] times columns from..to of filters [k][columns], plus bias: to the sink, row r to the pixel first + r.
template <bool OFFSETS>
APART void product_out(size_t rows, const float* a, size_t apart, const int32_t* offsets, size_t k,
                       const float* filters, const float* bias, size_t from, size_t to, size_t columns,
                       const Sink& sink, size_t first) {
    over_panels(filters, k, from, to, columns, [&](size_t column, auto n, const float* b, size_t next) {
        over_blocks<n()>(rows, [&](size_t row, auto count) {
            product_block<count(), n(), OFFSETS>(a + row * apart, apart, offsets, k, b, next, bias, sink,
                                                  (first + row) * columns, column, columns);
        });
    });
}

template <int R, int N>
inline void product_block(const float* a, size_t k, const float* b, size_t next, float* c, size_t columns) {
    wide sum[R][N] = {};
    accumulate<R, N, false>(a, k, nullptr, k, b, next, sum);
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) put(c + r * columns + n * W, sum[r][n]);
}

// c[rows][to - from] = a[rows][k] times the same columns
APART void product_into(size_t rows, const float* a, size_t k, const float* filters, size_t from, size_t to,
                         size_t columns, float* c) {
    over_panels(filters, k, from, to, columns, [&](size_t column, auto n, const float* b, size_t next) {
        over_blocks<n()>(rows, [&](size_t row, auto count) {
            product_block<count(), n()>(a + row * k, k, b, next, c + row * (to - from) + column - from, to - from);
        });
    });
}

// --- memory and shares ----------------------------------------------------------------------------

class Memory {  // of one thread, kept from call to call; unlike Scratch it says when there is none
  public:
    float* get(size_t wanted) {
        if (wanted > size || !data) {
            free(data);
            size = (wanted + 16) / 16 * 16;
            data = static_cast<float*>(aligned_alloc(64, size * sizeof(float)));
            if (!data) size = 0;
        }
        return data;
    }
    ~Memory() { free(data); }

  private:
    float* data = nullptr;
    size_t size = 0;
};

thread_local Memory map_memory, team_memory, work_memory;

constexpr int SPIN = 4096;  // turns of waiting, some tens of microseconds, before a thread gives up its core

inline void yield() { std::this_thread::yield(); }

// Work in shares: rows of a matrix in groups of at most `most`, times columns in parts of at most about `widest`; more
// of both where threads would have nothing to do.
class Grid {
  public:
    Grid(size_t rows, size_t most, size_t columns, size_t widest, int64_t threads) : rows(rows), columns(columns) {
        const size_t all = threads;
        parts = std::min(pieces(), (columns + widest - 1) / widest);
        groups = (rows + most - 1) / most;
        if (groups * parts < 2 * all)
            groups = std::max(groups, std::min(2 * all / parts, (rows + FEWEST - 1) / FEWEST));
        if (groups * parts < all) parts = std::min(pieces(), (all + groups - 1) / groups);
    }
    int64_t shares() const { return groups * parts; }
    size_t row(size_t share) const { return rows * (share % groups) / groups; }
    size_t next_row(size_t share) const { return rows * (share % groups + 1) / groups; }
    size_t column(size_t share) const { return edge(share / groups); }
    size_t next_column(size_t share) const { return edge(share / groups + 1); }

  private:
    static constexpr size_t FEWEST = 8;  // rows that are worth reading filters for
    size_t pieces() const { return (columns + PIECE - 1) / PIECE; }
    size_t edge(size_t part) const { return std::min(columns, pieces() * part / parts * PIECE); }
    size_t rows, groups, columns, parts;
};

// --- 3x3 of stride 1: Winograd --------------------------------------------------------------------

template <int T>
struct Winograd {
    static constexpr int S = T + 2, P = S * S;
    const Layer& l;
    const size_t down, across, images;
    Winograd(const Layer& l, size_t images)
        : l(l), down((l.rows + T - 1) / T), across((l.columns + T - 1) / T), images(images) {}

    static constexpr size_t GROUP = 24;  // tiles at once
    static size_t step(size_t count, size_t channels) { return count * channels + W; }  // from matrix to matrix
    static size_t memory(const Layer& l) { return P * (step(GROUP, l.into) + step(GROUP, l.out)) + l.into; }

    // A walk over tiles: where they lie in their map.
    struct Walk {
        const Winograd& w;
        size_t image, y, x;
        Walk(const Winograd& w, size_t first)
            : w(w), image(first / (w.down * w.across)), y(first / w.across % w.down * T), x(first % w.across * T) {}
        void next() {
            if ((x += T) < w.across * T) return;
            x = 0;
            if ((y += T) < w.down * T) return;
            y = 0, image++;
        }
    };

    // B' d B of `count` tiles, as P matrices [count][channels].
    void transform_in(const float* x, size_t first, size_t count, const float* zeros, float* to) const {
        const size_t channels = l.into, next = step(count, channels), row = l.width * channels;
        Walk tile(*this, first);
        for (size_t i = 0; i < count; i++, tile.next(), to += channels) {
            const float* corner = x + (tile.image * l.height + tile.y - 1) * row + (tile.x - 1) * channels;
            if (tile.y == 0 || tile.x == 0 || tile.y + T >= size_t(l.height) || tile.x + T >= size_t(l.width)) {
                const float* at[P];
                UNROLL for (int p = 0; p < P; p++) {  // y - 1 and x - 1 wrap above and left of the map
                    bool inside = tile.y + p / S - 1 < size_t(l.height) && tile.x + p % S - 1 < size_t(l.width);
                    at[p] = inside ? corner + p / S * row + p % S * channels : zeros;
                }
                for (size_t c = 0; c < channels; c += W)
                    transform_in([&](int u, int v) { return get(at[u * S + v] + c); }, to + c, next);
            } else {
                for (size_t c = 0; c < channels; c += W)
                    transform_in([&](int u, int v) { return get(corner + u * row + v * channels + c); }, to + c, next);
            }
        }
    }

    template <typename Read>
    static inline void transform_in(Read read, float* to, size_t next) {
        wide d[S], between[S][S];
        UNROLL for (int v = 0; v < S; v++) {
            UNROLL for (int u = 0; u < S; u++) d[u] = read(u, v);
            Tile<T>::in(d, 1, &between[0][v], S);
        }
        UNROLL for (int u = 0; u < S; u++) {
            Tile<T>::in(between[u], 1, d, 1);
            UNROLL for (int v = 0; v < S; v++, to += next) put(to, d[v]);
        }
    }

    // A' m A of each tile and the bias go out: channels from..to.
    void transform_out(const float* m, size_t first, size_t count, size_t from, size_t to, const Sink& sink) const {
        const size_t channels = l.out, next = step(count, to - from);
        Walk tile(*this, first);
        for (size_t i = 0; i < count; i++, tile.next()) {
            size_t place = ((tile.image * l.rows + tile.y) * l.columns + tile.x) * channels;
            size_t high = std::min<size_t>(T, l.rows - tile.y), broad = std::min<size_t>(T, l.columns - tile.x);
            for (size_t c = from; c < to; c += W, m += W) {
                wide d[S], between[T][S], result[T][T], bias = get(l.bias + c);
                UNROLL for (int v = 0; v < S; v++) {
                    UNROLL for (int u = 0; u < S; u++) d[u] = get(m + (u * S + v) * next);
                    Tile<T>::out(d, 1, &between[0][v], S);
                }
                UNROLL for (int u = 0; u < T; u++) {
                    Tile<T>::out(between[u], 1, result[u], 1);
                    UNROLL for (int v = 0; v < T; v++) result[u][v] += bias;
                }
                if (high == T && broad == T) {
                    UNROLL for (int u = 0; u < T; u++) {
                        size_t at = place + u * l.columns * channels + c;
                        wide line[T][1];
                        UNROLL for (int v = 0; v < T; v++) line[v][0] = result[u][v];
                        write<T, 1>(sink, c, line, [=](int v) { return at + v * channels; });
                    }
                } else {
                    for (size_t u = 0; u < high; u++)
                        for (size_t v = 0; v < broad; v++)
                            write_one(sink, place + (u * l.columns + v) * channels + c, c, result[u][v]);
                }
            }
        }
    }

    Grid grid(int64_t threads) const { return Grid(images * down * across, GROUP, l.out, l.out, threads); }

    void run(const Grid& grid, int64_t share, const float* x, const Sink& sink, float* memory) const {
        const size_t first = grid.row(share), count = grid.next_row(share) - first;
        const size_t from = grid.column(share), to = grid.next_column(share);
        const size_t next_in = step(count, l.into), next_out = step(count, to - from);
        float *in = memory, *out = in + P * next_in, *zeros = out + P * next_out;
        memset(zeros, 0, l.into * sizeof(float));
        transform_in(x, first, count, zeros, in);
        for (size_t p = 0; p < P; p++)
            product_into(count, in + p * next_in, l.into, l.filters + p * l.into * l.out, from, to, l.out,
                         out + p * next_out);
        transform_out(out, first, count, from, to, sink);
    }
};

// --- other layers ---------------------------------------------------------------------------------

// A convolution as a product: each pixel's window is a row of the left matrix.
struct Product {
    static size_t terms(const Layer& l) { return l.side * l.side * l.into; }
    static bool direct(const Layer& l) {  // the map is that matrix, and a cache can hold several of its rows
        return l.side == 1 && l.stride == 1 && l.into < 512;
    }
    static size_t apart(const Layer& l) { return direct(l) ? l.into : terms(l) + W; }
    static size_t group(const Layer& l) {
        if (direct(l)) return 96;
        size_t most = 65536 / apart(l) / 12 * 12;
        return most < 12 ? 12 : most > 96 ? 96 : most;
    }
    static size_t memory(const Layer& l) { return direct(l) ? 0 : group(l) * apart(l); }

    static void gather(const Layer& l, const float* x, size_t first, size_t count, float* to) {
        for (size_t i = 0; i < count; i++, to += apart(l)) {
            size_t pixel = first + i, image = pixel / (l.rows * l.columns);
            size_t y = pixel / l.columns % l.rows * l.stride - l.padding, z = pixel % l.columns * l.stride - l.padding;
            float* at = to;
            for (size_t u = 0; u < size_t(l.side); u++)
                for (size_t v = 0; v < size_t(l.side); v++, at += l.into) {
                    bool inside = y + u < size_t(l.height) && z + v < size_t(l.width);  // wraps above and left
                    const float* from = x + ((image * l.height + y + u) * l.width + z + v) * l.into;
                    for (int64_t c = 0; c < l.into; c += W) put(at + c, inside ? get(from + c) : wide{});
                }
        }
    }

    static Grid grid(const Layer& l, size_t images, int64_t threads) {
        const size_t widest = std::max<size_t>(WIDEST * W, 131072 / terms(l));  // they fit into the second cache
        return Grid(images * l.rows * l.columns, group(l), l.out, widest, threads);
    }

    static void run(const Layer& l, const Grid& grid, int64_t share, const float* x, const Sink& sink, float* memory) {
        const size_t first = grid.row(share), count = grid.next_row(share) - first;
        const float* a = x + first * l.into;
        if (!direct(l)) gather(l, x, first, count, memory), a = memory;
        product_out<false>(count, a, apart(l), nullptr, terms(l), l.filters, l.bias, grid.column(share),
                            grid.next_column(share), l.out, sink, first);
    }
};

// The first convolution reads images as they are: an output row needs `side` lines of each channel, with a rim.
struct First {
    static size_t line(const Layer& l) { return l.width + 2 * l.padding + l.side; }
    static size_t terms(const Layer& l) { return l.side * l.side * l.into; }
    static size_t memory(const Layer& l) { return l.into * l.side * line(l) + terms(l); }

    static void run(const Layer& l, const Images& images, int64_t row, const Sink& sink, float* memory) {
        const size_t length = line(l);
        int32_t* offsets = reinterpret_cast<int32_t*>(memory + l.into * l.side * length);
        for (int64_t c = 0, i = 0; c < l.into; c++)
            for (int64_t u = 0; u < l.side; u++)
                for (int64_t v = 0; v < l.side; v++) offsets[i++] = int32_t((c * l.side + u) * length + v);
        fill(l, images, row / l.rows, row % l.rows, memory);
        product_out<true>(l.columns, memory, l.stride, offsets, terms(l), l.filters, l.bias, 0, l.out, l.out, sink,
                           row * l.columns);
    }

    static void fill(const Layer& l, const Images& images, size_t image, size_t row, float* to) {
        const size_t length = line(l), width = l.width;
        for (int64_t c = 0; c < l.into; c++)
            for (int64_t u = 0; u < l.side; u++, to += length) {
                size_t y = row * l.stride + u - l.padding;  // wraps above the image
                memset(to, 0, length * sizeof(float));
                if (y >= size_t(l.height)) continue;
                const float* from =
                    images.data + image * images.next_image + c * images.next_channel + y * images.next_row;
                float* at = to + l.padding;
                if (images.next_column == 1) memcpy(at, from, width * sizeof(float));
                else
                    for (size_t z = 0; z < width; z++) at[z] = from[z * images.next_column];
            }
    }
};

// Maximum over windows, for a row; a NaN is larger than any number.
void pool(const Layer& l, int64_t row, const float* x, const Sink& sink) {
    size_t image = row / l.rows, top = row % l.rows * l.stride - l.padding;
    for (int64_t column = 0; column < l.columns; column++)
        for (int64_t c = 0; c < l.out; c += W) {
            wide most = wide{} - INFINITY;
            for (size_t u = 0; u < size_t(l.side); u++)
                for (size_t v = 0; v < size_t(l.side); v++) {
                    size_t y = top + u, z = column * l.stride - l.padding + v;  // wrap above and left
                    if (y >= size_t(l.height) || z >= size_t(l.width)) continue;
                    wide value = get(x + ((image * l.height + y) * l.width + z) * l.into + c);
                    most = (value > most) | (value != value) ? value : most;
                }
            write_one(sink, (row * l.columns + column) * l.out + c, c, most);
        }
}

// Option A, for a row: every second pixel, or the mean of each square, between zero channels. The channels of x that
// pad it to whole vectors are zeros, and may fall off the end.
void resize(const Layer& l, int64_t row, const float* x, float* to) {
    const int64_t image = row / l.rows, top = row % l.rows * l.stride, kept = std::min(l.into, l.out - l.front);
    to += row * l.columns * l.out;
    memset(to, 0, l.columns * l.out * sizeof(float));
    for (int64_t column = 0; column < l.columns; column++) {
        float* at = to + column * l.out + l.front;
        int64_t down = l.average ? std::min(l.stride, l.height - top) : 1;
        int64_t across = l.average ? std::min(l.stride, l.width - column * l.stride) : 1;
        for (int64_t u = 0; u < down; u++)
            for (int64_t v = 0; v < across; v++) {
                const float* from = x + ((image * l.height + top + u) * l.width + column * l.stride + v) * l.into;
                for (int64_t c = 0; c < kept; c++) at[c] += from[c];
            }
        for (int64_t c = 0; down * across > 1 && c < kept; c++) at[c] /= float(down * across);
    }
}

// Each number of a row for itself.
void pass(const Layer& l, int64_t row, const float* x, const Sink& sink) {
    const size_t line = l.columns * l.out, first = row * line;
    for (size_t i = 0; i < line; i += W) write_one(sink, first + i, i % l.out, float(l.gain) * get(x + first + i));
}

// The mean of all pixels of an image: sums of rows, then of these.
void mean(const Layer& l, int64_t image, const float* x, float* to) {
    for (int64_t c = 0; c < l.into; c += W) {
        wide sum = {};
        for (int64_t y = 0; y < l.height; y++) {
            wide row = {};
            for (int64_t z = 0; z < l.width; z++) row += get(x + ((image * l.height + y) * l.width + z) * l.into + c);
            sum += row;
        }
        put(to + image * l.into + c, sum / float(l.height * l.width));
    }
}

// --- the network ----------------------------------------------------------------------------------

// Where the buffers of `images` images lie; those of one segment hold only a group of them.
struct Places {
    std::vector<size_t> at;
    size_t size = 0;
    Places(const Network& net, size_t images, bool grouped) : at(net.buffers) {
        size_t shared = 0;
        for (int64_t i = 0; i < net.buffers; i++)
            if (net.buffer[i].segment < 0) at[i] = shared, shared += net.buffer[i].size * images;
        size = shared;
        for (int64_t s = 0; s < net.segments; s++) {
            size_t end = shared, held = grouped ? std::min<size_t>(images, net.groups[s]) : images;
            for (int64_t i = 0; i < net.buffers; i++)
                if (net.buffer[i].segment == s) at[i] = end, end += net.buffer[i].size * held;
            size = std::max(size, end);
        }
    }
};

size_t work_size(const Layer& l) {
    switch (l.kind) {
        case FIRST: return First::memory(l);
        case CONV: return Product::memory(l);
        case WINOGRAD2: return Winograd<2>::memory(l);
        case WINOGRAD4: return Winograd<4>::memory(l);
        default: return 0;
    }
}

// How many shares a layer has; no share reads what another one writes.
int64_t count_shares(const Layer& l, size_t images, int64_t threads) {
    switch (l.kind) {
        case CONV: return Product::grid(l, images, threads).shares();
        case WINOGRAD2: return Winograd<2>(l, images).grid(threads).shares();
        case WINOGRAD4: return Winograd<4>(l, images).grid(threads).shares();
        case MEAN: return images;
        default: return images * l.rows;
    }
}

// Images of one call, and what is made of them.
struct Work {
    const Network& net;
    const Images images;
    float* const scores;

    // A share of a layer, for images first to first + count of those whose maps are in `maps`; they begin at `chosen`.
    void step(const Layer& l, const Places& places, float* maps, size_t chosen, size_t first, size_t count,
              int64_t threads, int64_t share, float* memory) const {
        auto buffer = [&](int64_t i) {
            return i < 0 ? nullptr : maps + places.at[i] + (net.buffer[i].segment < 0 ? first * net.buffer[i].size : 0);
        };
        const float* x = buffer(l.from);
        const Sink sink{buffer(l.to), buffer(l.add), buffer(l.also), l.scale, l.shift, float(l.alpha), l.relu != 0,
                        l.also_relu != 0};
        switch (l.kind) {
            case FIRST: {
                Images some = images;
                some.data += (chosen + first) * images.next_image;
                return First::run(l, some, share, sink, memory);
            }
            case CONV: return Product::run(l, Product::grid(l, count, threads), share, x, sink, memory);
            case WINOGRAD2: {
                Winograd<2> layer(l, count);
                return layer.run(layer.grid(threads), share, x, sink, memory);
            }
            case WINOGRAD4: {
                Winograd<4> layer(l, count);
                return layer.run(layer.grid(threads), share, x, sink, memory);
            }
            case POOL: return pool(l, share, x, sink);
            case RESIZE: return resize(l, share, x, sink.y);
            case PASS: return pass(l, share, x, sink);
            case MEAN: return mean(l, share, x, sink.y);
        }
    }

    // All layers of some images by one thread, segment by segment.
    void run_alone(const Places& places, float* maps, float* memory, size_t chosen, size_t count) const {
        for (int64_t i = 0; i < net.layers;) {
            const int64_t segment = net.layer[i].segment;
            const size_t group = net.groups[segment];
            int64_t end = i;
            while (end < net.layers && net.layer[end].segment == segment) end++;
            for (size_t first = 0; first < count; first += group) {
                const size_t some = std::min(group, count - first);
                for (int64_t j = i; j < end; j++)
                    for (int64_t share = 0, shares = count_shares(net.layer[j], some, 1); share < shares; share++)
                        step(net.layer[j], places, maps, chosen, first, some, 1, share, memory);
            }
            i = end;
        }
        take_scores(places, maps, chosen, count);
    }

    void take_scores(const Places& places, const float* maps, size_t chosen, size_t count) const {
        const float* from = maps + places.at[net.scores];
        const size_t size = net.buffer[net.scores].size;
        for (size_t i = 0; i < count; i++)
            memcpy(scores + (chosen + i) * net.classes, from + i * size, net.classes * sizeof(float));
    }
};

// One call. First the images that all threads share, layer by layer; then chunks of images, each by one thread. The
// shares of a layer and the chunks are taken by whoever is free. Whoever calls waits only for shares that others have
// taken, not for threads: on a busy machine a helper may come late, or never.
//
// The caller's memory is read and written only by those who hold a share. What helpers see besides belongs to the job.
class Job {
  public:
    Job(const Work& work, int64_t threads, float* maps, size_t left)
        : work(work), threads(threads), maps(maps), left(left), own(work.images.count - left),
          rounds((own / threads + work.net.group - 1) / work.net.group), layers(left ? work.net.layers : 0),
          places(work.net, rounds ? (own / threads + rounds - 1) / rounds : 0, true), together(work.net, left, false),
          stages(layers + 1) {
        for (int64_t i = 0; i < layers; i++) stages[i].shares = count_shares(work.net.layer[i], left, threads);
        stages[layers].shares = rounds * threads;
        for (int64_t i = 0; i < work.net.layers; i++) scratch = std::max(scratch, work_size(work.net.layer[i]));
    }
    size_t size() const { return together.size; }

    void help() {
        for (int64_t i = 0; i <= layers; i++) {
            Stage& stage = stages[i];
            int64_t share;
            while ((share = stage.taken.fetch_add(1, std::memory_order_relaxed)) < stage.shares) {
                if (!failed) run(i, share);
                stage.done.fetch_add(1, std::memory_order_release);
            }
            if (i < layers) wait(stage);
        }
    }

    // The caller's own part. False: memory ran out.
    bool finish() {
        help();
        wait(stages[layers]);
        if (left && !failed) work.take_scores(together, maps, own, left);
        return !failed;
    }

  private:
    struct Stage {
        int64_t shares = 0;
        std::atomic<int64_t> taken{0}, done{0};
    };

    static void wait(const Stage& stage) {
        for (int turns = 0; stage.done.load(std::memory_order_acquire) < stage.shares; turns++)
            turns < SPIN ? relax() : yield();
    }

    void run(int64_t stage, int64_t share) {
        float* const memory = work_memory.get(scratch);
        float* const mine = stage == layers ? map_memory.get(places.size) : maps;
        if (!memory || !mine) {
            failed = true;
        } else if (stage < layers) {
            work.step(work.net.layer[stage], together, maps, own, 0, left, threads, share, memory);
        } else {
            size_t first = own * share / stages[layers].shares, last = own * (share + 1) / stages[layers].shares;
            work.run_alone(places, mine, memory, first, last - first);
        }
    }

    const Work work;
    const int64_t threads;
    float* const maps;
    const size_t left, own, rounds;
    const int64_t layers;  // that all threads share
    const Places places, together;
    size_t scratch = W;
    std::vector<Stage> stages;  // the layers, then the chunks
    std::atomic<bool> failed{false};
};

// --- threads --------------------------------------------------------------------------------------

// Threads that help with jobs, made when they are first wanted. They sleep when there was nothing to do for a while.
class Helpers {
  public:
    static Helpers& get() {  // never destroyed; a forked process has none of its parent's threads and makes its own
        static std::atomic<Helpers*> all{nullptr};
        Helpers* found = all.load(std::memory_order_acquire);
        if (found && found->process == getpid()) return *found;
        Helpers* fresh = new Helpers();
        if (all.compare_exchange_strong(found, fresh)) return *fresh;
        delete fresh;
        return *found;
    }

    void offer(const std::shared_ptr<Job>& job, int64_t helpers) {
        std::lock_guard<std::mutex> hold(lock);
        while (count < helpers && start_thread([this] { serve(); })) count++;
        for (int64_t i = 0; i < helpers; i++) jobs.push_back(job);
        waiting.store(jobs.size(), std::memory_order_release);
        wake.notify_all();
    }

    void withdraw(const std::shared_ptr<Job>& job) {
        std::lock_guard<std::mutex> hold(lock);
        jobs.erase(std::remove(jobs.begin(), jobs.end(), job), jobs.end());
        waiting.store(jobs.size(), std::memory_order_release);
    }

  private:
    void serve() {
        for (;;) take()->help();
    }

    std::shared_ptr<Job> take() {
        for (int turns = 0; turns < 4 * SPIN && !waiting.load(std::memory_order_acquire); turns++) relax();
        std::unique_lock<std::mutex> hold(lock);
        wake.wait(hold, [&] { return !jobs.empty(); });
        std::shared_ptr<Job> job = std::move(jobs.front());
        jobs.pop_front();
        waiting.store(jobs.size(), std::memory_order_release);
        return job;
    }

    const pid_t process = getpid();
    std::mutex lock;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Job>> jobs;
    std::atomic<size_t> waiting{0};
    int64_t count = 0;
};

}  // namespace

extern "C" {

int64_t lanes() { return W; }
int64_t widest() { return WIDEST; }

// The scores of images, `classes` of each; 0, or 1 where memory ran out.
int64_t run_network(const Network* net, const Images* images, float* scores, int64_t threads) {
    try {
        threads = std::max<int64_t>(1, threads);
        const size_t left = images->count % threads;
        float* const maps = team_memory.get(Places(*net, left, false).size);
        if (!maps) return 1;
        auto job = std::make_shared<Job>(Work{*net, *images, scores}, threads, maps, left);
        if (threads > 1) Helpers::get().offer(job, threads - 1);
        bool done = job->finish();
        if (threads > 1) Helpers::get().withdraw(job);
        return done ? 0 : 1;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

}  // extern "C"
