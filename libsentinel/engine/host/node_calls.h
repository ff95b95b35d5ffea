// The system calls of NUMA tiers, so that the engine can be tested where there is one node only.
// Internal to `engine/`: a seam for tests, which may change at any time.
//
// Conditions for all: addresses and lengths are whole pages; thread-safe; errors are negative errno
// values. A status is the page's node, or the negative errno that the page was answered with.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace sentinel {

class NodeCalls {
 public:
  virtual ~NodeCalls() = default;
  // move_pages(2) of this process. As there, statuses of pages that were not looked at any more
  // after a failure are left as they were; the pages not moved, or a negative errno.
  virtual long move(std::span<void* const> pages, int node, std::span<int> status) noexcept = 0;
  virtual long where(std::span<void* const> pages, std::span<int> status) noexcept = 0;
  // First touches of the range go to the node, or elsewhere where it is full.
  virtual int bind(void* address, std::size_t bytes, int node) noexcept = 0;
  // The range's contents are no longer needed.
  virtual int drop(void* address, std::size_t bytes) noexcept = 0;
};

// `inject`, for tests: "move:3:EBUSY" answers the third page that is to move; "move:%3:EBUSY" each
// third; "move:2000:slow" makes each call take 2000 us longer. "one-node" alone or before them,
// with a comma: both tiers may be the same node, and all is as ever but that no byte is copied.
// Throws Error on anything else.
std::unique_ptr<NodeCalls> make_node_calls(const std::string& inject = "");
bool on_one_node(const std::string& inject);

}  // namespace sentinel
