// How often each op opens pages of each storage, and what that costs in a slower tier.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

class Openings {
 public:
  struct Pages {
    double read = 0, written = 0;
    double sum() const { return read + written; }
  };

  // `storages` are those of the profile; `storage` below is an index into them. Not kept.
  Openings(const Profile&, const std::vector<Storage>& storages);

  // Pages of the storage that one run of the op opens. Where the profile has no counts, an op that
  // names a tensor goes through all of it once in each direction; where counts do not tell reads
  // from writes, all are writes if the op writes the tensor.
  Pages of(OpId, std::uint32_t storage, bool read, bool written) const;

  double bytes(const Pages& pages) const { return pages.sum() * page_bytes_; }

  // What the pages cost in tier `tier` more than in fast memory, whose cost is part of the op's own
  // time: each opening the difference in latency and, for the page's bytes, in bandwidth. A pass
  // through a whole tensor (no counts) has no latency: it is read ahead.
  double in_place_us(const Machine&, std::uint32_t tier, const Pages&) const;

 private:
  struct Count {
    std::uint32_t storage;
    Pages pages;
  };
  bool counted_, apart_;
  double page_bytes_;
  std::vector<double> size_;               // per storage, in pages; where nothing was counted
  std::vector<std::vector<Count>> of_op_;  // by storage
};

}  // namespace sentinel::plan
