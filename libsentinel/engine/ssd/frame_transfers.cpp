// Submits reads and writes of frames, and counts their bytes and failures.
#include "engine/ssd/frame_transfers.h"

#include <cerrno>
#include <cstdio>

#include "base/kept_memory.h"
#include "base/text.h"
#include "engine/host/stop.h"

namespace sentinel {

FrameTransfers::FrameTransfers(const SlowFile::Options& file, const ExecutorOptions& io,
                               bool keeps_copies)
    : file_options_(file),
      io_(io),
      shown_directory_(printable(file.directory)),
      keeps_copies_(keeps_copies) {}

void FrameTransfers::open() {
  file_ = std::make_unique<SlowFile>(file_options_);
  reader_ = make_executor(*file_, io_);
  writer_ = make_executor(*file_, io_);
}

std::unique_ptr<Executor> FrameTransfers::make_reader(std::size_t depth) const {
  auto io = io_;
  io.depth = depth;
  return make_executor(*file_, io);
}

void FrameTransfers::read(BlockIndex index, std::int64_t slot, void* frame) noexcept {
  reading_.started();
  const int code = reader_->submit({false, slot, frame, index});
  if (code != 0) fail("could not start a read", -code);
}

void FrameTransfers::write(BlockIndex index, std::int64_t slot, void* frame) noexcept {
  writing_.started();
  const int submitted = writer_->submit(
      {.write = true, .slot = slot, .frame = frame, .cookie = index, .unchecked = true});
  if (submitted != 0) fail("could not start a write", -submitted);
}

std::int64_t FrameTransfers::reserve_slot(FrameBlocks& blocks) noexcept {
  if (keeps_copies_ && !file_->is_short())
    if (const auto slot = file_->reserve(); slot >= 0) return slot;
  if (std::exchange(keeps_copies_, false)) release_copies(blocks);
  return file_->reserve();
}

void FrameTransfers::release_copies(FrameBlocks& blocks) noexcept {
  for (const auto index : blocks.resident()) release_slot(blocks[index]);
}

void FrameTransfers::release_slot(FrameBlock& block) noexcept {
  block.copy.forget();
  if (block.slot >= 0) file_->release(block.slot);
  block.slot = -1;
}

void FrameTransfers::came_back(FrameBlock& block) noexcept {
  if (!keeps_copies_ || !block.copy.is_kept()) release_slot(block);
}

void FrameTransfers::promoted_pieces(std::uint64_t count, std::uint64_t bytes) noexcept {
  promoted_bytes_ += count * bytes;
  pieces_ += count;
}

void FrameTransfers::count(EngineCounters& counters) const {
  counters.promoted_bytes = promoted_bytes_;
  counters.demoted_bytes = demoted_bytes_;
  counters.unwritten_bytes = unwritten_bytes_;
  counters.pieces = pieces_;
  counters.reading = reading_.flow();
  counters.writing = writing_.flow();
  if (file_) counters.checksum_us = file_->checksums().spent_us();
}

void FrameTransfers::fail(const char* what, int error) const noexcept {
  if (error == EINVAL && locked_bytes() >= kGranule) stop_training(kLocked);
  char why[384];
  snprintf(why, sizeof why, "%s: %s (slow tier: %s)", what, print_transfer_error(error),
           shown_directory_.c_str());
  stop_training(why);
}

}  // namespace sentinel
