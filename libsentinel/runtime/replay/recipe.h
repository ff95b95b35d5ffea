// How an op's results are made once more, and what that takes: other tensors at the contents that
// the op read, each with the recipe that makes these. So recipes hold those they may need, and the
// adaptor's part of one goes when no tensor can need it any more.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace sentinel {

using TensorNumber = std::uint64_t;  // of one birth; 0: none

struct ContentHash {  // XXH3, 128 bits
  std::uint64_t low = 0, high = 0;
  friend bool operator==(const ContentHash&, const ContentHash&) = default;
};

// Contents of a tensor: `version` ops had written it. `maker` is null where no recipe makes them.
struct Recipe;
struct Contents {
  TensorNumber number = 0;
  std::uint64_t version = 0;
  std::shared_ptr<Recipe> maker;
  bool own = false;  // read for its own update alone
};

struct Recipe {
  void* handle = nullptr;   // the adaptor's
  const char* op = "";      // its name
  std::uint64_t order = 0;  // in which ops ran
  bool trusted = false;     // it has been seen to make the same twice
  std::uint64_t role = 0;   // of its op
  // In the step of its trial: what it made, as that was when the op ended.
  std::vector<std::pair<TensorNumber, ContentHash>> tried;
  std::vector<Contents> reads;
  std::vector<std::pair<TensorNumber, std::uint64_t>> writes;  // with the version that it made
};

// `dropped` gets its handle once nobody holds the recipe. A long chain goes without recursion.
std::shared_ptr<Recipe> make_recipe(std::shared_ptr<std::vector<void*>> dropped);

}  // namespace sentinel
