// Read the Huffman codes of a baseline JPEG. One lookup gives up to two codes with their values, and blocks that are
// not seen are skipped. Everything that libjpeg would warn of is a failure here, so that PIL decodes the file.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace huffman {

constexpr int LOOKUP = 10;      // bits of a lookup
constexpr unsigned COUNT = 1 << LOOKUP;
constexpr int READS = 5;        // lookups for which the bits of a refill suffice: of 10 bits
constexpr int SKIPS = 2;        // and of 25 bits
constexpr int LONGEST = 16;     // bits of a code
constexpr int CELLS = 64;       // of a block
constexpr int END = 128;        // `run` of the code after which all values are zero
constexpr int UNKNOWN = 224;    // `run` where a lookup does not hold a whole code and its value
constexpr int PADDING = 4096;   // zeros behind the bits: more than a unit, which is ten blocks of 64 codes of 31 bits

// The cell of each value in its block; of those behind the block, the last cell.
struct Zigzag {
    uint8_t cell[CELLS + UNKNOWN];
    Zigzag() {
        std::memset(cell, CELLS - 1, sizeof cell);
        for (int sum = 0, n = 0; sum < 15; sum++) {
            const int low = sum < 8 ? 0 : sum - 7, high = sum - low;
            for (int i = low; i <= high; i++, n++) {
                const int row = sum % 2 ? i : low + high - i;
                cell[n] = static_cast<uint8_t>(8 * row + sum - row);
            }
        }
    }
};
inline const Zigzag zigzag;

// Bits from the highest of each byte down; PADDING follows them.
class Bits {
   public:
    Bits() : Bits(nullptr, 0) {}
    Bits(const uint8_t* data, std::size_t bytes) : next(data), end(data + bytes) {}

    // Make sure of 56 bits.
    void refill() {
        uint64_t word = 0;
        for (int i = 0; i < 8; i++) word = word << 8 | next[i];  // compilers make one instruction of it
        bits |= word >> count;
        next += (63 - count) >> 3;
        count |= 56;
    }
    uint64_t peek() const { return bits; }
    uint64_t peek(int n) const { return bits >> (64 - n); }
    void skip(int n) {
        bits <<= n;
        count -= n;
    }
    bool is_past_the_end() const { return left() < 0; }
    bool is_at_the_end() const { return left() >= 0 && left() < 8; }

   private:
    std::ptrdiff_t left() const { return 8 * (end - next) + count; }

    const uint8_t *next, *end;
    uint64_t bits = 0;  // below the first `count` only what the next refill brings again
    int count = 0;
};

struct Code {
    uint8_t length, symbol;  // length is 0 if there is no such code
};

// The value that the first `size` bits stand for.
inline int16_t extend(uint64_t word, int size) {
    const int value = static_cast<int>(word >> 1 >> (63 - size)), half = 1 << size >> 1;
    return static_cast<int16_t>(value < half ? value - (1 << size) + 1 : value);
}

// A table of codes; those of the first values of blocks, which are differences, have the size of the value as symbol.
class Codes {
   public:
    // counts[n] codes of n bits, 1 to 16, with these symbols in order. libjpeg has checked that this is possible.
    // Returns false if they are built already.
    bool build(const uint8_t* counts, const uint8_t* of) {
        if (symbols == of) return false;
        symbols = of;
        std::memset(lookup, 0, sizeof lookup);
        uint32_t code = 0, n = 0;
        for (int length = 1; length <= LONGEST; length++, code <<= 1) {
            first[length] = n - code;
            for (int i = 0; i < counts[length]; i++, code++, n++) fill(code, length, symbols[n]);
            end[length] = code;
        }
        return true;
    }

    // The code at the beginning of the word.
    Code find(uint64_t word) const {
        const Code code = lookup[word >> (64 - LOOKUP)];
        return code.length ? code : find_long(word);
    }

    bool read_difference(Bits& in, int& value) const {
        in.refill();
        const Code code = find(in.peek());
        in.skip(code.length);
        value = extend(in.peek(), code.symbol);
        in.skip(code.symbol);
        return code.length != 0;
    }

   private:
    void fill(uint32_t code, int length, uint8_t symbol) {
        const int rest = LOOKUP - length;
        const Code found{static_cast<uint8_t>(length), symbol};
        for (int i = 0; rest >= 0 && i < 1 << rest; i++) lookup[(code << rest) + i] = found;
    }
    Code find_long(uint64_t word) const {
        for (int length = LOOKUP + 1; length <= LONGEST; length++) {
            const auto code = static_cast<uint32_t>(word >> (64 - length));
            if (code < end[length]) return {static_cast<uint8_t>(length), symbols[first[length] + code]};
        }
        return {0, 0};
    }

    Code lookup[COUNT];
    uint32_t first[LONGEST + 1], end[LONGEST + 1];  // by length; code + first is the index of its symbol
    const uint8_t* symbols = nullptr;
};

// What the symbols of the other values mean: zeros, then a value of `size` bits.
inline int run_of(int symbol) { return symbol % 16 == 0 && symbol < 0xf0 ? END : symbol / 16; }
inline int size_of(int symbol) { return symbol % 16; }

// The codes of the other values of blocks.
class ValueCodes {
   public:
    void build(const uint8_t* counts, const uint8_t* symbols) {
        if (!codes.build(counts, symbols)) return;
        Values single[COUNT];
        for (unsigned i = 0; i < COUNT; i++) single[i] = find_value(i);
        for (unsigned i = 0; i < COUNT; i++) values[i] = join(single[i], single[(i << single[i].bits) % COUNT]);
        can_skip = false;
    }

    // Read the values into a block of zeros.
    bool read(Bits& in, int16_t* block) const {
        return each_lookup<READS>(in, block, [&](int& k) {
            const Values& found = values[in.peek(LOOKUP)];
            k += found.run;
            block[zigzag.cell[k]] = found.value;
            k += found.step;
            block[zigzag.cell[k]] = found.other;
            k++;
            in.skip(found.bits);
        });
    }

    // Skip the values.
    bool skip(Bits& in) {
        if (!can_skip)
            for (unsigned i = 0; i < COUNT; i++) skips[i] = find_skip(i);
        can_skip = true;
        int16_t ignored[CELLS];
        return each_lookup<SKIPS>(in, ignored, [&](int& k) {
            const Skip& found = skips[in.peek(LOOKUP)];
            k += found.cells;
            in.skip(found.bits);
        });
    }

   private:
    // One or two values. Where a lookup does not hold all of the first, `run` is UNKNOWN.
    struct Values {
        uint8_t bits, run, step;  // zeros before the first value, and from there to the second; 0 if there is none
        int16_t value, other;
    };

    // All values whose codes a lookup holds; END + 1 cells for the code after which all are zero.
    struct Skip {
        uint8_t bits, cells;
    };

    // Look up until the block ends. A lookup is repeated, for one code, where it knows none or goes behind the block.
    template <int LOOKUPS, typename LookUp>
    bool each_lookup(Bits& in, int16_t* block, LookUp look_up) const {
        int k = 1;
        while (true) {
            in.refill();
            Bits before;
            int k_before = 0;
            for (int i = 0; i < LOOKUPS && k < CELLS; i++) {
                before = in;
                k_before = k;
                look_up(k);
            }
            if (k < CELLS) continue;
            if (k == CELLS || (k > END && k <= END + CELLS)) return true;
            in = before;
            k = k_before;
            if (!read_one(in, block, k)) return false;
            if (k >= CELLS) return k == CELLS || k > END;
        }
    }

    bool read_one(Bits& in, int16_t* block, int& k) const {
        in.refill();
        const Code code = codes.find(in.peek());
        k += run_of(code.symbol);
        in.skip(code.length);
        block[zigzag.cell[k]] = extend(in.peek(), size_of(code.symbol));
        k++;
        in.skip(size_of(code.symbol));
        return code.length != 0;
    }

    Values find_value(unsigned index) const {
        const uint64_t word = static_cast<uint64_t>(index) << (64 - LOOKUP);
        const Code code = codes.find(word);
        const int size = size_of(code.symbol), bits = code.length + size;
        if (!code.length || bits > LOOKUP) return {0, UNKNOWN, 0, 0, 0};
        const int16_t value = extend(word << code.length, size);
        return {static_cast<uint8_t>(bits), static_cast<uint8_t>(run_of(code.symbol)), 0, value, value};
    }
    static Values join(Values one, Values next) {
        if (one.run >= END || next.run == UNKNOWN || one.bits + next.bits > LOOKUP) return one;
        const auto bits = static_cast<uint8_t>(one.bits + next.bits), step = static_cast<uint8_t>(next.run + 1);
        return {bits, one.run, step, one.value, next.value};
    }

    Skip find_skip(unsigned index) const {
        int bits = 0, cells = 0;
        while (bits < LOOKUP && cells < END) {
            const Code code = codes.find(static_cast<uint64_t>(index) << (64 - LOOKUP + bits));
            const int more = run_of(code.symbol) + 1;
            if (!code.length || bits + code.length > LOOKUP || (cells + more > CELLS && more <= CELLS)) break;
            bits += code.length + size_of(code.symbol);
            cells += more;
        }
        return {static_cast<uint8_t>(bits), static_cast<uint8_t>(cells ? cells : UNKNOWN)};
    }

    Values values[COUNT];
    Skip skips[COUNT];
    bool can_skip;
    Codes codes;
};

}  // namespace huffman
