// What the hot structures cost by themselves, with Google Benchmark: steady_bench tells what they
// cost together.
#include <benchmark/benchmark.h>

#include <vector>

#include "alloc/address_table.h"
#include "alloc/heap.h"
#include "capture/userfault/window.h"
#include "engine/io/checksums.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kBase = std::uintptr_t{1} << 40;

// range(0): tensors alive meanwhile.
void table(benchmark::State& state) {
  AddressTable table;
  const auto alive = static_cast<std::uintptr_t>(state.range(0));
  for (std::uintptr_t i = 0; i < alive; ++i) table.insert({.address = kBase + i * 4096});
  for (auto _ : state) {
    table.insert({.address = kBase + alive * 4096});
    benchmark::DoNotOptimize(table.find(kBase + alive * 4096));
    table.erase(kBase + alive * 4096);
  }
}
BENCHMARK(table)->Arg(100)->Arg(10'000);

void best_fit(benchmark::State& state) {
  Heap heap(kBase, std::uint64_t{1} << 40);
  const auto alive = static_cast<std::size_t>(state.range(0));
  std::vector<std::uintptr_t> held;
  for (std::size_t i = 0; i < 2 * alive; ++i) held.push_back(heap.allocate(64 * (i + 1), 64));
  for (std::size_t i = 0; i < held.size(); i += 2) heap.free(held[i], 64 * (i + 1));
  for (auto _ : state) heap.free(heap.allocate(4096, 64), 4096);
}
BENCHMARK(best_fit)->Arg(100)->Arg(10'000);

void window(benchmark::State& state) {
  std::vector<Opening> storage(8192 + 1);
  Window window(storage.data(), storage.size());
  std::uint64_t serial = 0;
  for (auto _ : state) {
    window.push(serial * 4096, serial, 1);
    ++serial;
    while (window.leaves(8192)) benchmark::DoNotOptimize(window.pop());
  }
}
BENCHMARK(window);

// The sums of a frame that no cache holds, as before each write and after each read of the slow
// tier.
void checksums(benchmark::State& state, ChecksumLevel level) {
  constexpr std::uint64_t kFrame = 2u << 20, kFrames = 256;
  std::vector<char> memory(kFrames * kFrame, 1);
  Checksums sums(level, kFrame);
  std::uint64_t frame = 0;
  for (auto _ : state) {
    sums.take(static_cast<std::int64_t>(frame), memory.data() + frame * kFrame);
    frame = (frame + 1) % kFrames;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kFrame));
}
BENCHMARK_CAPTURE(checksums, sampled, ChecksumLevel::sampled);
BENCHMARK_CAPTURE(checksums, full, ChecksumLevel::full);

}  // namespace
}  // namespace sentinel

BENCHMARK_MAIN();
