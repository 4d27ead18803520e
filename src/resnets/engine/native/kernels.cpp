// Convolutions with what stands around them in a residual unit, for float32 maps in channels_last order.
//
// A convolution here reads its input through a Source (raw, BN-ReLU, or BN's backward, computed on the way in) and
// leaves its output through a Sink (plus the shortcut, or masked by ReLU, with the sums that the next BN wants), so that
// a map travels through memory as seldom as can be. 3x3 convolutions use Winograd's F(4x4, 3x3) of winograd.h, with an
// error like that of the direct sum. 1x1 convolutions are products of matrices. Any other convolution (the first one, those
// with a stride) copies what a filter sees side by side, and is such a product then.
//
// Pointers come in through ctypes, so no header of PyTorch is needed. The order of every sum follows from the shapes alone:
// the result is the same on any number of threads. Channels are multiples of 8.

#include "winograd.h"

#include <algorithm>
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
// there is no q. A map that is `large` leaves the caches before anybody reads it; its lines are whole and aligned.
// OFFSET: v + d, plus `add` where there is one, and OFFSET_RELU: max(that, 0); both without sums.
enum End : int64_t { PLAIN = 0, ADD = 1, ADD_RELU = 2, MASK = 3, OFFSET = 4, OFFSET_RELU = 5 };
struct Sink {
    int64_t end, large;
    float* y;
    const float *add, *m, *a, *d, *q, *c;
    double* sums;
};

// `into` channels are read and `out` are written; height and width are those of a convolution's input, also where the
// gradient of that input is made.
struct Shape {
    int64_t n, height, width, into, out, threads, side, stride, padding;
};

}  // extern "C"

namespace {

thread_local Scratch padded_memory, left_memory, right_memory, made_memory, sums_memory, filters_memory, parts_memory;

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
    constexpr bool SCALED = WAY == ACT || WAY == LINEAR || WAY == AFFINE;
    over_channels(channels, [&](size_t first, auto zero, auto vectors) {
        using V = decltype(zero);
        constexpr int N = vectors(), LANES = sizeof(V) / sizeof(float);
        V a[N], b[N], center[N], d[N];
        UNROLL for (int n = 0; n < N; n++) {
            const size_t c = first + n * LANES;
            if (SCALED) a[n] = load_as<V>(s.a + c), d[n] = load_as<V>(s.d + c);
            if (WAY == LINEAR) b[n] = load_as<V>(s.b + c), center[n] = load_as<V>(s.c + c);
        }
        for (size_t i = 0; i < count; i++)
            UNROLL for (int n = 0; n < N; n++) {
                const size_t c = first + n * LANES, at = (pixel + i) * channels + c;
                V x = load_as<V>(s.x + at);
                if (WAY == ACT || WAY == AFFINE) x = a[n] * x + d[n];
                if (WAY == LINEAR) x = a[n] * x + (b[n] * (load_as<V>(s.z + at) - center[n]) + d[n]);
                if (WAY == ACT || WAY == RELU) x = where_positive(x, x);
                store_as<V>(to + i * channels + c, x);
            }
    });
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

// How a vector of channels goes out, pixel by pixel, with the sums in registers.
template <int END, bool SUMS, typename V>
class Exit {
  public:
    inline void open(const Sink& s, size_t c) {
        if (END == MASK && s.a) a = load_as<V>(s.a + c), d = load_as<V>(s.d + c);
        if (END == OFFSET || END == OFFSET_RELU) d = load_as<V>(s.d + c);
        if (SUMS && s.q) center = load_as<V>(s.c + c);
    }
    inline void write(const Sink& s, size_t at, V v) {
        V m{};
        if (END == ADD || END == ADD_RELU) v += load_as<V>(s.add + at);
        if (END == OFFSET || END == OFFSET_RELU) {
            v += d;
            if (s.add) v += load_as<V>(s.add + at);
        }
        if (END == ADD_RELU || END == OFFSET_RELU) v = where_positive(v, v);
        if (END == MASK) {
            m = load_as<V>(s.m + at);
            v = where_positive(s.a ? a * m + d : m, v);
        }
        if (SUMS) {
            sum += v;
            product += v * (!s.q ? v : (END == MASK && s.q == s.m ? m : load_as<V>(s.q + at)) - center);
        }
        if (!s.y) return;
        if constexpr (STREAMS && std::is_same_v<V, wide>)
            if (s.large) return stream(s.y + at, v);
        store_as<V>(s.y + at, v);
    }
    inline void close(float* sums, size_t channels) const {
        if (!SUMS) return;
        store_as<V>(sums, load_as<V>(sums) + sum);
        store_as<V>(sums + channels, load_as<V>(sums + channels) + product);
    }

  private:
    V a{}, d{}, center{}, sum{}, product{};
};

// Pixels v[count][channels] go out, the i-th to pixel place(i) of the maps.
template <int END, bool SUMS, typename Place>
void write_pixels(const Sink& s, Place place, size_t count, size_t channels, const float* v, float* sums) {
    over_channels(channels, [&](size_t first, auto zero, auto vectors) {
        using V = decltype(zero);
        constexpr int N = vectors(), LANES = sizeof(V) / sizeof(float);
        Exit<END, SUMS, V> exits[N];
        UNROLL for (int n = 0; n < N; n++) exits[n].open(s, first + n * LANES);
        for (size_t i = 0; i < count; i++)
            UNROLL for (int n = 0; n < N; n++) {
                const size_t c = first + n * LANES;
                exits[n].write(s, place(i) * channels + c, load_as<V>(v + i * channels + c));
            }
        UNROLL for (int n = 0; n < N; n++) exits[n].close(sums + first + n * LANES, channels);
    });
}

// work(end, sums) with the kind of sink as constants.
template <typename Work>
void with_sink(const Sink& s, Work work) {
    auto choose = [&](auto end) { s.sums ? work(end, std::true_type()) : work(end, std::false_type()); };
    switch (s.end) {
        case ADD: return choose(Number<ADD>());
        case ADD_RELU: return choose(Number<ADD_RELU>());
        case MASK: return choose(Number<MASK>());
        case OFFSET: return work(Number<OFFSET>(), std::false_type());
        case OFFSET_RELU: return work(Number<OFFSET_RELU>(), std::false_type());
        default: return choose(Number<PLAIN>());
    }
}

// How many images are one piece of work: enough to fill a group, but no more than leave work for several threads.
inline size_t images_together(const Shape& s, size_t group, size_t of_one) {
    size_t wanted = (group + of_one - 1) / of_one, most = s.n / 4;
    return wanted < most ? wanted : most ? most : 1;
}

// --- 3x3: Winograd -----------------------------------------------------------------------------------

// A map is cut into tiles of TxT pixels, their rows into bands: a band with its rim fits into the second cache. Several
// small images are one piece of work, so that their filters are read once for all of them.
template <int T>
struct Tiling {
    static constexpr int S = T + 2, P = S * S;  // numbers that a tile reads in a row, and in all
    size_t height, width, rows, columns, band, bands, images, pieces, group;
    Tiling(const Shape& s)
        : height(s.height), width(s.width), rows((height + T - 1) / T), columns((width + T - 1) / T) {
        size_t most = (s.into >= 256 ? 65536 : 32768) / (T * across() * s.into);
        bands = most ? (rows + most - 1) / most : rows;
        band = (rows + bands - 1) / bands;
        bands = (rows + band - 1) / band;
        // Tiles worked on at once: few, so that they stay in the first cache, more where the filters leave it anyway.
        const size_t most_channels = std::max(s.into, s.out), cap = most_channels >= 256 ? 48 : 32;
        images = bands > 1 ? 1 : images_together(s, cap, rows * columns);
        pieces = bands > 1 ? s.n * bands : (s.n + images - 1) / images;
        size_t tiles = images * band * columns, groups = (tiles + cap - 1) / cap;
        group = (tiles + groups - 1) / groups;
    }
    size_t across() const { return T * columns + 2; }  // pixels in a row with its rim
    size_t rim() const { return (T * band + 2) * across(); }  // pixels of a band with its rim
};

// Tiles of a band that were transformed one behind the other.
struct Run {
    size_t image, row, first, count;
};

// take(run, into the band's memory) for the tiles of a piece in order, and done(count, runs) for each full group and the rest.
template <int T, typename Fill, typename Take, typename Done>
void in_groups(const Tiling<T>& t, const Shape& s, size_t piece, Fill fill, Take take, Done done) {
    const size_t first = piece % t.bands * t.band, last = std::min(first + t.band, t.rows);
    const size_t image = t.bands > 1 ? piece / t.bands : piece * t.images, tiles = (last - first) * t.columns;
    std::vector<Run> runs;
    size_t have = 0;
    for (size_t i = image; i < image + t.images && i < size_t(s.n); i++) {
        fill(i, first, last);
        for (size_t at = 0; at < tiles;) {
            Run run{i, first, at, std::min(tiles - at, t.group - have)};
            take(run, have);
            runs.push_back(run);
            at += run.count, have += run.count;
            if (have < t.group) continue;
            done(have, runs);
            runs.clear(), have = 0;
        }
    }
    if (have) done(have, runs);
}

// The rows of tiles first to last with a rim of zeros, as they come in.
template <int T>
void fill(const Tiling<T>& t, const Source& s, size_t image, size_t first, size_t last, size_t channels, float* to) {
    size_t across = t.across() * channels;
    for (size_t row = 0; row < T * (last - first) + 2; row++, to += across) {
        size_t y = T * first + row - 1;  // wraps above the image
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
    const size_t columns;
    size_t row, column;
    Walk(size_t columns, size_t first) : columns(columns), row(first / columns), column(first % columns) {}
    void next() {
        if (++column == columns) column = 0, row++;
    }
};

// Wide vectors of channels where they fit, then one of eight.
template <typename Work>
inline void over_vectors(size_t channels, Work work) {
    size_t c = 0;
    for (; c + W <= channels; c += W) work(c, wide{});
    for (; c < channels; c += L) work(c, vec{});
}

// SxS numbers by rows and columns become the P matrices [group][channels] at `to`, which are `step` floats apart.
template <int FROM, int TO, typename V, typename Read, typename Transform>
inline void transform_both_ways(Read read, Transform transform, float* to, size_t step) {
    V line[FROM], between[TO][FROM], made[TO];
    UNROLL for (int x = 0; x < FROM; x++) {
        UNROLL for (int y = 0; y < FROM; y++) line[y] = read(y, x);
        transform(line, 1, &between[0][x], FROM);
    }
    UNROLL for (int y = 0; y < TO; y++) {
        transform(between[y], 1, made, 1);
        UNROLL for (int x = 0; x < TO; x++, to += step) store_as<V>(to, made[x]);
    }
}

// B' d B of the tiles of a run, as P matrices [group][channels].
template <int T>
void transform_in(const Tiling<T>& t, const float* band, const Run& run, size_t channels, float* to) {
    const size_t across = t.across() * channels, step = spaced(t.group * channels);
    Walk tile(t.columns, run.first);
    for (size_t i = 0; i < run.count; i++, tile.next(), to += channels) {
        const float* corner = band + (tile.row * across + tile.column * channels) * T;
        over_vectors(channels, [&](size_t c, auto zero) {
            using V = decltype(zero);
            transform_both_ways<T + 2, T + 2, V>(
                [&](int y, int x) { return load_as<V>(corner + y * across + x * channels + c); }, Tile<T>::template in<V>,
                to + c, step);
        });
    }
}

// A g A' of each tile of the gradient, as P matrices [group][channels]; `band` has a rim.
template <int T>
void transform_gradient(const Tiling<T>& t, const float* band, const Run& run, size_t channels, float* to) {
    const size_t across = t.across() * channels, step = spaced(t.group * channels);
    Walk tile(t.columns, run.first);
    for (size_t i = 0; i < run.count; i++, tile.next(), to += channels) {
        const float* corner = band + (tile.row * T + 1) * across + (tile.column * T + 1) * channels;
        over_vectors(channels, [&](size_t c, auto zero) {
            using V = decltype(zero);
            transform_both_ways<T, T + 2, V>(
                [&](int y, int x) { return load_as<V>(corner + y * across + x * channels + c); },
                Tile<T>::template spread<V>, to + c, step);
        });
    }
}

// Some of the channels of a map: they are `count` columns of a matrix, and their sums are 2 x count.
struct Columns {
    size_t first, count, channels;
};

// A' m A of each tile goes out.
template <int END, bool SUMS, int T>
void transform_out(const Tiling<T>& t, const Sink& sink, const Run& run, Columns of, const float* from, float* sums) {
    constexpr int S = T + 2;
    const size_t step = spaced(t.group * of.count), below = t.width * of.channels;
    Walk tile(t.columns, run.first);
    for (size_t i = 0; i < run.count; i++, tile.next(), from += of.count) {
        const size_t y = T * (run.row + tile.row), x = T * tile.column;
        const size_t to = ((run.image * t.height + y) * t.width + x) * of.channels + of.first;
        const size_t high = std::min<size_t>(T, t.height - y), broad = std::min<size_t>(T, t.width - x);
        over_vectors(of.count, [&](size_t c, auto zero) {
            using V = decltype(zero);
            V line[S], between[T][S], result[T];
            UNROLL for (int v = 0; v < S; v++) {
                UNROLL for (int u = 0; u < S; u++) line[u] = load_as<V>(from + (u * S + v) * step + c);
                Tile<T>::out(line, 1, &between[0][v], S);
            }
            Exit<END, SUMS, V> exit;
            exit.open(sink, of.first + c);
            UNROLL for (int u = 0; u < T; u++) {
                if (size_t(u) >= high) break;
                Tile<T>::out(between[u], 1, result, 1);
                const size_t at = to + u * below + c;
                if (broad == T) {
                    UNROLL for (int v = 0; v < T; v++) exit.write(sink, at + v * of.channels, result[v]);
                } else {
                    for (size_t v = 0; v < broad; v++) exit.write(sink, at + v * of.channels, result[v]);
                }
            }
            exit.close(sums + c, of.count);
        });
    }
}

// --- pixel by pixel: 1x1 convolutions and passes ------------------------------------------------------

constexpr size_t BLOCK = 48;  // pixels at once, and between sums in double

// A block of pixels as they come in: where they lie, or in a thread's own memory.
const float* block_of(const Source& s, size_t pixel, size_t count, size_t channels, Scratch& memory) {
    if (s.way == RAW) return s.x + pixel * channels;
    float* block = memory.get(count * channels);
    fetch(s, pixel, count, channels, block);
    return block;
}

// work(end, sums, pixel, count, sums of the block, share) for each block of pixels, which it writes.
template <typename Work>
void in_blocks(const Shape& s, size_t channels, const Sink& sink, Work work, int64_t shares = SHARES) {
    const size_t pixels = s.n * s.height * s.width;
    Sums sums(sink, channels);
    with_sink(sink, [&](auto end, auto summed) {
        parallel(s.threads, (pixels + BLOCK - 1) / BLOCK, shares, [&](int64_t share, int64_t from, int64_t to) {
            float* part = sums.begin();
            for (size_t at = from * BLOCK; at < to * BLOCK && at < pixels; at += BLOCK) {
                work(end, summed, at, std::min(BLOCK, pixels - at), part, share);
                if (summed()) sums.piece_done(share, part);
            }
        });
    });
    sums.finish();
}

// a[rows][k] b[k][columns], b in panels, goes out from a pixel on.
template <int END, bool SUMS, typename V, int N>
inline void multiply_panel_out(const Sink& sink, size_t pixel, size_t rows, const float* a, size_t k, const float* b, size_t c,
                               size_t columns, float* sums) {
    constexpr int LANES = sizeof(V) / sizeof(float);
    Exit<END, SUMS, V> exits[N];
    UNROLL for (int n = 0; n < N; n++) exits[n].open(sink, c + n * LANES);
    over_blocks(rows, [&](size_t r, auto count) {
        V sum[count()][N] = {};
        accumulate_block<V, count(), N>(a + r * k, k, k, b, k * 2 * L, sum);
        for (int i = 0; i < count(); i++)
            UNROLL for (int n = 0; n < N; n++)
                exits[n].write(sink, (pixel + r + i) * columns + c + n * LANES, sum[i][n]);
    });
    UNROLL for (int n = 0; n < N; n++) exits[n].close(sums + c + n * LANES, columns);
}

template <int END, bool SUMS>
APART void multiply_out(const Sink& sink, size_t pixel, size_t rows, const float* a, size_t k, const float* b, size_t columns,
                        float* sums) {
    if (k > DEPTH) {
        float* made = made_memory.get(rows * columns);
        multiply(rows, a, k, b, columns, made);
        return write_pixels<END, SUMS>(sink, [=](size_t i) { return pixel + i; }, rows, columns, made, sums);
    }
    over_panels(columns, [&](size_t c, auto zero, auto vectors) {
        multiply_panel_out<END, SUMS, decltype(zero), vectors()>(sink, pixel, rows, a, k, b + c * k, c, columns, sums);
    });
}

// work(share, position, channel) for each eight channels of each pixel of maps with `into` channels.
template <typename Work>
void with_pixels(const Shape& s, Work work) {
    parallel(s.threads, s.n * s.height * s.width, SHARES, [&](int64_t share, int64_t from, int64_t to) {
        for (int64_t pixel = from; pixel < to; pixel++)
            for (int64_t c = 0; c < s.into; c += L) work(share, pixel * s.into + c, c);
    });
}

// e^x of numbers up to 87 in size: 2^n by the exponent's bits, times a polynomial (Cephes) of the rest.
inline vec exponential(vec x) {
    const vec n = round_down(x * 1.44269504f + 0.5f);
    vec rest = x - n * 0.693359375f + n * 2.12194440e-4f, y{};
    for (float c : {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        y = y * rest + c;
    y = y * rest * rest + rest + 1.0f;
    return y * (vec)((__builtin_convertvector(n, ints) + 127) << 23);
}

inline vec sigmoid(vec x) {
    x = x < -80.0f ? (vec{} - 80.0f) : x > 80.0f ? (vec{} + 80.0f) : x;
    return 1.0f / (1.0f + exponential(-x));
}

// --- filters --------------------------------------------------------------------------------------

// work(row, column) for each block of 8x8 of a matrix, by several threads where it is worth their while.
template <typename Work>
void in_squares(const Shape& s, size_t rows, size_t columns, Work work) {
    parallel(rows * columns < 4096 ? 1 : s.threads, rows / L, SHARES, [&](int64_t, int64_t from, int64_t to) {
        for (size_t row = from * L; row < size_t(to) * L; row += L)
            for (size_t column = 0; column < columns; column += L) work(row, column);
    });
}

// to[j][i] = from[i][j], `to` in panels of `rows` rows; also of matrices that are no multiple of 8 high
void pack_turned(const Shape& s, const float* from, size_t rows, size_t columns, float* to) {
    if (rows >= L)
        in_squares(s, columns, rows / L * L, [&](size_t column, size_t row) {
            float* at = to + in_panels(row, column, rows, columns);
            turn(from + column * rows + row, rows, at, in_panels(row + 1, column, rows, columns) - in_panels(row, column, rows, columns));
        });
    for (size_t row = rows / L * L; row < rows; row++)
        for (size_t column = 0; column < columns; column++)
            to[in_panels(row, column, rows, columns)] = from[column * rows + row];
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
        pack_turned(s, filters, k, columns, to);
    return to;
}

// The 3x3 filters of eight output and eight input channels from (o, i) on, [out][3][3][in], as P matrices of 8x8, which are
// `matrix` floats apart and whose rows are `next` floats apart; for the gradient of the input they are turned around.
template <int T>
inline void transform_filters(const float* filters, size_t into, size_t o, size_t i, bool backward, float* to, size_t matrix,
                              size_t next) {
    constexpr int S = T + 2, P = S * S;
    vec square[P][L];
    for (int r = 0; r < L; r++) {
        vec taps[3], tall[S][3], made[P];
        for (int x = 0; x < 3; x++) {
            for (int y = 0; y < 3; y++) {
                int tap = y * 3 + x;
                taps[y] = load(filters + ((o + r) * 9 + (backward ? 8 - tap : tap)) * into + i);
            }
            Tile<T>::filter(taps, 1, &tall[0][x], 3);
        }
        for (int y = 0; y < S; y++) Tile<T>::filter(tall[y], 1, made + S * y, 1);
        for (int p = 0; p < P; p++) square[p][r] = made[p];
    }
    for (int p = 0; p < P; p++)
        if (backward)
            for (int r = 0; r < L; r++) store(to + p * matrix + r * next, square[p][r]);
        else
            turn(reinterpret_cast<const float*>(square[p]), L, to + p * matrix, next);
}

// All 3x3 filters as P matrices in panels.
template <int T>
const float* winograd(const float* filters, const Shape& s, bool backward) {
    const size_t k = s.into, columns = s.out, matrix = spaced(k * columns);
    const size_t out = backward ? k : columns, into = backward ? columns : k;
    float* to = filters_memory.get(Tiling<T>::P * matrix);
    in_squares(s, out, into, [&](size_t o, size_t i) {
        const size_t row = backward ? o : i, column = backward ? i : o;
        const size_t at = in_panels(row, column, k, columns), next = in_panels(row + 1, column, k, columns) - at;
        transform_filters<T>(filters, into, o, i, backward, to + at, matrix, next);
    });
    return to;
}

// G' u G of eight input and eight output channels, whose P matrices are read by u(p, row), to filters [out][3][3][in].
template <int T, typename Read>
inline void collect_filters(Read u, float* filters, size_t into, size_t o, size_t i, bool add) {
    constexpr int S = T + 2;
    vec square[9][L];
    for (int r = 0; r < L; r++) {
        vec line[S], tall[3][S], taps[3];
        for (int x = 0; x < S; x++) {
            for (int y = 0; y < S; y++) line[y] = u(y * S + x, r);
            Tile<T>::collect(line, 1, &tall[0][x], S);
        }
        for (int y = 0; y < 3; y++) {
            Tile<T>::collect(tall[y], 1, taps, 1);
            for (int x = 0; x < 3; x++) square[3 * y + x][r] = taps[x];
        }
    }
    for (int tap = 0; tap < 9; tap++) {
        float *to = filters + (o * 9 + tap) * into + i, turned[L * L];
        turn(reinterpret_cast<const float*>(square[tap]), L, turned, L);
        for (int r = 0; r < L; r++, to += 9 * into) store(to, add ? load(to) + load(turned + r * L) : load(turned + r * L));
    }
}

// --- any other convolution: patches side by side ---------------------------------------------------

// One dimension of a convolution: result i lies at first + every i, and reads `taps` pixels from start + step i on.
struct Reach {
    int64_t count, first, every, start, step, taps;
};

Reach reach_forward(int64_t size, const Shape& s) {
    return {(size + 2 * s.padding - s.side) / s.stride + 1, 0, 1, -s.padding, s.stride, s.side};
}

// The gradient of the pixels that lie alike towards the stride reads every tap of one phase, the last tap first.
Reach reach_backward(int64_t size, const Shape& s, int64_t phase) {
    int64_t taps = phase < s.side ? (s.side - 1 - phase) / s.stride + 1 : 0;
    int64_t first = ((phase - s.padding) % s.stride + s.stride) % s.stride;
    int64_t count = first < size ? (size - first + s.stride - 1) / s.stride : 0;
    return {count, first, s.stride, (first + s.padding - phase) / s.stride - (taps - 1), 1, taps};
}

// The patches of a map that the results of two reaches read.
struct Patches {
    Reach down, right;
    int64_t height, width;  // of the map that is read
    size_t channels;

    size_t length() const { return down.taps * right.taps * channels; }
    size_t results() const { return down.count * right.count; }
    size_t across() const { return right.count && right.taps ? right.step * (right.count - 1) + right.taps : 0; }
    // Rows of results whose pixels fit into the second cache.
    int64_t band() const {
        if (!across()) return down.count;
        int64_t rows = int64_t((channels >= 256 ? 131072 : 32768) / (across() * channels)) - down.taps;
        return rows > 0 ? rows / down.step + 1 : 1;
    }
    size_t room(int64_t rows) const { return (down.step * (rows - 1) + down.taps) * across() * channels + L; }

    // What the rows of results first to last read, as it comes in, with zeros around it.
    void fill(const Source& s, size_t image, int64_t first, int64_t last, float* to) const {
        const size_t row = across() * channels;
        const int64_t left = right.start < 0 ? -right.start : 0, from = right.start < 0 ? 0 : right.start;
        const int64_t end = right.start + int64_t(across()) < width ? right.start + int64_t(across()) : width;
        for (int64_t i = 0; i < down.step * (last - first - 1) + down.taps; i++, to += row) {
            int64_t y = down.start + down.step * first + i;
            if (y < 0 || y >= height || end <= from) {
                memset(to, 0, row * sizeof(float));
                continue;
            }
            memset(to, 0, left * channels * sizeof(float));
            fetch(s, (image * height + y) * width + from, end - from, channels, to + left * channels);
            size_t done = (left + end - from) * channels;
            memset(to + done, 0, (row - done) * sizeof(float));
        }
    }

    // The patches of `count` results from number `first` of a band on; a few floats behind the last are written too.
    void gather(const float* band, size_t first, size_t count, float* to) const {
        const size_t line = right.taps * channels, row = across() * channels;
        size_t y = first / right.count, x = first % right.count;
        for (size_t i = 0; i < count; i++, to += length()) {
            const float* from = band + down.step * y * row + right.step * x * channels;
            float* at = to;
            for (int64_t tap = 0; tap < down.taps; tap++, at += line, from += row)
                for (size_t c = 0; c < line; c += L) store(at + c, load(from + c));
            if (++x == size_t(right.count)) x = 0, y++;
        }
    }
};

// How the results of patches are cut into pieces of work: bands of an image, or several small images.
struct Cut {
    int64_t rows, band, bands, images, pieces;
    size_t group;  // patches that are multiplied at once
    Cut(const Shape& s, int64_t rows, int64_t columns, int64_t band, size_t length) : rows(rows), band(std::min(band, rows)) {
        bands = (rows + this->band - 1) / this->band;
        const size_t most = length * s.out >= 1 << 18 ? 2 * BLOCK : BLOCK;
        images = bands > 1 ? 1 : images_together(s, most, rows * columns);
        pieces = bands > 1 ? s.n * bands : (s.n + images - 1) / images;
        const size_t all = images * this->band * columns, groups = (all + most - 1) / most;
        group = (all + groups - 1) / groups;
    }
};

// Where a result lies: its image, and its number in the band.
struct Place {
    size_t image, number;
};

// done(patches, how many, place of the first) for the patches of a piece, group by group.
template <typename Done>
void gather_piece(const Shape& s, const Cut& cut, const Patches& patches, const Source& source, int64_t piece, Done done) {
    const int64_t first = piece % cut.bands * cut.band, last = std::min(first + cut.band, patches.down.count);
    if (first >= last) return;
    const size_t length = patches.length(), results = (last - first) * patches.right.count;
    const size_t image = cut.bands > 1 ? piece / cut.bands : piece * cut.images;
    float* band = padded_memory.get(patches.room(cut.band));
    float* to = left_memory.get(cut.group * length + L);
    size_t have = 0;
    Place begin{image, 0};
    for (size_t i = image; i < image + cut.images && i < size_t(s.n); i++) {
        patches.fill(source, i, first, last, band);
        for (size_t at = 0; at < results;) {
            if (!have) begin = {i, at};
            const size_t count = std::min(results - at, cut.group - have);
            patches.gather(band, at, count, to + have * length);
            at += count, have += count;
            if (have < cut.group) continue;
            done(to, have, begin);
            have = 0;
        }
    }
    if (have) done(to, have, begin);
}

// Filters [out][side][side][in] as the matrix by which the patches of a phase are multiplied, for the input's gradient.
void pack_phase(const Shape& s, const float* filters, const Patches& patches, int64_t down, int64_t right, float* to) {
    const size_t rows = patches.length(), columns = s.out, channels = s.into;
    parallel(rows * columns < 4096 ? 1 : s.threads, rows, SHARES, [&](int64_t, int64_t from, int64_t until) {
        for (size_t row = from; row < size_t(until); row++) {
            size_t tap = row / channels, o = row % channels;
            size_t y = down + s.stride * (patches.down.taps - 1 - tap / patches.right.taps);
            size_t x = right + s.stride * (patches.right.taps - 1 - tap % patches.right.taps);
            const float* w = filters + ((o * s.side + y) * s.side + x) * columns;
            for (size_t c = 0; c < columns; c += L) store(to + in_panels(row, c, rows, columns), load(w + c));
        }
    });
}

// Matrices of each share, added up in order; fewer shares where the matrices are large beside the maps.
class Parts {
  public:
    Parts(size_t size, size_t pixels) : shares(count_shares(size, pixels)), size(size), all(parts_memory.get(shares * size)) {}
    static int64_t count_shares(size_t size, size_t pixels) {
        return size * SHARES <= MOST && pixels >= SHARES * LEAST ? SHARES : FEWEST;
    }
    float* of(int64_t share) {
        float* part = all + share * size;
        if (!used[share]) memset(part, 0, size * sizeof(float));
        used[share] = true;
        return part;
    }
    vec sum(size_t at) const {
        vec found{};
        for (int64_t share = 0; share < shares; share++)
            if (used[share]) found += load(all + share * size + at);
        return found;
    }
    const int64_t shares;

  private:
    static constexpr size_t MOST = 1 << 20;  // floats of all matrices
    static constexpr size_t LEAST = 256;     // pixels of a share
    static constexpr int64_t FEWEST = 4;
    size_t size;
    float* all;
    bool used[SHARES] = {};
};

// The gradient of 1x1 filters [out][in] from its parts.
void collect_pointwise(const Shape& s, const Parts& parts, float* filters) {
    in_squares(s, s.into, s.out, [&](size_t i, size_t o) {
        vec square[L];
        for (int r = 0; r < L; r++) square[r] = parts.sum((i + r) * s.out + o);
        turn(reinterpret_cast<const float*>(square), L, filters + o * s.into + i, s.into);
    });
}

// --- 3x3 by tiles of TxT pixels ---------------------------------------------------------------------

template <int T>
void convolve_3x3(const Shape& s, const Source& source, const float* weight, bool backward, const Sink& sink) {
    constexpr int P = Tiling<T>::P;
    const Tiling<T> t(s);
    const float* filters = winograd<T>(weight, s, backward);
    Sums sums(sink, s.out);
    const size_t matrix = spaced(s.into * s.out), left = spaced(t.group * s.into), right = spaced(t.group * s.out);
    with_sink(sink, [&](auto end, auto summed) {
        parallel(s.threads, t.pieces, SHARES, [&](int64_t share, int64_t from, int64_t to) {
            float* band = padded_memory.get(t.rim() * s.into);
            float* in = left_memory.get(P * left);
            float* out = right_memory.get(P * right);
            float* part = sums.begin();
            auto fill_band = [&](size_t image, size_t first, size_t last) {
                fill(t, source, image, first, last, s.into, band);
            };
            auto take = [&](const Run& run, size_t at) { transform_in(t, band, run, s.into, in + at * s.into); };
            auto done = [&](size_t count, const std::vector<Run>& runs) {
                for (int p = 0; p < P; p++)
                    multiply(count, in + p * left, s.into, filters + p * matrix, s.out, out + p * right);
                const float* made = out;
                for (const Run& run : runs) {
                    transform_out<end(), summed()>(t, sink, run, {0, size_t(s.out), size_t(s.out)}, made, part);
                    made += run.count * s.out;
                }
                if (summed()) sums.piece_done(share, part);
            };
            for (int64_t piece = from; piece < to; piece++) in_groups(t, s, piece, fill_band, take, done);
        });
    });
    sums.finish();
}

template <int T>
void find_3x3_filters_gradient(const Shape& s, const Source& source, const Source& gradient, float* filters) {
    constexpr int S = T + 2, P = S * S;
    const Tiling<T> t(s);
    const size_t matrix = spaced(s.into * s.out), left = spaced(t.group * s.into), right = spaced(t.group * s.out);
    Parts parts(P * matrix, s.n * s.height * s.width);
    parallel(s.threads, t.pieces, parts.shares, [&](int64_t share, int64_t from, int64_t to) {
        float* band = padded_memory.get(t.rim() * (s.into + s.out));
        float* band_out = band + t.rim() * s.into;
        float* in = left_memory.get(P * left);
        float* out = right_memory.get(P * right);
        float* mine = parts.of(share);
        auto fill_bands = [&](size_t image, size_t first, size_t last) {
            fill(t, source, image, first, last, s.into, band);
            fill(t, gradient, image, first, last, s.out, band_out);
        };
        auto take = [&](const Run& run, size_t at) {
            transform_in(t, band, run, s.into, in + at * s.into);
            transform_gradient(t, band_out, run, s.out, out + at * s.out);
        };
        auto done = [&](size_t count, const std::vector<Run>&) {
            for (int p = 0; p < P; p++)
                add_outer(count, in + p * left, s.into, s.into, out + p * right, s.out, mine + p * matrix);
        };
        for (int64_t piece = from; piece < to; piece++) in_groups(t, s, piece, fill_bands, take, done);
    });
    in_squares(s, s.into, s.out, [&](size_t i, size_t o) {
        auto read = [&](size_t p, size_t r) { return parts.sum(p * matrix + (i + r) * s.out + o); };
        collect_filters<T>(read, filters, s.into, o, i, false);
    });
}

// --- 3x3 with more filters than pixels ----------------------------------------------------------------

// Where the filters are larger than the maps, all tiles of some images are transformed first, and the threads share the
// channels: each transforms filters where it uses them, and they never lie in memory as a whole.
constexpr size_t PANEL = 2 * L;  // channels

bool has_many_filters(const Shape& s, int64_t least) {
    const bool small = s.height * s.width <= 28 * 28 || (s.into * s.out >= 1 << 19 && s.n * s.height * s.width <= 64 * 64);
    return s.into % PANEL == 0 && s.out % PANEL == 0 && s.into * s.out >= least && small;
}

constexpr size_t CACHED = 3 << 20;  // floats that fit into the third cache

// Images whose transformed tiles fit into the third cache.
template <int T>
size_t count_images(const Shape& s, size_t tiles) {
    const size_t most = CACHED / (Tiling<T>::P * tiles * (s.into + s.out));
    return std::max<size_t>(1, std::min<size_t>(most, s.n));
}

// A map's tiles as matrices, of channels from..from + PANEL on [tiles][PANEL], all images behind each other.
template <int T, typename Transform>
void transform_images(const Shape& s, const Tiling<T>& t, const Source& source, size_t channels, size_t first, size_t images,
                      Transform transform) {
    parallel(s.threads, images * t.bands, images * t.bands, [&](int64_t piece, int64_t, int64_t) {
        const size_t row = piece % t.bands * t.band, last = std::min(row + t.band, t.rows);
        float* band = padded_memory.get(t.rim() * channels);
        fill(t, source, first + piece / t.bands, row, last, channels, band);
        transform(band, piece / t.bands * t.rows * t.columns + row * t.columns, (last - row) * t.columns);
    });
}

template <int T>
void convolve_by_channels(const Shape& s, const Source& source, const float* weight, bool backward, const Sink& sink) {
    constexpr int P = Tiling<T>::P;
    Tiling<T> t(s);
    const size_t tiles = t.rows * t.columns, together = count_images<T>(s, tiles), k = s.into;
    t.group = together * tiles;
    const size_t left = spaced(t.group * k), right = spaced(t.group * PANEL);
    float* in = filters_memory.get(P * left);
    std::vector<double> sums(sink.sums ? 2 * s.out : 0);
    for (size_t first = 0; first < size_t(s.n); first += together) {
        const size_t images = std::min(together, s.n - first), count = images * tiles;
        transform_images(s, t, source, k, first, images, [&](const float* band, size_t at, size_t some) {
            transform_in(t, band, {0, 0, 0, some}, k, in + at * k);
        });
        with_sink(sink, [&](auto end, auto summed) {
            parallel(s.threads, s.out / PANEL, s.out / PANEL, [&](int64_t panel, int64_t, int64_t) {
                const size_t c = panel * PANEL;
                float* out = right_memory.get(P * right);
                for (size_t from = 0; from < k; from += DEPTH) {
                    const size_t deep = std::min(DEPTH, k - from), matrix = spaced(deep * PANEL);
                    float* filters = left_memory.get(P * matrix);
                    for (size_t row = 0; row < deep; row += L)
                        for (size_t column = 0; column < PANEL; column += L) {
                            float* to = filters + row * PANEL + column;
                            if (backward) transform_filters<T>(weight, s.out, from + row, c + column, true, to, matrix, PANEL);
                            else transform_filters<T>(weight, k, c + column, from + row, false, to, matrix, PANEL);
                        }
                    for (int p = 0; p < P; p++)
                        multiply_rows<wide, 2 * L / W>(count, in + p * left + from, k, deep, filters + p * matrix, 0, PANEL,
                                                       out + p * right, from);
                }
                for (size_t i = 0; i < images; i++) {
                    float part[2 * PANEL] = {};
                    transform_out<end(), summed()>(t, sink, {first + i, 0, 0, tiles}, {c, PANEL, size_t(s.out)},
                                                   out + i * tiles * PANEL, part);
                    for (size_t j = 0; summed() && j < PANEL; j++)
                        sums[c + j] += part[j], sums[s.out + c + j] += part[PANEL + j];
                }
            });
        });
    }
    if (sink.sums) std::copy(sums.begin(), sums.end(), sink.sums);
}

// Tiles in panels of channels, [PANEL channels][tiles].
template <int T, int FROM, typename Transform>
void transform_in_panels(const Tiling<T>& t, const float* corner, size_t at, size_t count, size_t channels, Transform transform,
                         float* to) {
    const size_t across = t.across() * channels, step = spaced(t.group * channels);
    Walk tile(t.columns, 0);
    for (size_t i = at; i < at + count; i++, tile.next()) {
        const float* from = corner + (tile.row * across + tile.column * channels) * T;
        over_vectors(channels, [&](size_t c, auto zero) {
            using V = decltype(zero);
            transform_both_ways<FROM, T + 2, V>(
                [&](int y, int x) { return load_as<V>(from + y * across + x * channels + c); }, transform,
                to + (c / PANEL * t.group + i) * PANEL + c % PANEL, step);
        });
    }
}

template <int T>
void find_filters_gradient_by_channels(const Shape& s, const Source& source, const Source& gradient, float* filters) {
    constexpr int P = Tiling<T>::P;
    Tiling<T> t(s);
    const size_t tiles = t.rows * t.columns, together = count_images<T>(s, tiles);
    t.group = together * tiles;
    const size_t left = spaced(t.group * s.into), right = spaced(t.group * s.out), panel = t.group * PANEL;
    float *in = filters_memory.get(P * (left + right)), *out = in + P * left;
    for (size_t first = 0; first < size_t(s.n); first += together) {
        const size_t images = std::min(together, s.n - first);
        transform_images(s, t, source, s.into, first, images, [&](const float* band, size_t at, size_t some) {
            transform_in_panels<T, T + 2>(t, band, at, some, s.into, [](auto... line) { Tile<T>::in(line...); }, in);
        });
        transform_images(s, t, gradient, s.out, first, images, [&](const float* band, size_t at, size_t some) {
            const float* corner = band + (t.across() + 1) * s.out;
            transform_in_panels<T, T>(t, corner, at, some, s.out, [](auto... line) { Tile<T>::spread(line...); }, out);
        });
        parallel(s.threads, s.into / PANEL, s.into / PANEL, [&](int64_t row, int64_t, int64_t) {
            float* made = right_memory.get(P * PANEL * PANEL);
            for (int64_t column = 0; column < s.out / int64_t(PANEL); column++) {
                memset(made, 0, P * PANEL * PANEL * sizeof(float));
                for (int p = 0; p < P; p++)
                    over_blocks(PANEL, [&](size_t r, auto height) {
                        outer_block<wide, height(), 2 * L / W>(images * tiles, in + p * left + row * panel + r, PANEL,
                                                               out + p * right + column * panel, PANEL, 0,
                                                               made + (p * PANEL + r) * PANEL, PANEL);
                    });
                for (size_t i = 0; i < PANEL; i += L)
                    for (size_t o = 0; o < PANEL; o += L) {
                        auto read = [&](size_t p, size_t r) { return load(made + (p * PANEL + i + r) * PANEL + o); };
                        collect_filters<T>(read, filters, s.into, column * PANEL + o, row * PANEL + i, first > 0);
                    }
            }
        });
    }
}

// --- 3x3 whose gradient of the filters leaves the second cache -------------------------------------------

// The P products of all shares of work would be written again for each group of tiles. So the tiles of some images are
// transformed first, then the threads share the P products, each of which stays in the second cache until it is done.
template <int T>
bool takes_products(const Shape& s) {
    const Tiling<T> t(s);
    return s.into * s.out >= 1 << 13 && Tiling<T>::P * t.rows * t.columns * (s.into + s.out) <= CACHED;
}

template <int T>
void find_filters_gradient_by_products(const Shape& s, const Source& source, const Source& gradient, float* filters) {
    constexpr int P = Tiling<T>::P;
    Tiling<T> t(s);
    const size_t tiles = t.rows * t.columns, most = count_images<T>(s, tiles), rounds = (s.n + most - 1) / most;
    const size_t together = (s.n + rounds - 1) / rounds;
    t.group = together * tiles;
    const size_t left = spaced(t.group * s.into), right = spaced(t.group * s.out), matrix = spaced(s.into * s.out);
    float *in = filters_memory.get(P * (left + right)), *out = in + P * left, *made = parts_memory.get(P * matrix);
    memset(made, 0, P * matrix * sizeof(float));
    for (size_t first = 0; first < size_t(s.n); first += together) {
        const size_t images = std::min(together, s.n - first);
        transform_images(s, t, source, s.into, first, images, [&](const float* band, size_t at, size_t some) {
            transform_in(t, band, {0, 0, 0, some}, s.into, in + at * s.into);
        });
        transform_images(s, t, gradient, s.out, first, images, [&](const float* band, size_t at, size_t some) {
            transform_gradient(t, band, {0, 0, 0, some}, s.out, out + at * s.out);
        });
        parallel(s.threads, P, P, [&](int64_t p, int64_t, int64_t) {
            add_outer(images * tiles, in + p * left, s.into, s.into, out + p * right, s.out, made + p * matrix);
        });
    }
    in_squares(s, s.into, s.out, [&](size_t i, size_t o) {
        auto read = [&](size_t p, size_t r) { return load(made + p * matrix + (i + r) * s.out + o); };
        collect_filters<T>(read, filters, s.into, o, i, false);
    });
}

// work(side of the tiles) for a 3x3 convolution.
template <typename Work>
void with_tiles(const Shape& s, Work work) {
    if (s.height > 2 && s.width > 2) work(Number<4>());
    else work(Number<2>());
}

}  // namespace

extern "C" {

// A 3x3 convolution by filters [out][3][3][in]; backward, from the gradient of its output to that of its input.
void conv3x3(const Shape* shape, const Source* source, const float* weight, int64_t backward, const Sink* sink) {
    with_tiles(*shape, [&](auto side) {
        auto convolve = has_many_filters(*shape, 1 << 17) ? convolve_by_channels<side()> : convolve_3x3<side()>;
        convolve(*shape, *source, weight, backward, *sink);
    });
}

// The gradient of 3x3 filters [out][3][3][in].
void conv3x3_filters_gradient(const Shape* shape, const Source* source, const Source* gradient, float* filters) {
    with_tiles(*shape, [&](auto side) {
        auto find = has_many_filters(*shape, 1 << 17) ? find_filters_gradient_by_channels<side()>
                    : takes_products<side()>(*shape)  ? find_filters_gradient_by_products<side()>
                                                      : find_3x3_filters_gradient<side()>;
        find(*shape, *source, *gradient, filters);
    });
}

// A 1x1 convolution by filters [out][in]; backward, from the gradient of its output to that of its input.
void conv1x1(const Shape* shape, const Source* source, const float* weight, int64_t backward, const Sink* sink) {
    const Shape s = *shape;
    const float* filters = pointwise(weight, s, backward);
    in_blocks(s, s.out, *sink, [&](auto end, auto summed, size_t at, size_t count, float* part, int64_t) {
        const float* x = block_of(*source, at, count, s.into, left_memory);
        multiply_out<end(), summed()>(*sink, at, count, x, s.into, filters, s.out, part);
    });
}

// The gradient of 1x1 filters [out][in].
void conv1x1_filters_gradient(const Shape* shape, const Source* source, const Source* gradient, float* filters) {
    const Shape s = *shape;
    const size_t pixels = s.n * s.height * s.width;
    Parts parts(s.into * s.out, pixels);
    parallel(s.threads, (pixels + BLOCK - 1) / BLOCK, parts.shares, [&](int64_t share, int64_t from, int64_t to) {
        float* mine = parts.of(share);
        for (size_t at = from * BLOCK; at < to * BLOCK && at < pixels; at += BLOCK) {
            const size_t count = std::min(BLOCK, pixels - at);
            const float* x = block_of(*source, at, count, s.into, left_memory);
            add_outer(count, x, s.into, s.into, block_of(*gradient, at, count, s.out, right_memory), s.out, mine);
        }
    });
    collect_pointwise(s, parts, filters);
}

// Both gradients of a 1x1 convolution in one pass over its maps; that of its input goes to the sink.
void conv1x1_backward(const Shape* shape, const Source* source, const Source* gradient, const float* weight, const Sink* sink,
                      float* filters) {
    const Shape s = *shape;
    Shape back = s;
    std::swap(back.into, back.out);
    const float* turned = pointwise(weight, back, true);
    Parts parts(s.into * s.out, s.n * s.height * s.width);
    auto work = [&](auto end, auto summed, size_t at, size_t count, float* part, int64_t share) {
        const float* g = block_of(*gradient, at, count, s.out, right_memory);
        const float* x = block_of(*source, at, count, s.into, left_memory);
        add_outer(count, x, s.into, s.into, g, s.out, parts.of(share));
        multiply_out<end(), summed()>(*sink, at, count, g, s.out, turned, s.into, part);
    };
    in_blocks(s, s.into, *sink, work, parts.shares);
    collect_pointwise(s, parts, filters);
}

// Any convolution by filters [out][side][side][in]; backward, from the gradient of its output to that of its input.
void conv_any(const Shape* shape, const Source* source, const float* weight, int64_t backward, const Sink* sink) {
    const Shape s = *shape;
    struct Phase {
        Patches patches;
        const float* filters;
    };
    std::vector<Phase> phases;
    float* packed = filters_memory.get(s.side * s.side * s.into * s.out);
    if (backward) {
        const int64_t height = reach_forward(s.height, s).count, width = reach_forward(s.width, s).count;
        for (int64_t down = 0; down < s.stride; down++)
            for (int64_t right = 0; right < s.stride; right++) {
                Patches patches{reach_backward(s.height, s, down), reach_backward(s.width, s, right), height, width, size_t(s.into)};
                pack_phase(s, weight, patches, down, right, packed);
                if (patches.results()) phases.push_back({patches, packed});
                packed += patches.length() * s.out;
            }
    } else {
        Patches patches{reach_forward(s.height, s), reach_forward(s.width, s), s.height, s.width, size_t(s.into)};
        pack_turned(s, weight, patches.length(), s.out, packed);
        phases.push_back({patches, packed});
    }
    const int64_t high = backward ? s.height : phases[0].patches.down.count;  // of the result
    const int64_t broad = backward ? s.width : phases[0].patches.right.count;
    int64_t rows = 0, columns = 0, band = INT64_MAX;
    size_t length = 0;
    for (const Phase& phase : phases) {
        rows = std::max(rows, phase.patches.down.count), columns = std::max(columns, phase.patches.right.count);
        band = std::min(band, phase.patches.band()), length = std::max(length, phase.patches.length());
    }
    const Cut cut(s, rows, columns, band, length);
    Sums sums(*sink, s.out);
    with_sink(*sink, [&](auto end, auto summed) {
        parallel(s.threads, cut.pieces, SHARES, [&](int64_t share, int64_t from, int64_t to) {
            float* part = sums.begin();
            float* out = right_memory.get(cut.group * s.out);
            std::vector<size_t> places(cut.group);
            for (int64_t piece = from; piece < to; piece++)
                for (const auto& [patches, filters] : phases) {
                    const Reach &down = patches.down, &right = patches.right;
                    const int64_t first = piece % cut.bands * cut.band, last = std::min(first + cut.band, down.count);
                    gather_piece(s, cut, patches, *source, piece, [&](const float* in, size_t count, Place begin) {
                        multiply(count, in, patches.length(), filters, s.out, out);
                        int64_t row = first + begin.number / right.count, column = begin.number % right.count;
                        for (size_t i = 0; i < count; i++) {
                            size_t y = down.first + down.every * row, x = right.first + right.every * column;
                            places[i] = (begin.image * high + y) * broad + x;
                            if (++column < right.count) continue;
                            column = 0;
                            if (++row == last) row = first, begin.image++;
                        }
                        write_pixels<end(), summed()>(*sink, [&](size_t i) { return places[i]; }, count, s.out, out, part);
                        if (summed()) sums.piece_done(share, part);
                    });
                }
        });
    });
    sums.finish();
}

// The gradient of any filters [out][side][side][in].
void conv_any_filters_gradient(const Shape* shape, const Source* source, const Source* gradient, float* filters) {
    const Shape s = *shape;
    const Patches patches{reach_forward(s.height, s), reach_forward(s.width, s), s.height, s.width, size_t(s.into)};
    const size_t length = patches.length();
    const int64_t rows = patches.down.count, columns = patches.right.count;
    const Cut cut(s, rows, columns, patches.band(), length);
    Parts parts(length * s.out, s.n * rows * columns);
    parallel(s.threads, cut.pieces, parts.shares, [&](int64_t share, int64_t from, int64_t to) {
        float* mine = parts.of(share);
        for (int64_t piece = from; piece < to; piece++)
            gather_piece(s, cut, patches, *source, piece, [&](const float* in, size_t count, Place begin) {
                size_t pixel = (begin.image * rows + piece % cut.bands * cut.band) * columns + begin.number;
                add_outer(count, in, length, length, block_of(*gradient, pixel, count, s.out, right_memory), s.out, mine);
            });
    });
    for (size_t row = length / L * L; row < length; row++)
        for (int64_t o = 0; o < s.out; o += L) {
            vec sum = parts.sum(row * s.out + o);
            for (int i = 0; i < L; i++) filters[(o + i) * length + row] = sum[i];
        }
    in_squares(s, length / L * L, s.out, [&](size_t row, size_t o) {
        vec square[L];
        for (int r = 0; r < L; r++) square[r] = parts.sum((row + r) * s.out + o);
        turn(reinterpret_cast<const float*>(square), L, filters + o * length + row, length);
    });
}

// A map from a source to a sink, pixel by pixel (`into` channels).
void pass(const Shape* shape, const Source* source, const Sink* sink) {
    const Shape s = *shape;
    in_blocks(s, s.into, *sink, [&](auto end, auto summed, size_t at, size_t count, float* part, int64_t) {
        const float* x = block_of(*source, at, count, s.into, left_memory);
        write_pixels<end(), summed()>(*sink, [=](size_t i) { return at + i; }, count, s.into, x, part);
    });
}

// Gates: y = (1 - g) x + g r, or with `exclusive` 0 (1 - g) x + r, with g = sigmoid(z + bias); with `relu` max(y, 0).
struct Gate {
    int64_t exclusive, relu;
    const float *z, *bias, *x, *r;
};

void gate_forward(const Shape* shape, const Gate* gate, float* y) {
    const Gate t = *gate;
    with_pixels(*shape, [&](int64_t, size_t at, size_t c) {
        vec g = sigmoid(load(t.z + at) + load(t.bias + c)), x = load(t.x + at), r = load(t.r + at);
        vec sum = x + (t.exclusive ? g * (r - x) : r - g * x);
        store(y + at, t.relu ? where_positive(sum, sum) : sum);
    });
}

// From y and its gradient those of z, x (without what comes through z) and r, and that of the bias. Without a ReLU y is not
// read; without one and with `exclusive` 0 the gradient of r is dy.
void gate_backward(const Shape* shape, const Gate* gate, const float* y, const float* dy, float* dz, float* dx, float* dr,
                   float* bias) {
    const Shape s = *shape;
    const Gate t = *gate;
    std::vector<double> rows(SHARES * s.into);
    with_pixels(s, [&](int64_t share, size_t at, size_t c) {
        vec g = sigmoid(load(t.z + at) + load(t.bias + c)), x = load(t.x + at), r = load(t.r + at), d = load(dy + at);
        if (t.relu) d = where_positive(load(y + at), d);
        vec of_z = d * (t.exclusive ? r - x : -x) * g * (1.0f - g);
        store(dz + at, of_z);
        store(dx + at, d * (1.0f - g));
        if (t.exclusive || t.relu) store(dr + at, t.exclusive ? d * g : d);
        loose_doubles* row = reinterpret_cast<loose_doubles*>(&rows[share * s.into + c]);
        *row += __builtin_convertvector(of_z, doubles);
    });
    for (int64_t c = 0; c < s.into; c++) {
        double sum = 0;
        for (int64_t share = 0; share < SHARES; share++) sum += rows[share * s.into + c];
        bias[c] = float(sum);
    }
}

// Option A: h is every `stride`-th pixel of x, and its channels from `padding` on; all others are 0.
void pad_forward(const Shape* shape, const float* x, float* h) {
    const Shape s = *shape;
    const int64_t high = (s.height - 1) / s.stride + 1, wide = (s.width - 1) / s.stride + 1;
    parallel(s.threads, s.n * high, SHARES, [&](int64_t, int64_t from, int64_t to) {
        memset(h + from * wide * s.out, 0, (to - from) * wide * s.out * sizeof(float));
        for (int64_t row = from; row < to; row++)
            for (int64_t column = 0; column < wide; column++) {
                int64_t pixel = (row / high * s.height + row % high * s.stride) * s.width + column * s.stride;
                memcpy(h + (row * wide + column) * s.out + s.padding, x + pixel * s.into, s.into * sizeof(float));
            }
    });
}

// The gradient of h is added to that of x.
void pad_backward(const Shape* shape, const float* dh, float* dx) {
    const Shape s = *shape;
    const int64_t high = (s.height - 1) / s.stride + 1, wide = (s.width - 1) / s.stride + 1;
    parallel(s.threads, s.n * high, SHARES, [&](int64_t, int64_t from, int64_t to) {
        for (int64_t row = from; row < to; row++)
            for (int64_t column = 0; column < wide; column++) {
                int64_t pixel = (row / high * s.height + row % high * s.stride) * s.width + column * s.stride;
                const float* g = dh + (row * wide + column) * s.out + s.padding;
                for (int64_t c = 0; c < s.into; c += L) {
                    float* at = dx + pixel * s.into + c;
                    store(at, load(at) + load(g + c));
                }
            }
    });
}

// Max pooling of `into` channels. `from` keeps which pixel of its window each result is: the first of the largest, or the
// last that is no number, as PyTorch has it.
void pool_forward(const Shape* shape, const float* x, float* y, uint8_t* from) {
    const Shape s = *shape;
    const int64_t high = reach_forward(s.height, s).count, broad = reach_forward(s.width, s).count;
    parallel(s.threads, s.n * high, SHARES, [&](int64_t, int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++)
            for (int64_t column = 0; column < broad; column++) {
                const int64_t top = row % high * s.stride - s.padding, left = column * s.stride - s.padding;
                const int64_t above = std::max<int64_t>(0, -top), below = std::min(s.side, s.height - top);
                const int64_t before = std::max<int64_t>(0, -left), behind = std::min(s.side, s.width - left);
                const float* corner = x + ((row / high * s.height + top) * s.width + left) * s.into;
                const size_t to = (row * broad + column) * s.into;
                for (int64_t c = 0; c < s.into; c += L) {
                    vec largest = vec{} - INFINITY;
                    ints place = ints{} + int32_t(above * s.side + before);
                    for (int64_t i = above; i < below; i++)
                        for (int64_t j = before; j < behind; j++) {
                            const vec v = load(corner + (i * s.width + j) * s.into + c);
                            const ints takes = (v > largest) | (v != v);
                            largest = takes ? v : largest;
                            place = takes ? ints{} + int32_t(i * s.side + j) : place;
                        }
                    store(y + to + c, largest);
                    *reinterpret_cast<bytes*>(from + to + c) = __builtin_convertvector(place, bytes);
                }
            }
    });
}

// Each pixel's gradient is the sum over the windows in which it was the largest, in their order.
void pool_backward(const Shape* shape, const float* dy, const uint8_t* from, float* dx) {
    const Shape s = *shape;
    const int64_t high = reach_forward(s.height, s).count, broad = reach_forward(s.width, s).count;
    auto first_window = [&](int64_t at) { return at < s.side ? 0 : (at - s.side) / s.stride + 1; };
    parallel(s.threads, s.n * s.height, SHARES, [&](int64_t, int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++)
            for (int64_t column = 0; column < s.width; column++) {
                const int64_t y = row % s.height + s.padding, x = column + s.padding, image = row / s.height;
                const int64_t bottom = std::min(high - 1, y / s.stride), right = std::min(broad - 1, x / s.stride);
                for (int64_t c = 0; c < s.into; c += L) {
                    vec sum{};
                    for (int64_t i = first_window(y); i <= bottom; i++)
                        for (int64_t j = first_window(x); j <= right; j++) {
                            const size_t at = ((image * high + i) * broad + j) * s.into + c;
                            const ints place = __builtin_convertvector(*reinterpret_cast<const bytes*>(from + at), ints);
                            const int32_t mine = int32_t((y - i * s.stride) * s.side + x - j * s.stride);
                            sum += place == mine ? load(dy + at) : vec{};
                        }
                    store(dx + (row * s.width + column) * s.into + c, sum);
                }
            }
    });
}

// Class scores y[n][out] = x[n][into] w[out][into]' + b. `out` is any number.
void linear_forward(const Shape* shape, const float* x, const float* w, const float* b, float* y) {
    const Shape s = *shape;
    const size_t columns = (s.out + L - 1) / L * L, whole = s.out / L * L, k = s.into;
    float* filters = filters_memory.get(k * columns);
    memset(filters, 0, k * columns * sizeof(float));
    in_squares(s, whole, k, [&](size_t o, size_t i) {
        float* at = filters + in_panels(i, o, k, columns);
        turn(w + o * k + i, k, at, in_panels(i + 1, o, k, columns) - in_panels(i, o, k, columns));
    });
    for (size_t o = whole; o < size_t(s.out); o++)
        for (size_t i = 0; i < k; i++) filters[in_panels(i, o, k, columns)] = w[o * k + i];
    parallel(s.threads, s.n, SHARES, [&](int64_t, int64_t from, int64_t to) {
        float* scores = right_memory.get(BLOCK * columns);
        for (int64_t at = from; at < to; at += BLOCK) {
            const int64_t count = std::min(int64_t(BLOCK), to - at);
            multiply(count, x + at * k, k, filters, columns, scores);
            for (int64_t i = 0; i < count; i++)
                for (int64_t o = 0; o < s.out; o++) y[(at + i) * s.out + o] = scores[i * columns + o] + b[o];
        }
    });
}

// From the gradient of the scores those of x, w and b.
void linear_backward(const Shape* shape, const float* x, const float* w, const float* g, float* dx, float* dw, float* db) {
    const Shape s = *shape;
    const size_t rows = s.out, columns = s.into;
    float* filters = filters_memory.get(rows * columns);
    for (size_t o = 0; o < rows; o++)
        for (size_t i = 0; i < columns; i += L) store(filters + in_panels(o, i, rows, columns), load(w + o * columns + i));
    parallel(s.threads, s.n, SHARES, [&](int64_t, int64_t from, int64_t to) {
        multiply(to - from, g + from * rows, rows, filters, columns, dx + from * columns);
    });
    parallel(s.threads, rows, SHARES, [&](int64_t, int64_t from, int64_t to) {
        memset(dw + from * columns, 0, (to - from) * columns * sizeof(float));
        add_outer(s.n, g + from, rows, to - from, x, columns, dw + from * columns);
    });
    for (size_t o = 0; o < rows; o++) {
        double sum = 0;
        for (int64_t i = 0; i < s.n; i++) sum += g[i * rows + o];
        db[o] = float(sum);
    }
}

// c[rows][columns] = a[rows][k] b[k][columns], or `turned` b[columns][k]; columns and k are multiples of 8.
void product(const Shape* shape, const float* a, const float* b, int64_t turned, float* c) {
    const Shape s = *shape;
    const size_t rows = s.n, k = s.into, columns = s.out;
    float* panels = filters_memory.get(k * columns);
    if (turned)
        pack_turned(s, b, k, columns, panels);
    else
        for (size_t row = 0; row < k; row++)
            for (size_t i = 0; i < columns; i += L) store(panels + in_panels(row, i, k, columns), load(b + row * columns + i));
    const int64_t blocks = (rows + BLOCK - 1) / BLOCK;
    parallel(s.threads, blocks, blocks, [&](int64_t block, int64_t, int64_t) {
        const size_t first = block * BLOCK;
        multiply(std::min(BLOCK, rows - first), a + first * k, k, panels, columns, c + first * columns);
    });
}

// BN of a batch as max(a x + d, 0) wants it, from the sums of x and x x over `pixels`: the mean and the inverse of the
// deviation, then the mean rounded, a and d. Running statistics move along unless they are missing.
struct Norm {
    int64_t channels, pixels;
    double eps, momentum, times;  // what multiplies the result
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
        a[c] = float(n.times * n.gamma[c] * r), d[c] = float(n.times * (n.beta[c] - m * n.gamma[c] * r));
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
        double rest = mean[c] - float(mean[c]), k = n.times * n.gamma[c] * deviation[c];
        double scale = deviation[c] * (sums[n.channels + c] - rest * sums[c]);
        double slope = -k * deviation[c] * scale / n.pixels;
        gamma[c] = float(n.times * scale), beta[c] = float(n.times * sums[c]);
        a[c] = float(k), b[c] = float(slope), d[c] = float(-k * sums[c] / n.pixels - slope * rest);
    }
}

}  // extern "C"

#include "masks.h"
#include "units.h"
