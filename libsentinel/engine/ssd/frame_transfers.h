// The slow tier's file and the two executors between it and the frames, with what they have
// moved. It knows no block's state but the slot, and decides nothing.
//
// The file is opened when first needed; before that nothing is absent and nobody is to be woken.
// The engine's lock guards all but open() and the executors' waits. One mover waits on each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "engine/io/executors.h"
#include "engine/ssd/blocks.h"

namespace sentinel {

constexpr const char* kLocked =
    "this program has locked memory of tensors (mlock, mlockall), which cannot be moved then";

class FrameTransfers {
 public:
  FrameTransfers(const SlowFile::Options&, const ExecutorOptions&, bool keeps_copies);

  void open();  // throws Error
  bool is_open() const noexcept { return file_ != nullptr; }
  SlowFile& file() const noexcept { return *file_; }
  std::size_t depth() const noexcept { return io_.depth; }  // each way
  // One more executor on the file, so deep, for pieces. Throws Error.
  std::unique_ptr<Executor> make_reader(std::size_t depth) const;

  bool has_reader() const noexcept { return reader_ != nullptr; }
  Executor& reader() const noexcept { return *reader_; }  // these two once open() has returned
  Executor& writer() const noexcept { return *writer_; }
  void wake_reader() const noexcept {
    if (reader_) reader_->wake();
  }
  void wake_writer() const noexcept {
    if (writer_) writer_->wake();
  }
  // The promoter waits for a frame / if it does, there is one for it.
  void starve() noexcept { starved_ = true; }
  void feed() noexcept {
    if (std::exchange(starved_, false)) reader_->wake();
  }

  // Each ends the process where it cannot be started.
  void read(BlockIndex, std::int64_t slot, void* frame) noexcept;
  void write(BlockIndex, std::int64_t slot, void* frame) noexcept;
  void reads_are_over(std::size_t count) noexcept { reading_.finished(count, count * kGranule); }
  void writes_are_over(std::size_t count) noexcept { writing_.finished(count, count * kGranule); }
  // A place in the file, or a negative errno. Where little room is left on the disk, copies that
  // are kept make place, and no more are kept from then on.
  std::int64_t reserve_slot(FrameBlocks&) noexcept;
  bool keeps_copies() const noexcept { return keeps_copies_; }
  void release_copies(FrameBlocks&) noexcept;
  void release_slot(FrameBlock&) noexcept;  // and its copy is of no use any more
  // The block may be written to from now on: its slot is released, or keeps its copy.
  void came_back(FrameBlock&) noexcept;

  // As really moved.
  void promoted() noexcept { promoted_bytes_ += kGranule; }
  void promoted_pieces(std::uint64_t count, std::uint64_t bytes) noexcept;
  void demoted() noexcept { demoted_bytes_ += kGranule; }
  void left_unwritten() noexcept { unwritten_bytes_ += kGranule; }
  void count(EngineCounters&) const;

  // Nothing wrong has been computed yet and nothing must be: the thread that needs the bytes is
  // held in its fault, so the process ends here.
  [[noreturn]] void fail(const char* what, int error) const noexcept;

 private:
  const SlowFile::Options file_options_;
  const ExecutorOptions io_;
  const std::string shown_directory_;  // fail() allocates nothing
  std::unique_ptr<SlowFile> file_;
  std::unique_ptr<Executor> reader_, writer_;
  FlowMeter reading_, writing_;
  bool starved_ = false;  // the promoter waits for a frame
  bool keeps_copies_;     // of resident blocks
  std::uint64_t promoted_bytes_ = 0, demoted_bytes_ = 0, unwritten_bytes_ = 0;
  std::uint64_t pieces_ = 0;  // of the promoted: parts of blocks that were read alone
};

}  // namespace sentinel
