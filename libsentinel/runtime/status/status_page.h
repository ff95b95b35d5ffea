// The file in which a session publishes its status, as the session sees it.
//
//   8 bytes   "SENTSTAT"
//   4 bytes   kStatusVersion
//   4 bytes   the length of the status that follows
//   8 bytes   how often it was written, twice; odd while it is being written
//   ...       the status
//
// The file's name is PID.DIGITS.sentinel, with random digits: two namespaces of processes may share
// the folder. The folder is one that nobody else may write to: $SENTINEL_STATUS, else `sentinel` in
// the user's runtime directory, else /dev/shm/sentinel-UID.
// The session holds a lock on it for as long as it lives. The kernel lets go of it with the process
// however that ends, and tells a reader whose it is: no number of a process has to be believed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "runtime/status/status.h"

namespace sentinel {

struct StatusHeader {
  std::array<char, 8> magic = {'S', 'E', 'N', 'T', 'S', 'T', 'A', 'T'};
  std::uint32_t version = kStatusVersion;
  std::uint32_t bytes = sizeof(Status);
  std::uint64_t written = 0;
};
static_assert(sizeof(StatusHeader) == 24);

constexpr std::string_view kStatusSuffix = ".sentinel";

// Where this user's sessions may have published, the likeliest first; a session takes the first
// that there is or that can be made. None where SENTINEL_STATUS is off.
std::vector<std::string> status_folders();

// One thread writes. Nothing here is needed for training: where no file can be had nothing is
// published, and nobody is told.
class StatusPage {
 public:
  StatusPage() = default;  // publishes nothing
  // Makes the file. Files of sessions that are over are removed.
  static StatusPage make() noexcept;
  ~StatusPage() { remove(); }
  StatusPage(StatusPage&&) noexcept;
  StatusPage& operator=(StatusPage&&) noexcept;

  bool is_open() const { return page_ != nullptr; }
  // No system call, no lock, no allocation.
  void write(const Status&) noexcept;
  // Whoever has the file open still sees what was written last.
  void remove() noexcept;

 private:
  StatusPage(Descriptor folder, Descriptor file, void* page, std::string name)
      : folder_(std::move(folder)),
        file_(std::move(file)),
        page_(page),
        name_(std::move(name)),
        owner_(getpid()) {}

  Descriptor folder_, file_;  // file_: with the lock
  void* page_ = nullptr;
  std::string name_;
  pid_t owner_ = 0;
};

}  // namespace sentinel
