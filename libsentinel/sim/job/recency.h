// Indices in the order of their last use; every operation takes constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sentinel::sim {

class Recency {
 public:
  explicit Recency(std::size_t size) : links_(size + 1) {
    for (std::uint32_t i = 0; i < links_.size(); ++i) links_[i] = {i, i};
  }

  std::uint32_t end() const { return static_cast<std::uint32_t>(links_.size() - 1); }
  std::uint32_t oldest() const { return links_[end()].newer; }  // end() if empty
  std::uint32_t newer(std::uint32_t i) const { return links_[i].newer; }

  void use(std::uint32_t i) {  // is the newest from now on
    remove(i);
    links_[i] = {links_[end()].older, end()};
    links_[links_[i].older].newer = i;
    links_[end()].older = i;
  }
  void remove(std::uint32_t i) {  // nothing if it is not in
    links_[links_[i].older].newer = links_[i].newer;
    links_[links_[i].newer].older = links_[i].older;
    links_[i] = {i, i};
  }

 private:
  struct Link {
    std::uint32_t older = 0, newer = 0;  // itself where not in
  };
  std::vector<Link> links_;  // the last one closes the ring
};

}  // namespace sentinel::sim
