// The ledger as it outlives the broker: who holds how much, by process. It lies beside the socket,
// is replaced as a whole, and is for its owner alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "broker/ledger.h"

namespace sentinel {

struct Holder {
  pid_t process = 0;
  std::uint64_t begun = 0;  // tells it from a later process of that number
  std::string name;
  Need need;
  std::uint64_t counted = 0;
};

// Both throw Error. Of another boot of the machine there are no holders; nor where there is no
// file.
void write_ledger(const std::string& path, const std::vector<Holder>&);
std::vector<Holder> read_ledger(const std::string& path);

}  // namespace sentinel
