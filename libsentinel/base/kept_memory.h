// How much of this process's memory the kernel has to leave where it is.
#pragma once

#include <cstdint>

namespace sentinel {

// Both allocate nothing, may be called from any thread, and answer 0 where the kernel does not say.
std::uint64_t pinned_bytes() noexcept;  // buffers registered with io_uring or an RDMA device
std::uint64_t locked_bytes() noexcept;  // mlock, mlockall

}  // namespace sentinel
