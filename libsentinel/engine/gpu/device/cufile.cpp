// The functions and structures that are used of cuFile are declared here as its ABI has had them
// since version 1.0 (CUDA 11.4). Not run on a device yet.
#include "engine/gpu/device/cufile.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "engine/io/slow_file.h"
#include "sentinel/error.h"

namespace sentinel::gpu {
namespace {

using Handle = void*;

struct Status {
  int cufile = 0, cuda = 0;
};
struct Description {
  int type = 1;  // CU_FILE_HANDLE_TYPE_OPAQUE_FD
  union {
    int descriptor;
    void* windows;
  } file = {};
  const void* operations = nullptr;
};
static_assert(sizeof(Status) == 8 && sizeof(Description) == 24);

// X(name in the library, result, arguments)
#define SENTINEL_CUFILE_CALLS(X)                                     \
  X(cuFileDriverOpen, Status, ())                                    \
  X(cuFileHandleRegister, Status, (Handle*, const Description*))     \
  X(cuFileHandleDeregister, void, (Handle))                          \
  X(cuFileRead, ssize_t, (Handle, void*, std::size_t, off_t, off_t)) \
  X(cuFileWrite, ssize_t, (Handle, const void*, std::size_t, off_t, off_t))

struct CufileCalls {
#define SENTINEL_CUFILE_POINTER(name, result, arguments) result(*name) arguments = nullptr;
  SENTINEL_CUFILE_CALLS(SENTINEL_CUFILE_POINTER)
#undef SENTINEL_CUFILE_POINTER
};

CufileCalls load(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(fmt::format(
        "--io cufile needs NVIDIA's GPUDirect Storage ({}); install it, or leave --io out",
        dlerror()));
  CufileCalls calls;
#define SENTINEL_CUFILE_FIND(name, result, arguments)                         \
  calls.name = reinterpret_cast<decltype(calls.name)>(dlsym(library, #name)); \
  if (calls.name == nullptr) throw Error(fmt::format("{} has no {}", file, #name));
  SENTINEL_CUFILE_CALLS(SENTINEL_CUFILE_FIND)
#undef SENTINEL_CUFILE_FIND
  return calls;
}

void check(const char* call, Status status) {
  if (status.cufile == 0) return;
  throw Error(fmt::format(
      "{}: cuFile's error {}{}; `gdscheck -p` says what this machine supports, and without --io "
      "cufile transfers pass the host's memory",
      call, status.cufile, status.cuda != 0 ? fmt::format(", CUDA's {}", status.cuda) : ""));
}

// -1 is for errno; below it lie cuFile's own errors.
std::int64_t result_of(ssize_t moved) {
  if (moved >= 0 || moved < -DeviceFiles::kOwnErrors) return moved;
  return moved == -1 && errno != 0 ? -errno : -EIO;
}

class CuFile final : public DeviceFiles {
 public:
  using Within = std::function<std::int64_t(const std::function<std::int64_t()>&)>;

  CuFile(const std::string& library, const std::vector<int>& descriptors, Within within)
      : calls_(load(library)), within_(std::move(within)) {
    constexpr int kAlreadyOpen = 5026;
    const auto opened = calls_.cuFileDriverOpen();  // stays open: others may use it, too
    if (opened.cufile != kAlreadyOpen) check("cuFileDriverOpen", opened);
    for (const int descriptor : descriptors) {
      Description description;
      description.file.descriptor = descriptor;
      Handle handle = nullptr;
      const auto status = calls_.cuFileHandleRegister(&handle, &description);
      if (status.cufile != 0) end();
      check("cuFileHandleRegister", status);
      handles_.push_back(handle);
    }
  }
  ~CuFile() override { end(); }

  std::int64_t read(std::size_t file, void* device, std::uint64_t bytes,
                    std::uint64_t offset) noexcept override {
    return moved([&] {
      return calls_.cuFileRead(handles_[file], device, bytes, static_cast<off_t>(offset), 0);
    });
  }
  std::int64_t write(std::size_t file, const void* device, std::uint64_t bytes,
                     std::uint64_t offset) noexcept override {
    return moved([&] {
      return calls_.cuFileWrite(handles_[file], device, bytes, static_cast<off_t>(offset), 0);
    });
  }

 private:
  template <class F>
  std::int64_t moved(F&& transfer) noexcept try {
    return within_([&] {
      errno = 0;
      return result_of(transfer());
    });
  } catch (const Error&) {  // the device's context is gone
    return -EIO;
  }

  void end() noexcept {
    for (const Handle handle : handles_) calls_.cuFileHandleDeregister(handle);
    handles_.clear();
  }

  CufileCalls calls_;
  Within within_;
  std::vector<Handle> handles_;  // by file
};

}  // namespace

std::unique_ptr<DeviceFiles> open_cufile(
    const std::string& library, const std::vector<int>& descriptors,
    std::function<std::int64_t(const std::function<std::int64_t()>&)> within) {
  return std::make_unique<CuFile>(library, descriptors, std::move(within));
}

Error file_error(const std::string& attempted, int code) {
  if (code == kOtherBytes || code == kOtherEnd)
    return Error(fmt::format("{}: {}", attempted, print_transfer_error(code)));
  if (code < DeviceFiles::kOwnErrors) return Error(attempted, code);
  return Error(fmt::format("{}: cuFile's error {}", attempted, code));
}

bool is_closing(int code) {
  constexpr int kNotInitialized = 5001, kDriverClosing = 5006;
  return code == kNotInitialized || code == kDriverClosing;
}

}  // namespace sentinel::gpu
