// A kernel that touches one word of each page, in their order, by the driver's library alone: the
// program is text that the driver translates. Where it writes a page gets the number of those that
// are left.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "engine/gpu/cuda_driver.h"

namespace sentinel::gpu {

inline constexpr const char* kTouch = R"(
.version 6.0
.target sm_60
.address_size 64
.visible .entry touch(.param .u64 first, .param .u64 pages, .param .u64 writes)
{
  .reg .pred %p<2>;
  .reg .b64 %r<4>;
  .reg .b64 %word;
  ld.param.u64 %r0, [first];
  ld.param.u64 %r1, [pages];
  ld.param.u64 %r2, [writes];
NEXT:
  setp.eq.u64 %p0, %r1, 0;
  @%p0 bra DONE;
  setp.eq.u64 %p1, %r2, 0;
  @%p1 bra READ;
  st.volatile.u64 [%r0], %r1;
  bra TOUCHED;
READ:
  ld.volatile.u64 %word, [%r0];
TOUCHED:
  add.u64 %r0, %r0, 4096;
  sub.u64 %r1, %r1, 1;
  bra NEXT;
DONE:
  ret;
}
)";

// Throws Error. The device's first; there is a driver.
class TouchKernel {
 public:
  static constexpr std::uint64_t kLast = 1;  // what the last page gets

  // The driver of the tests does not.
  static bool launches(const std::string& library) {
    void* found = dlopen(library.c_str(), RTLD_NOW);
    return found != nullptr && dlsym(found, "cuLaunchKernel") != nullptr;
  }
  explicit TouchKernel(const std::string& library) : library_(dlopen(library.c_str(), RTLD_NOW)) {
    int device = 0;
    call("cuDeviceGet", &device, 0);
    call("cuDevicePrimaryCtxRetain", &context_, device);
    const Here here(*this);
    call("cuModuleLoadData", &module_, kTouch);
    call("cuModuleGetFunction", &function_, module_, "touch");
  }
  ~TouchKernel() {
    const Here here(*this);
    call("cuModuleUnload", module_);
  }
  TouchKernel(const TouchKernel&) = delete;
  TouchKernel& operator=(const TouchKernel&) = delete;

  void launch(std::uintptr_t first, std::uint64_t pages, bool writes, Stream stream) {
    const Here here(*this);
    std::uint64_t words[] = {first, pages, writes ? 1u : 0u};
    void* arguments[] = {&words[0], &words[1], &words[2]};
    call("cuLaunchKernel", function_, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, &arguments[0],
         static_cast<void**>(nullptr));
  }

 private:
  struct Here {
    explicit Here(TouchKernel& kernel) : kernel(kernel) {
      kernel.call("cuCtxPushCurrent_v2", kernel.context_);
    }
    ~Here() {
      void* popped = nullptr;
      kernel.call("cuCtxPopCurrent_v2", &popped);
    }
    TouchKernel& kernel;
  };

  template <class... Arguments>
  void call(const char* name, Arguments... arguments) {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    const int status = function == nullptr ? -1 : function(arguments...);
    if (status != 0) throw DriverError(name, status, "error " + std::to_string(status));
  }

  void* library_;
  void *context_ = nullptr, *module_ = nullptr, *function_ = nullptr;
};

}  // namespace sentinel::gpu
