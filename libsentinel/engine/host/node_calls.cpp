// Makes the NUMA system calls, or those of a machine with one node, or ones that fail on
// purpose.
#include "engine/host/node_calls.h"

#include <fmt/format.h>
#include <numaif.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <map>
#include <string_view>
#include <vector>

#include "sentinel/error.h"

namespace sentinel {
namespace {

class KernelCalls final : public NodeCalls {
 public:
  long move(std::span<void* const> pages, int node, std::span<int> status) noexcept override {
    thread_local std::vector<int> nodes;
    nodes.assign(pages.size(), node);
    return call(pages, nodes.data(), status);
  }

  long where(std::span<void* const> pages, std::span<int> status) noexcept override {
    return call(pages, nullptr, status);
  }

  // Preferred, not bound: were the node full, a bound range would have the process killed.
  int bind(void* address, std::size_t bytes, int node) noexcept override {
    constexpr std::size_t kNodes = 1024, kBits = 8 * sizeof(unsigned long);
    std::array<unsigned long, kNodes / kBits> mask{};
    mask[static_cast<std::size_t>(node) / kBits] = 1ul << (static_cast<std::size_t>(node) % kBits);
    return mbind(address, bytes, MPOL_PREFERRED, mask.data(), kNodes + 1, 0) == 0 ? 0 : -errno;
  }

  int drop(void* address, std::size_t bytes) noexcept override {
    return madvise(address, bytes, MADV_DONTNEED) == 0 ? 0 : -errno;
  }

 private:
  static long call(std::span<void* const> pages, const int* nodes, std::span<int> status) noexcept {
    const long rc = move_pages(0, pages.size(), const_cast<void**>(pages.data()), nodes,
                               status.data(), MPOL_MF_MOVE);
    return rc >= 0 ? rc : -errno;
  }
};

struct Injection {
  std::uint64_t number = 0;
  bool each = false;
  int error = 0;  // 0: slow
};

Injection parse_injection(std::string_view text) {
  static const std::map<std::string_view, int> errors{
      {"EBUSY", EBUSY}, {"ENOMEM", ENOMEM}, {"EFAULT", EFAULT}, {"EACCES", EACCES}, {"slow", 0}};
  constexpr std::string_view key = "move:";
  const auto colon = text.rfind(':');
  Injection injection;
  if (text.starts_with(key) && colon >= key.size()) {
    auto number = text.substr(key.size(), colon - key.size());
    injection.each = number.starts_with('%');
    if (injection.each) number.remove_prefix(1);
    std::from_chars(number.data(), number.data() + number.size(), injection.number);
    const auto error = errors.find(text.substr(colon + 1));
    if (injection.number > 0 && error != errors.end()) {
      injection.error = error->second;
      return injection;
    }
  }
  throw Error(fmt::format("\"{}\" is no fault to inject; write for example move:3:EBUSY", text));
}

class InjectingCalls final : public NodeCalls {
 public:
  explicit InjectingCalls(const std::string& text) : injection_(parse_injection(text)) {}

  long move(std::span<void* const> pages, int node, std::span<int> status) noexcept override {
    if (injection_.error == 0) {
      usleep(static_cast<useconds_t>(injection_.number));
      return kernel_.move(pages, node, status);
    }
    thread_local std::vector<void*> rest;
    thread_local std::vector<std::size_t> places;
    thread_local std::vector<int> answers;
    rest.clear();
    places.clear();
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (doomed(++seen_)) {
        status[i] = -injection_.error;
        continue;
      }
      rest.push_back(pages[i]);
      places.push_back(i);
    }
    if (rest.empty()) return 0;
    answers.assign(rest.size(), -EBUSY);
    const long rc = kernel_.move(rest, node, answers);
    for (std::size_t i = 0; i < rest.size(); ++i) status[places[i]] = answers[i];
    return rc;
  }

  long where(std::span<void* const> pages, std::span<int> status) noexcept override {
    return kernel_.where(pages, status);
  }
  int bind(void* address, std::size_t bytes, int node) noexcept override {
    return kernel_.bind(address, bytes, node);
  }
  int drop(void* address, std::size_t bytes) noexcept override {
    return kernel_.drop(address, bytes);
  }

 private:
  bool doomed(std::uint64_t page) const {
    return injection_.each ? page % injection_.number == 0 : page == injection_.number;
  }

  KernelCalls kernel_;
  Injection injection_;
  std::atomic<std::uint64_t> seen_ = 0;
};

}  // namespace

constexpr std::string_view kOneNode = "one-node";

std::unique_ptr<NodeCalls> make_node_calls(const std::string& inject) {
  if (on_one_node(inject))
    return make_node_calls(inject.substr(std::min(inject.size(), kOneNode.size() + 1)));
  if (inject.empty()) return std::make_unique<KernelCalls>();
  return std::make_unique<InjectingCalls>(inject);
}

bool on_one_node(const std::string& inject) {
  return inject == kOneNode || inject.starts_with(std::string(kOneNode) + ",");
}

}  // namespace sentinel
