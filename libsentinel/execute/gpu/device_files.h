// Files that a device reads and writes without the host's memory between (GPUDirect Storage).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "execute/slow_file.h"
#include "sentinel/error.h"

namespace sentinel::gpu {

// Thread-safe. Both wait for the transfer, whose ends lie on pages, and return what it moved:
// bytes, maybe fewer than asked, or a negative errno, or one of the library's own (kOwnErrors).
class DeviceFiles {
 public:
  static constexpr int kOwnErrors = 5000;  // and all above
  virtual ~DeviceFiles() = default;
  // `file`: of the descriptors that this was made for.
  virtual std::int64_t read(std::size_t file, void* device, std::uint64_t bytes,
                            std::uint64_t offset) noexcept = 0;
  virtual std::int64_t write(std::size_t file, const void* device, std::uint64_t bytes,
                             std::uint64_t offset) noexcept = 0;
};

// NVIDIA's cuFile, loaded now. `within`: runs what it is given in the device's context. The
// descriptors stay the caller's, and open. Throws Error that says what is missing.
std::unique_ptr<DeviceFiles> open_cufile(
    const std::string& library, const std::vector<int>& descriptors,
    std::function<std::int64_t(const std::function<std::int64_t()>&)> within);

// Of errno, or the library's own. And: of a library that is not open, or not any more.
Error file_error(const std::string& attempted, int code);
bool is_closing(int code);

class Driver;

// Has a granule written and read in each file, as training will. Throws Error.
void try_files(Driver&, DeviceFiles&, SlowFile&, std::uint64_t granule);

}  // namespace sentinel::gpu
