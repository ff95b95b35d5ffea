// Parses /proc/PID/numa_maps, and sums the pages of a range by node.
#include "engine/numa/numa_maps.h"

#include <fstream>
#include <sstream>
#include <string>

namespace sentinel {

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
      const auto key = word.substr(0, equals), value = word.substr(equals + 1);
      if (key == "kernelpagesize_kB")
        page_bytes = std::stoull(value) * 1024;
      else if (key.size() > 1 && key[0] == 'N' &&
               key.find_first_not_of("0123456789", 1) == key.npos)
        pages[std::stoi(key.substr(1))] += std::stoull(value);
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
