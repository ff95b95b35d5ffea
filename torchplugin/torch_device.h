// The device that is managed: which one it is, the allocator of its tensors, and the stream on
// which the calling thread launches. It sees no op.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <cstring>
#include <new>

#include "sentinel/adaptor.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define SENTINEL_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > major || (TORCH_VERSION_MAJOR == major && TORCH_VERSION_MINOR >= minor))

EXPORT void* sentinel_torch_gpu_malloc(ssize_t bytes, int device, void* stream);
EXPORT void sentinel_torch_gpu_free(void* address, ssize_t bytes, int device, void* stream);

namespace {

void made_memory();  // torch_observers.h

// Tests build with it: there the processor's PyTorch takes the device's part, in the memory of a
// driver's library of their own.
#ifdef SENTINEL_TORCH_FAKE_GPU
constexpr bool kFakeGpu = true;
#else
constexpr bool kFakeGpu = false;
#endif
constexpr auto kGpu = kFakeGpu ? c10::DeviceType::CPU : c10::DeviceType::CUDA;
constexpr auto kGpuKernel = kFakeGpu ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
constexpr auto kGpuAutograd =
    kFakeGpu ? c10::DispatchKey::AutogradCPU : c10::DispatchKey::AutogradCUDA;
constexpr auto kGpuAutocast =
    kFakeGpu ? c10::DispatchKey::AutocastCPU : c10::DispatchKey::AutocastCUDA;

int gpu = -1;           // the device whose memory is the fast tier; none: the processor's own
bool in_child = false;  // forked: nothing is managed here, and CUDA is not to be asked
int fake_device = 0;    // of kFakeGpu: on which tensors begin
constexpr int kOther = 1;

void deallocate(void* address) {
  if (address == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(address);
  kFakeGpu ? sentinel_torch_gpu_free(address, 0, gpu, nullptr) : sentinel_free(address);
}

// Of kFakeGpu: by its deleter what lies on the other device is told.
void deallocate_elsewhere(void* address) {
  if (address != nullptr) sentinel_torch_gpu_free(address, 0, kOther, nullptr);
}

class Allocator final : public c10::Allocator {
 public:
#if SENTINEL_TORCH_AT_LEAST(2, 3)
  c10::DataPtr allocate(size_t bytes) override { return take(bytes); }
#else
  c10::DataPtr allocate(size_t bytes) const override { return take(bytes); }
#endif
#if SENTINEL_TORCH_AT_LEAST(2, 2)
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &deallocate; }

 private:
  static c10::DataPtr take(size_t bytes) {
    if (kFakeGpu && fake_device == kOther) {
      void* there = sentinel_torch_gpu_malloc(static_cast<ssize_t>(bytes), kOther, nullptr);
      return {there, there, &deallocate_elsewhere, c10::Device(c10::DeviceType::CPU)};
    }
    void* address = kFakeGpu ? sentinel_torch_gpu_malloc(static_cast<ssize_t>(bytes), gpu, nullptr)
                             : sentinel_malloc(bytes);
    if (address == nullptr && bytes != 0) throw std::bad_alloc();
    if (address != nullptr) c10::profiledCPUMemoryReporter().New(address, bytes);
    if (!kFakeGpu) made_memory();
    return {address, address, &deallocate, c10::Device(c10::DeviceType::CPU)};
  }
};

// Not so what lies on another device.
bool managed(const at::Tensor& tensor) {
  const auto device = tensor.device();
  if (gpu < 0) return device.is_cpu();
  if (kFakeGpu) return tensor.storage().data_ptr().get_deleter() != &deallocate_elsewhere;
  return device.type() == kGpu && device.index() == gpu;
}

// c10::cuda::CUDAStream::stream() const, of a class that is a c10::Stream and nothing beside: so
// that nothing of CUDA is needed to build. Null: PyTorch's CUDA part is not here.
using HandleOf = void* (*)(const c10::Stream*);
HandleOf handle_of_stream() {
  void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr
             ? nullptr
             : reinterpret_cast<HandleOf>(dlsym(library, "_ZNK3c104cuda10CUDAStream6streamEv"));
}
HandleOf handle_of = nullptr;

void* stream_of_this_thread() {
  if (kFakeGpu) return nullptr;
  const c10::impl::VirtualGuardImpl device(kGpu);
  const auto stream = device.getStream({kGpu, static_cast<c10::DeviceIndex>(gpu)});
  return handle_of(&stream);
}

// The op's kernels are launched where the calling thread launches now. Said before anything else of
// the op: the stream of this thread's last one may be destroyed by now.
void name_stream() {
  if (gpu >= 0) sentinel_compute_on(stream_of_this_thread());
}

}  // namespace
