// Scale rows of RGB pixels as they come, by an antialiased bilinear filter: first across, then down. The arithmetic is
// torch's for bytes (weights of 16 bits, rounded after each direction), so the pixels are the same to the bit.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE4_1__
#include <immintrin.h>
#endif

namespace resize {

#define APART __attribute__((noinline))  // not in a function that calls setjmp, which keeps nothing in registers

constexpr int BEHIND = 8;

// Each output pixel is the sum of `taps` pixels from `start` on, times its weights, divided by 2^precision.
struct Filter {
    int taps, precision;
    int* start;
    int16_t* weights;  // `taps` of each output pixel

    // `scale` is the number of input pixels of an output pixel. `allocate(bytes)` gives memory.
    template <typename Allocate>
    Filter(int in, int out, double scale, Allocate allocate) {
        if (in == out) scale = 1;  // torch copies then
        const double support = std::max(scale, 1.0);
        const int most = std::min(2 * static_cast<int>(std::ceil(support)) + 1, in);
        const auto memory = [&](std::size_t each) { return allocate(static_cast<std::size_t>(out) * each); };
        auto* exact = static_cast<double*>(memory(sizeof(double) * static_cast<std::size_t>(most)));
        auto* count = static_cast<int*>(memory(sizeof(int)));
        start = static_cast<int*>(memory(sizeof(int)));
        double largest = 0;
        taps = 1;
        for (int i = 0; i < out; i++) {
            const double centre = scale * (i + 0.5);
            start[i] = std::max(static_cast<int>(centre - support + 0.5), 0);
            count[i] = std::min(std::max(std::min(static_cast<int>(centre + support + 0.5), in) - start[i], 0), most);
            largest = std::max(largest, weigh(exact + i * most, count[i], start[i] - centre + 0.5, 1 / support));
            taps = std::max(taps, count[i]);
        }
        taps += taps % 2;
        for (precision = 0; precision < 22; precision++)
            if (static_cast<int>(0.5 + largest * (1 << (precision + 1))) >= 1 << 15) break;
        weights = static_cast<int16_t*>(memory(sizeof(int16_t) * static_cast<std::size_t>(taps)));
        std::memset(weights, 0, sizeof(int16_t) * static_cast<std::size_t>(taps * out));
        for (int i = 0; i < out; i++) {
            const int moved = std::min(std::max(start[i] + taps - in, 0), start[i]);  // so that taps lie in the image
            start[i] -= moved;
            for (int j = 0; j < count[i]; j++)
                weights[i * taps + moved + j] = static_cast<int16_t>(0.5 + exact[i * most + j] * (1 << precision));
        }
    }

   private:
    // The weights of pixels at these distances, whose sum is 1; returns the largest.
    static double weigh(double* weights, int count, double first, double narrower) {
        double sum = 0, largest = 0;
        for (int j = 0; j < count; j++) sum += weights[j] = std::max(1 - std::abs((j + first) * narrower), 0.0);
        for (int j = 0; j < count && sum != 0; j++) largest = std::max(largest, weights[j] /= sum);
        return largest;
    }
};

// Scale a row of RGB pixels. Reads up to BEHIND bytes behind it, and writes one byte more.
template <int TAPS>
APART void scale_across(const uint8_t* from, const Filter& filter, int side, bool mirrored, uint8_t* to) {
    const int taps = TAPS ? TAPS : filter.taps, precision = filter.precision;
    for (int x = 0; x < side; x++, to += 3) {
        const int i = mirrored ? side - 1 - x : x;
        const uint8_t* pixel = from + 3 * filter.start[i];
        const int16_t* weight = filter.weights + i * taps;
#ifdef __SSE4_1__
        // Two pixels at a time: their reds side by side, their greens, their blues.
        const __m128i two = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
        __m128i sum = _mm_set1_epi32(1 << precision >> 1);
        for (int j = 0; j < taps; j += 2) {
            int32_t both;
            std::memcpy(&both, weight + j, 4);
            const __m128i pixels = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixel + 3 * j));
            sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_shuffle_epi8(pixels, two), _mm_set1_epi32(both)));
        }
        sum = _mm_srl_epi32(sum, _mm_cvtsi32_si128(precision));
        sum = _mm_packus_epi32(sum, sum);
        const int32_t rgb = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        std::memcpy(to, &rgb, 4);
#else
        for (int c = 0; c < 3; c++) {
            int32_t sum = 1 << precision >> 1;
            for (int j = 0; j < taps; j++) sum += pixel[3 * j + c] * weight[j];
            to[c] = static_cast<uint8_t>(std::min(sum >> precision, 255));
        }
#endif
    }
}

// One row of bytes from several.
template <int TAPS>
APART void scale_down(const uint8_t* const* from, const int16_t* weights, const Filter& filter, int width,
                      uint8_t* __restrict to) {
    const int taps = TAPS ? TAPS : filter.taps, precision = filter.precision;
    for (int x = 0; x < width; x++) {
        int32_t sum = 1 << precision >> 1;
        for (int j = 0; j < taps; j++) sum += from[j][x] * weights[j];
        to[x] = static_cast<uint8_t>(std::min(sum >> precision, 255));
    }
}

// The usual numbers of taps are constants, so that their loops vanish.
#define BY_TAPS(function, taps, ...)                 \
    switch (taps) {                                  \
        case 2: return function<2>(__VA_ARGS__);     \
        case 4: return function<4>(__VA_ARGS__);     \
        case 6: return function<6>(__VA_ARGS__);     \
        default: return function<0>(__VA_ARGS__);    \
    }

// Takes the rows of a picture from top to bottom, and writes a square of side x side pixels.
class Square {
   public:
    template <typename Allocate>
    Square(const Filter& across, const Filter& down, int height, int side, bool mirrored, uint8_t* out, Allocate memory)
        : across(across), down(down), height(height), side(side), mirrored(mirrored), out(out) {
        const auto row = static_cast<std::size_t>(3 * side + 1), rows = static_cast<std::size_t>(down.taps);
        kept = static_cast<uint8_t*>(memory(row * rows));
        ordered = static_cast<const uint8_t**>(memory(sizeof(uint8_t*) * rows));
    }

    // The next row; one byte behind it must be readable.
    void add(const uint8_t* pixels) {
        scale_row(pixels, row_at(added++));
        for (; y < side && std::min(down.start[y] + down.taps, height) <= added; y++) {
            for (int j = 0; j < down.taps; j++) ordered[j] = row_at(down.start[y] + j);
            join_rows(out + static_cast<std::size_t>(y) * 3 * side);
        }
    }

   private:
    uint8_t* row_at(int y) { return kept + (y % down.taps) * (3 * side + 1); }
    void scale_row(const uint8_t* from, uint8_t* to) {
        BY_TAPS(scale_across, across.taps, from, across, side, mirrored, to)
    }
    void join_rows(uint8_t* to) {
        BY_TAPS(scale_down, down.taps, ordered, down.weights + y * down.taps, down, 3 * side, to)
    }

    Filter across, down;
    int height, side, added = 0, y = 0;
    bool mirrored;
    uint8_t *out, *kept;  // the last rows
    const uint8_t** ordered;
};

}  // namespace resize
