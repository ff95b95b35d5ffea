// The machine descriptions of tools/machines/, embedded, so that the program needs no files beside
// it.
#include "embedded/sentinel_sim.h"
#include "sim/machine_file.h"

namespace sentinel::sim {

std::span<const BuiltinMachine> builtin_machines() {
  static const BuiltinMachine machines[] = {
      {"a100-g10", embedded::a100_g10_toml},   {"a100-g10-paper", embedded::a100_g10_paper_toml},
      {"v100-16gb", embedded::v100_16gb_toml}, {"optane", embedded::optane_toml},
      {"rtx2080ti", embedded::rtx2080ti_toml},
  };
  return machines;
}

}  // namespace sentinel::sim
