// Which rank of a training this process is, as its launcher tells in the environment: torchrun and
// what follows it (accelerate, Lightning), Open MPI, MPICH's and Intel's mpirun, Slurm's srun.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sentinel {

struct Rank {
  std::optional<unsigned> rank;  // none: no launcher has said
  unsigned ranks = 1;            // of the training
  unsigned beside = 1;           // of these, on this machine, with this one
  std::uint64_t training = 0;    // the same in all of them, of no other training; 0: not known
  std::string spawned;           // "0": the first process that a training's process spawned
};

Rank rank_of_process();

// A file's name for this process: %p is its id, %r its rank (0 without a launcher). Where several
// ranks would write one name, the rank is put in front of the extension: "s.json" is
// "s.rank1.json", and "s.spawned0.json" of a process that multiprocessing spawned.
std::string name_of_rank(const std::string& pattern, const Rank&);
std::string with_rank(const std::string& pattern);  // the pattern for that: "s.rank%r.json"
bool is_shared_name(const std::string& pattern, const Rank&);

}  // namespace sentinel
