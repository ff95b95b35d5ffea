// The SSD tier: a file without a name on each disk, readable by its owner only, cut into slots of
// one frame each. Slots lie on the disks in turn, so that blocks are spread over all of them.
//
// Nobody else has business with the files: each ends where it was left, and a slot's bytes have the
// checksums that were taken of them (checked_executor.cpp compares, with every transfer).
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "engine/io/checksums.h"
#include "engine/io/child_life.h"
#include "sentinel/tier.h"

namespace sentinel {

// How a transfer ends whose bytes are not those that were written, or whose file ends elsewhere
// than it was left. print_transfer_error() says it of these, and else what errno means.
constexpr int kOtherBytes = EBADMSG, kOtherEnd = ESTALE;
const char* print_transfer_error(int error) noexcept;

class SlowFile final : public Tier {
 public:
  struct Options {
    std::string directory;  // or several, separated by commas
    std::uint64_t frame_bytes = 0;
    std::uint64_t need_bytes = 0;  // free space to insist on, on all disks together; 0: none
    bool allow_memory = false;     // a tmpfs is refused otherwise: it would not save any memory
    bool named = false;            // until forget_names(): cuFile registers no others
    ChecksumLevel checksums = ChecksumLevel::sampled;
  };

  // Throws Error (what to do included) where the directory is missing, in memory, full or
  // read-only.
  explicit SlowFile(const Options&);
  ~SlowFile() override;
  SlowFile(const SlowFile&) = delete;
  SlowFile& operator=(const SlowFile&) = delete;

  std::uint64_t capacity() const override;
  bool byte_addressable() const override { return false; }
  std::int64_t reserve() noexcept override;
  // Whether the next slot needs a longer file, and that would leave others less than the file has.
  bool is_short() const noexcept;
  void release(std::int64_t slot) noexcept override;

  // Which of files() holds the slot, and where in it.
  std::size_t file(std::int64_t slot) const {
    return static_cast<std::size_t>(slot) % files_.size();
  }
  std::uint64_t offset(std::int64_t slot) const {
    return static_cast<std::uint64_t>(slot) / files_.size() * frame_bytes_;
  }
  int descriptor(std::int64_t slot) const { return files_[file(slot)].number(); }
  // Else the program has closed the slot's file, and errno is EBADF.
  bool is_ours(std::int64_t slot) const noexcept { return files_[file(slot)].is_ours(); }
  std::vector<int> files() const;
  bool direct() const { return direct_; }  // all of them
  void forget_names() noexcept;

  Checksums& checksums() const { return checksums_; }
  // Whether the slot's file ends where it was left: another process may have truncated it.
  bool ends_as_left(std::int64_t slot) const noexcept;

  // Around fork(), for a child that reads what has been written so far. A mapping of the files
  // serves it, for it may close every descriptor; slots keep their contents until it has gone, and
  // those that it forks. before_fork() answers 0 or a negative errno: the child cannot be served.
  // One thread forks at a time, and nobody reserves a slot meanwhile.
  int before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;
  // In the child: the slot's bytes, until let_go(); null where the file has them no more.
  const void* child_copy(std::int64_t slot) const noexcept;
  void let_go(const void* child_copy) const noexcept;
  // Whether the slot's file still reaches to where it ended at the fork; asked after the bytes were
  // taken.
  bool child_has_end(std::int64_t slot) const noexcept;

 private:
  struct Child {
    ChildLife life;
    std::uint64_t generation = 0;  // slots reserved before it are the child's to read
  };
  struct Mapping {
    void* address = nullptr;
    std::uint64_t bytes = 0;
  };

  void open_in(const std::string& directory, bool named);
  int open_named(const std::string& directory, int flags, bool stays);
  std::int64_t slots_to_grow() const noexcept;  // of each file
  bool grow() noexcept;
  bool extend(const OurFile&, std::uint64_t end) const noexcept;
  int map_files() noexcept;
  void unmap_files() noexcept;
  void reap() noexcept;
  bool child_may_read(std::int64_t slot) const noexcept;

  std::uint64_t frame_bytes_;
  std::vector<OurFile> files_;
  std::vector<std::string> names_;
  bool direct_ = true;
  mutable Checksums checksums_;
  // Where each file ends, in bytes; between the two while the files grow.
  std::atomic<std::uint64_t> end_ = 0, next_end_ = 0;
  ChildLife life_;                 // of the child that is being forked
  std::vector<Mapping> mappings_;  // of the files, around a fork and in a child
  mutable std::mutex lock_;        // guards all below
  std::int64_t slots_ = 0;         // allocated on disk
  std::vector<std::int64_t> free_, kept_;
  std::vector<std::uint64_t> generation_of_;  // per slot: generation_ when it was reserved
  std::vector<Child> children_;
  std::uint64_t generation_ = 0;
};

// Whether the path is such a file's name, left behind by a process that is gone; a minute after it
// was last written, for one that has begun may not have been locked yet.
bool is_left_behind(const std::string& path);

// The directories of a list separated by commas; one that exists under the whole name is one.
std::vector<std::string> split_directories(const std::string&);

}  // namespace sentinel
