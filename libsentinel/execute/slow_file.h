// The SSD tier: a file without a name on each disk, readable by its owner only, cut into slots of
// one frame each. Slots lie on the disks in turn, so that blocks are spread over all of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "sentinel/tier.h"

namespace sentinel {

class SlowFile final : public Tier {
 public:
  struct Options {
    std::string directory;  // or several, separated by commas
    std::uint64_t frame_bytes = 0;
    std::uint64_t need_bytes = 0;  // free space to insist on, on all disks together; 0: none
    bool allow_memory = false;     // a tmpfs is refused otherwise: it would not save any memory
    bool named = false;            // until forget_names(): cuFile registers no others
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
  void release(std::int64_t slot) noexcept override;

  // Which of files() holds the slot, and where in it.
  std::size_t file(std::int64_t slot) const {
    return static_cast<std::size_t>(slot) % files_.size();
  }
  std::uint64_t offset(std::int64_t slot) const {
    return static_cast<std::uint64_t>(slot) / files_.size() * frame_bytes_;
  }
  int descriptor(std::int64_t slot) const { return files_[file(slot)]; }
  const std::vector<int>& files() const { return files_; }
  bool direct() const { return direct_; }  // all of them
  void forget_names() noexcept;

  // A child was forked: slots written so far keep their contents until it has gone. `alive` is the
  // read end of a pipe whose write end only the child holds. Takes ownership of it.
  void keep_for_child(int alive) noexcept;

 private:
  struct Child {
    int alive = -1;
    std::uint64_t generation = 0;  // slots reserved before it are the child's to read
  };

  void open_in(const std::string& directory, bool named);
  int open_named(const std::string& directory, int flags, bool stays);
  bool grow() noexcept;
  void reap() noexcept;
  bool child_may_read(std::int64_t slot) const noexcept;

  std::uint64_t frame_bytes_;
  std::vector<int> files_;  // descriptors
  std::vector<std::string> names_;
  bool direct_ = true;
  mutable std::mutex lock_;  // guards all below
  std::int64_t slots_ = 0;   // allocated on disk
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
