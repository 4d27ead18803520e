// Multiply-adds of numbers in registers, on several threads: the most that the CPU can do.

#include <cstdint>
#include <thread>
#include <vector>

#ifdef __AVX512F__
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif
constexpr int CHAINS = 12;  // independent sums, more than a CPU needs to hide the time of one multiply-add
typedef float numbers __attribute__((vector_size(4 * LANES)));

static float multiply_and_add(int64_t turns) {
    numbers sum[CHAINS], by = numbers{} + 0.999f, add = numbers{} + 0.001f;
    for (int c = 0; c < CHAINS; c++) sum[c] = numbers{} + 0.01f * c;  // equal chains would be compiled as one
    for (int64_t i = 0; i < turns; i++)
        for (int c = 0; c < CHAINS; c++) sum[c] = sum[c] * by + add;
    float all = 0;
    for (int c = 0; c < CHAINS; c++)
        for (int l = 0; l < LANES; l++) all += sum[c][l];
    return all;
}

// About `wanted` multiply-adds, shared by threads; returns a number that depends on all of them.
extern "C" float run(int64_t wanted, int64_t threads) {
    const int64_t turns = wanted / threads / (CHAINS * LANES);
    std::vector<float> results(threads);
    std::vector<std::thread> team;
    for (int64_t t = 1; t < threads; t++) team.emplace_back([&, t] { results[t] = multiply_and_add(turns); });
    results[0] = multiply_and_add(turns);
    for (std::thread& thread : team) thread.join();
    float all = 0;
    for (float result : results) all += result;
    return all;
}
