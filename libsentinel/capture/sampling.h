// Which pages of a range are tracked: one at a seeded-random place in each run of `stride` pages.
// The even and the odd runs are two samples of the same range; that they differ is sampling error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sentinel {

constexpr std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// visit(page, weight, even): `weight` is the run's length, which is `stride` but for the last run,
// so that one opening of each tracked page counts exactly as many as the range has pages.
template <class Visit>
void for_each_sampled(std::size_t pages, std::uint32_t stride, std::uint64_t seed, Visit visit) {
  for (std::size_t run = 0; run < pages; run += stride) {
    const std::size_t length = pages - run < stride ? pages - run : stride;
    const std::size_t place = length == 1 ? 0 : mixed(seed + run) % length;
    visit(run + place, static_cast<std::uint32_t>(length), run / stride % 2 == 0);
  }
}

// Pages in the even runs of a range.
constexpr std::size_t even_pages(std::size_t pages, std::size_t stride) {
  const std::size_t pairs = pages / (2 * stride), rest = pages % (2 * stride);
  return pairs * stride + (rest < stride ? rest : stride);
}

}  // namespace sentinel
