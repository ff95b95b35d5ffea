// Hashes, fills and spoils bytes in place, or in a copy of the host's.
#include "runtime/replay/host_view.h"

#include <xxhash.h>

#include <cstring>

namespace sentinel {
namespace {

unsigned char* pointer(std::uintptr_t address) {
  return reinterpret_cast<unsigned char*>(address);  // NOLINT(performance-no-int-to-ptr)
}

ContentHash hash_of(const void* bytes, std::size_t size) {
  const auto hash = XXH3_128bits(bytes, size);
  return {hash.low64, hash.high64};
}

}  // namespace

std::vector<unsigned char> HostView::bytes(std::uintptr_t address, std::size_t size) const {
  std::vector<unsigned char> bytes(size);
  device_->read(address, size, bytes.data());
  return bytes;
}

ContentHash HostView::hash(std::uintptr_t address, std::size_t size) const {
  return device_ == nullptr ? hash_of(pointer(address), size)
                            : hash_of(bytes(address, size).data(), size);
}

void HostView::fill(std::uintptr_t address, std::size_t size, unsigned char with) const {
  if (device_ == nullptr) {
    std::memset(pointer(address), with, size);
    return;
  }
  const std::vector<unsigned char> filled(size, with);
  device_->write(address, size, filled.data());
}

void HostView::flip_a_bit(std::uintptr_t address, std::size_t size) const {
  if (device_ == nullptr) {
    pointer(address)[size / 2] ^= 1;
    return;
  }
  auto spoiled = bytes(address, size);
  spoiled[size / 2] ^= 1;
  device_->write(address, size, spoiled.data());
}

}  // namespace sentinel
