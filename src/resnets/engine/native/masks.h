// Masks of dropout with PyTorch's own random numbers: its Mersenne Twister, drawn a block at a time.

#pragma once

extern "C" {

// The state of PyTorch's generator on CPUs, as torch.get_rng_state gives it; what follows it there is not read.
struct Twister {
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next;
    uint64_t words[624];
};

}  // extern "C"

namespace {

constexpr int TWISTER = 624, AHEAD = 397;

// All words of the next block, with 32 bits in use.
inline void twist(uint32_t* w) {
    auto mixed = [&](int i, int next) { return (w[i] & 0x80000000u) | (w[next] & 0x7fffffffu); };
    auto turned = [](uint32_t y) { return (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0u); };
    // In these two loops a word depends on words at least 227 places away, so the compiler can compute several at once.
    for (int i = 0; i < TWISTER - AHEAD; i++) w[i] = w[i + AHEAD] ^ turned(mixed(i, i + 1));
    for (int i = TWISTER - AHEAD; i < TWISTER - 1; i++) w[i] = w[i + AHEAD - TWISTER] ^ turned(mixed(i, i + 1));
    w[TWISTER - 1] = w[AHEAD - 1] ^ turned(mixed(TWISTER - 1, 0));
}

inline uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

}  // namespace

extern "C" {

// count numbers, 1 with the probability `keep` and else 0. Each takes two words: 53 bits that are below keep 2^53.
void draw_mask(Twister* twister, int64_t count, double keep, float* mask) {
    Twister& t = *twister;
    uint32_t words[TWISTER], drawn[TWISTER + 1];
    for (int i = 0; i < TWISTER; i++) words[i] = uint32_t(t.words[i]);
    const double limit = keep * 9007199254740992.0;
    int have = 0;  // a word whose partner is in the next block
    while (count) {
        if (t.left == 1) twist(words), t.left = TWISTER + 1, t.next = 0;
        const int ready = t.left - 1, taken = int(std::min<int64_t>(ready, 2 * count - have));
        for (int i = 0; i < taken; i++) drawn[have + i] = temper(words[t.next + i]);
        t.left -= taken, t.next += taken, have += taken;
        const int pairs = have / 2;
        for (int i = 0; i < pairs; i++) {
            const uint64_t bits = (uint64_t(drawn[2 * i]) << 32 | drawn[2 * i + 1]) & ((uint64_t(1) << 53) - 1);
            mask[i] = double(int64_t(bits)) < limit ? 1.0f : 0.0f;
        }
        mask += pairs, count -= pairs;
        drawn[0] = drawn[have - 1], have %= 2;
    }
    for (int i = 0; i < TWISTER; i++) t.words[i] = words[i];
}

}  // extern "C"
