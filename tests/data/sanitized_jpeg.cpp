// Decodes parts of the files that are given, as a program that stops at any access outside of memory and at any
// undefined operation.

#include "../../src/resnets/data/jpeg.cpp"

#include <fstream>
#include <iterator>
#include <random>
#include <vector>

int main(int count, char** paths) {
    std::mt19937 draw(0);
    const auto below = [&](int n) { return static_cast<int>(draw() % static_cast<unsigned>(n)); };
    int decoded = 0;
    for (int i = 1; i < count; i++) {
        std::ifstream file(paths[i], std::ios::binary);
        const std::vector<uint8_t> data{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
        int found[3];
        if (!jpeg_header(data.data(), data.size(), found) || found[0] > 2000 || found[1] > 2000) continue;
        for (int shrink = 1; shrink <= 8; shrink *= 2) {
            const int wide = (found[0] + shrink - 1) / shrink, high = (found[1] + shrink - 1) / shrink;
            const int width = 1 + below(wide), height = 1 + below(high), side = 1 + below(100);
            const int left = below(wide - width + 1), top = below(high - height + 1);
            std::vector<uint8_t> part(static_cast<std::size_t>(3 * width * height));
            std::vector<uint8_t> square(static_cast<std::size_t>(3 * side * side));
            const double across = static_cast<double>(width) / side, down = (height - 0.4 * (height > 1)) / side;
            decoded += jpeg_part(data.data(), data.size(), shrink, wide, high, left, top, width, height, part.data());
            jpeg_square(data.data(), data.size(), shrink, wide, high, left, top, width, height, across, down, side, below(2),
                        square.data());
        }
    }
    std::printf("%d\n", decoded);
}
