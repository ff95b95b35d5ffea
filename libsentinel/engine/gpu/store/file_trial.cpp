// Writes a pattern from the device to each file, and compares what comes back.
#include "engine/gpu/store/file_trial.h"

#include <fmt/format.h>

#include <cerrno>
#include <vector>

#include "engine/gpu/device/cufile.h"

namespace sentinel::gpu {
namespace {

constexpr const char* kElse = "without --io cufile transfers pass the host's memory";

// A chunk where the device finds it, and as much of the host's memory.
class FileTrial {
 public:
  FileTrial(Driver& driver, std::uint64_t bytes) : driver_(driver), bytes_(bytes) {
    try {
      address_ = driver_.reserve(bytes);
      const auto chunk = driver_.create(bytes);
      if (!chunk) throw Error("the GPU has too little memory free to try its way to the file");
      chunk_ = *chunk;
      made_ = true;
      driver_.map(address_, bytes, chunk_);
      mapped_ = true;
      host_ = static_cast<std::uint64_t*>(driver_.pin(bytes));
      stream_ = driver_.make_stream();
      event_ = driver_.make_event();
    } catch (...) {
      end();
      throw;
    }
  }
  ~FileTrial() { end(); }
  FileTrial(const FileTrial&) = delete;
  FileTrial& operator=(const FileTrial&) = delete;

  char* device() const { return reinterpret_cast<char*>(address_); }
  template <class F>
  void put(F&& word) {
    for (std::uint64_t i = 0; i < bytes_ / 8; ++i) host_[i] = word(i);
    copy(device(), host_);
  }
  template <class F>
  bool has(F&& word) {
    copy(host_, device());
    for (std::uint64_t i = 0; i < bytes_ / 8; ++i)
      if (host_[i] != word(i)) return false;
    return true;
  }

 private:
  void copy(void* to, const void* from) {
    driver_.copy(to, from, bytes_, stream_);
    driver_.record(event_, stream_);
    driver_.synchronize(event_);
  }
  void end() noexcept {
    try {
      if (event_ != nullptr) driver_.destroy_event(event_);
      if (stream_ != nullptr) driver_.destroy_stream(stream_);
      if (host_ != nullptr) driver_.unpin(host_);
      if (mapped_) driver_.unmap(address_, bytes_);
      if (made_) driver_.destroy(chunk_);
      if (address_ != 0) driver_.unreserve(address_, bytes_);
    } catch (const Error&) {  // the driver has failed before, and said so
    }
  }

  Driver& driver_;
  const std::uint64_t bytes_;
  std::uintptr_t address_ = 0;
  Chunk chunk_ = 0;
  bool made_ = false, mapped_ = false;
  std::uint64_t* host_ = nullptr;
  Stream stream_ = nullptr;
  Event event_ = nullptr;
};

// All of a granule, in as many parts as it takes.
template <class F>
void move(const char* call, std::uint64_t granule, F&& part) {
  for (std::uint64_t done = 0; done < granule;) {
    const std::int64_t n = part(done);
    if (n == -EINTR || n == -EAGAIN) continue;
    if (n <= 0)
      throw file_error(fmt::format("{}: a first granule did not pass between the GPU and the file "
                                   "of the slow tier; {}",
                                   call, kElse),
                       n < 0 ? static_cast<int>(-n) : EIO);
    done += static_cast<std::uint64_t>(n);
  }
}

}  // namespace

void try_files(Driver& driver, DeviceFiles& files, SlowFile& file, std::uint64_t granule) {
  FileTrial trial(driver, granule);
  std::vector<std::int64_t> slots;  // they lie in the files in turn
  for (std::size_t i = 0; i < file.files().size(); ++i) {
    const auto slot = file.reserve();
    if (slot < 0) throw Error("no space in the slow tier", static_cast<int>(-slot));
    slots.push_back(slot);
  }
  for (const auto slot : slots) {
    const auto word = [&](std::uint64_t i) {
      return (i + 1) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(slot);
    };
    const auto in = file.file(slot);
    trial.put(word);
    move("cuFileWrite", granule, [&](std::uint64_t done) {
      return files.write(in, trial.device() + done, granule - done, file.offset(slot) + done);
    });
    trial.put([](std::uint64_t) { return std::uint64_t{0}; });
    move("cuFileRead", granule, [&](std::uint64_t done) {
      return files.read(in, trial.device() + done, granule - done, file.offset(slot) + done);
    });
    if (!trial.has(word))
      throw Error(fmt::format(
          "cuFileRead: what the GPU read from the file is not what it wrote there; {}", kElse));
  }
  for (const auto slot : slots) file.release(slot);
}

}  // namespace sentinel::gpu
