// RoI pooling, RoI align and non-maximum suppression on a CPU.
//
// Maps lie as (picture, row, column, channel). Whatever the number of threads, each number is the sum of the same terms
// in the same order: forward passes share out regions, backward passes share out channels and go through the regions in
// order.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// work(share) for all shares, by this thread and up to threads - 1 others.
template <typename Work>
void share_out(int64_t threads, int64_t shares, Work work) {
    std::atomic<int64_t> next{0};
    auto take = [&] {
        for (int64_t share; (share = next++) < shares;) work(share);
    };
    std::vector<std::thread> helpers;
    try {
        for (int64_t i = 1; i < std::min(threads, shares); i++) helpers.emplace_back(take);
    } catch (const std::system_error&) {  // no more threads: those that run do the work
    }
    take();
    for (std::thread& helper : helpers) helper.join();
}

struct Map {
    int64_t channels, height, width;
};

// A region: the number of its picture, then left, top, right and bottom in pixels of the picture.
using Region = const float*;

// --- RoI pooling: the largest value of each bin -----------------------------------------------

// The rows or columns of a bin: [first, last) of `length` pixels.
struct Span {
    int64_t first, last;
};

Span find_bin(int64_t start, int64_t cells, int64_t bin, int64_t bins, int64_t length) {
    // In float, as Caffe and ONNX Runtime do: now and then a bin is one pixel larger than in exact numbers.
    const float size = static_cast<float>(cells) / static_cast<float>(bins);
    const auto first = static_cast<int64_t>(std::floor(static_cast<float>(bin) * size));
    const auto last = static_cast<int64_t>(std::ceil(static_cast<float>(bin + 1) * size));
    return {std::clamp<int64_t>(first + start, 0, length), std::clamp<int64_t>(last + start, 0, length)};
}

struct Cells {
    int64_t left, top, width, height;  // of a region, in pixels of the map
};

Cells find_cells(Region region, float scale) {
    const auto at = [&](int i) { return static_cast<int64_t>(std::round(region[i] * scale)); };
    return {at(1), at(2), std::max<int64_t>(at(3) - at(1) + 1, 1), std::max<int64_t>(at(4) - at(2) + 1, 1)};
}

void pool_bin(const float* x, const Map& map, Span rows, Span columns, float* out, int32_t* from) {
    const int64_t channels = map.channels;
    if (rows.first >= rows.last || columns.first >= columns.last) {
        std::fill_n(out, channels, 0.0f);
        std::fill_n(from, channels, -1);
        return;
    }
    const int64_t first = rows.first * map.width + columns.first;
    std::copy_n(x + first * channels, channels, out);
    std::fill_n(from, channels, static_cast<int32_t>(first));
    for (int64_t y = rows.first; y < rows.last; y++)
        for (int64_t column = columns.first; column < columns.last; column++) {
            const auto place = static_cast<int32_t>(y * map.width + column);
            const float* pixel = x + static_cast<int64_t>(place) * channels;
            for (int64_t c = 0; c < channels; c++) {
                const bool better = (pixel[c] > out[c]) | (pixel[c] != pixel[c]);  // NaN stays NaN
                out[c] = better ? pixel[c] : out[c];
                from[c] = better ? place : from[c];
            }
        }
}

// --- RoI align: the mean of values between pixels ---------------------------------------------

struct Sample {
    int64_t place[4];
    float weight[4];
};

// The four pixels around a point and their weights; false if the point lies outside the map.
bool find_sample(float y, float x, const Map& map, Sample& sample) {
    const auto height = static_cast<float>(map.height), width = static_cast<float>(map.width);
    if (!(y >= -1 && y <= height && x >= -1 && x <= width)) return false;
    y = std::max(y, 0.0f);
    x = std::max(x, 0.0f);
    auto top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
    int64_t bottom = top + 1, right = left + 1;
    if (top >= map.height - 1) {
        top = bottom = map.height - 1;
        y = static_cast<float>(top);
    }
    if (left >= map.width - 1) {
        left = right = map.width - 1;
        x = static_cast<float>(left);
    }
    const float down = y - static_cast<float>(top), across = x - static_cast<float>(left);
    sample = {{top * map.width + left, top * map.width + right, bottom * map.width + left, bottom * map.width + right},
              {(1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across}};
    return true;
}

struct Grid {
    float left, top, wide, high;  // of a bin
    int64_t rows, columns;        // of points in a bin
};

Grid find_grid(Region region, float scale, int64_t bins, int64_t samples, bool aligned) {
    const float shift = aligned ? 0.5f : 0.0f;
    const float left = region[1] * scale - shift, top = region[2] * scale - shift;
    float width = region[3] * scale - shift - left, height = region[4] * scale - shift - top;
    if (!aligned) {
        width = std::max(width, 1.0f);
        height = std::max(height, 1.0f);
    }
    const auto count = static_cast<float>(bins);
    const auto needed = [&](float length) {
        return samples ? samples : std::max<int64_t>(0, static_cast<int64_t>(std::ceil(length / count)));
    };
    return {left, top, width / count, height / count, needed(height), needed(width)};
}

// see(sample) for each point of a bin that lies on the map, in order.
template <typename See>
void for_each_sample(const Grid& grid, const Map& map, int64_t row, int64_t column, See see) {
    Sample sample;
    for (int64_t i = 0; i < grid.rows; i++) {
        const float y = grid.top + static_cast<float>(row) * grid.high +
                        (static_cast<float>(i) + 0.5f) * grid.high / static_cast<float>(grid.rows);
        for (int64_t j = 0; j < grid.columns; j++) {
            const float x = grid.left + static_cast<float>(column) * grid.wide +
                            (static_cast<float>(j) + 0.5f) * grid.wide / static_cast<float>(grid.columns);
            if (find_sample(y, x, map, sample)) see(sample);
        }
    }
}

float count_points(const Grid& grid) { return static_cast<float>(std::max<int64_t>(grid.rows * grid.columns, 1)); }

constexpr int64_t BLOCK = 64;  // channels of a share in a backward pass

int64_t count_blocks(int64_t channels) { return (channels + BLOCK - 1) / BLOCK; }

}  // namespace

extern "C" {

// The largest value in each of size x size bins of each region, and the pixel that it comes from, -1 for an empty bin.
void pool_regions(const float* x, int64_t channels, int64_t height, int64_t width, const float* regions, int64_t count,
                  int64_t size, float scale, float* out, int32_t* from, int64_t threads) {
    const Map map{channels, height, width};
    share_out(threads, count, [&](int64_t r) {
        const Region region = regions + 5 * r;
        const Cells cells = find_cells(region, scale);
        const float* picture = x + static_cast<int64_t>(region[0]) * height * width * channels;
        for (int64_t row = 0; row < size; row++)
            for (int64_t column = 0; column < size; column++) {
                const int64_t at = ((r * size + row) * size + column) * channels;
                pool_bin(picture, map, find_bin(cells.top, cells.height, row, size, height),
                         find_bin(cells.left, cells.width, column, size, width), out + at, from + at);
            }
    });
}

// Add the gradient of each bin to that of the pixel that it comes from.
void pool_regions_backward(const float* gradient, const int32_t* from, const float* regions, int64_t count,
                           int64_t size, int64_t channels, int64_t height, int64_t width, float* into,
                           int64_t threads) {
    share_out(threads, count_blocks(channels), [&](int64_t block) {
        const int64_t first = block * BLOCK, last = std::min(first + BLOCK, channels);
        for (int64_t bin = 0; bin < count * size * size; bin++) {
            const Region region = regions + 5 * (bin / (size * size));
            float* picture = into + static_cast<int64_t>(region[0]) * height * width * channels;
            for (int64_t c = first; c < last; c++)
                if (const int64_t place = from[bin * channels + c]; place >= 0)
                    picture[place * channels + c] += gradient[bin * channels + c];
        }
    });
}

// The mean of samples x samples values between pixels, in each of size x size bins; 0 samples: one for each pixel.
void align_regions(const float* x, int64_t channels, int64_t height, int64_t width, const float* regions,
                   int64_t count, int64_t size, float scale, int64_t samples, int64_t aligned, float* out,
                   int64_t threads) {
    const Map map{channels, height, width};
    share_out(threads, count, [&](int64_t r) {
        const Region region = regions + 5 * r;
        const Grid grid = find_grid(region, scale, size, samples, aligned != 0);
        const float* picture = x + static_cast<int64_t>(region[0]) * height * width * channels;
        for (int64_t row = 0; row < size; row++)
            for (int64_t column = 0; column < size; column++) {
                float* bin = out + ((r * size + row) * size + column) * channels;
                std::fill_n(bin, channels, 0.0f);
                for_each_sample(grid, map, row, column, [&](const Sample& sample) {
                    const float *a = picture + sample.place[0] * channels, *b = picture + sample.place[1] * channels,
                                *c = picture + sample.place[2] * channels, *d = picture + sample.place[3] * channels;
                    const float *w = sample.weight;
                    for (int64_t k = 0; k < channels; k++)
                        bin[k] += w[0] * a[k] + w[1] * b[k] + w[2] * c[k] + w[3] * d[k];
                });
                const float points = count_points(grid);
                for (int64_t k = 0; k < channels; k++) bin[k] /= points;
            }
    });
}

void align_regions_backward(const float* gradient, const float* regions, int64_t count, int64_t size, float scale,
                            int64_t samples, int64_t aligned, int64_t channels, int64_t height, int64_t width,
                            float* into, int64_t threads) {
    const Map map{channels, height, width};
    share_out(threads, count_blocks(channels), [&](int64_t block) {
        const int64_t first = block * BLOCK, last = std::min(first + BLOCK, channels);
        for (int64_t r = 0; r < count; r++) {
            const Region region = regions + 5 * r;
            const Grid grid = find_grid(region, scale, size, samples, aligned != 0);
            const float points = count_points(grid);
            float* picture = into + static_cast<int64_t>(region[0]) * height * width * channels;
            for (int64_t row = 0; row < size; row++)
                for (int64_t column = 0; column < size; column++) {
                    const float* bin = gradient + ((r * size + row) * size + column) * channels;
                    for_each_sample(grid, map, row, column, [&](const Sample& sample) {
                        for (int corner = 0; corner < 4; corner++) {
                            float* pixel = picture + sample.place[corner] * channels;
                            const float weight = sample.weight[corner] / points;
                            for (int64_t c = first; c < last; c++) pixel[c] += weight * bin[c];
                        }
                    });
                }
        }
    });
}

// Of boxes in order of falling score, those that overlap no better one by more than the threshold, at most `limit`.
// Writes their numbers and returns how many there are.
int64_t suppress(const float* boxes, int64_t count, float threshold, int64_t limit, int64_t* kept) {
    std::vector<char> gone(static_cast<std::size_t>(count), 0);
    std::vector<float> areas(static_cast<std::size_t>(count));
    for (int64_t i = 0; i < count; i++) {
        const float* box = boxes + 4 * i;
        areas[static_cast<std::size_t>(i)] = (box[2] - box[0]) * (box[3] - box[1]);
    }
    int64_t found = 0;
    for (int64_t i = 0; i < count && found < limit; i++) {
        if (gone[static_cast<std::size_t>(i)]) continue;
        kept[found++] = i;
        const float* best = boxes + 4 * i;
        const float area = areas[static_cast<std::size_t>(i)];
        for (int64_t j = i + 1; j < count; j++) {
            const float* box = boxes + 4 * j;
            const float wide = std::max(std::min(best[2], box[2]) - std::max(best[0], box[0]), 0.0f);
            const float high = std::max(std::min(best[3], box[3]) - std::max(best[1], box[1]), 0.0f);
            const float both = wide * high, all = area + areas[static_cast<std::size_t>(j)] - both;
            if (both > 0 && both / all > threshold) gone[static_cast<std::size_t>(j)] = 1;
        }
    }
    return found;
}

}  // extern "C"
