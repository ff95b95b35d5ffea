#include "allocation_log.h"

#include <algorithm>

#include "trace/tensor_trace.h"

namespace sentinel::bench {
namespace {

using Tensors = std::vector<std::vector<std::uint32_t>>;  // by op

void append(AllocationLog& log, const std::vector<std::uint32_t>& tensors, bool allocates,
            std::uint64_t& live) {
  for (const auto t : tensors) {
    log.step.push_back({t, allocates});
    live += allocates ? log.bytes(t) : -log.bytes(t);
  }
  log.peak_bytes = std::max(log.peak_bytes, live);
}

}  // namespace

AllocationLog read_log(const std::string& path, std::uint64_t factor) {
  AllocationLog log{.profile = read_tensor_trace(path)};
  const auto ops = log.profile.ops.size();
  Tensors born(ops), dying(ops);
  std::uint64_t live = 0;
  for (std::uint32_t t = 0; t < log.tensors(); ++t) {
    auto& tensor = log.profile.tensors[t];
    if (tensor.foreign || tensor.bytes == 0) continue;
    if (tensor.alloc_op && tensor.free_op) {
      tensor.bytes *= factor;
      born[tensor.alloc_op->index()].push_back(t);
      dying[tensor.free_op->index()].push_back(t);
    } else {
      log.persistent.push_back(t);
      live += tensor.bytes;
    }
  }
  for (std::size_t op = 0; op < ops; ++op) {
    log.op_begin.push_back(static_cast<std::uint32_t>(log.step.size()));
    append(log, born[op], true, live);
    append(log, dying[op], false, live);
  }
  log.op_begin.push_back(static_cast<std::uint32_t>(log.step.size()));
  return log;
}

}  // namespace sentinel::bench
