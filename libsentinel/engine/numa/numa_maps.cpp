// Parses /proc/PID/numa_maps, and sums the pages of a range by node.
#include "engine/numa/numa_maps.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace sentinel {
namespace {

template <class Number>
bool read(std::string_view text, Number& number) {
  const auto* const end = text.data() + text.size();
  const auto found = std::from_chars(text.data(), end, number);
  return found.ec == std::errc() && found.ptr == end;
}

}  // namespace

// A line: "7f3c00000000 prefer:1 anon=512 dirty=512 N0=128 N1=384 kernelpagesize_kB=4".
NodeBytes bytes_by_node(std::istream& numa_maps, std::uintptr_t begin, std::uintptr_t end) {
  NodeBytes bytes;
  for (std::string line; std::getline(numa_maps, line);) {
    std::istringstream words(line);
    std::uintptr_t address = 0;
    if (!(words >> std::hex >> address) || address < begin || address >= end) continue;
    std::map<int, std::uint64_t> pages;
    std::uint64_t page_bytes = 4096;
    for (std::string word; words >> word;) {
      const auto equals = word.find('=');
      if (equals == word.npos || equals + 1 == word.size()) continue;
      const auto key = std::string_view(word).substr(0, equals);
      std::uint64_t value = 0;
      int node = 0;
      if (!read(std::string_view(word).substr(equals + 1), value)) continue;
      if (key == "kernelpagesize_kB")
        page_bytes = value * 1024;
      else if (key.starts_with('N') && read(key.substr(1), node) && node >= 0)
        pages[node] += value;
    }
    for (const auto& [node, count] : pages) bytes[node] += count * page_bytes;
  }
  return bytes;
}

NodeBytes bytes_by_node(std::uintptr_t begin, std::uintptr_t end) {
  std::ifstream file("/proc/self/numa_maps");
  return bytes_by_node(file, begin, end);
}

}  // namespace sentinel
