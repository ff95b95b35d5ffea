// Starts transfers between places and the file, and ends those that the executor reports.
#include "engine/gpu/store/file_transfers.h"

#include <algorithm>
#include <array>

#include "engine/gpu/store/file_trial.h"

namespace sentinel::gpu {

void FileTransfers::open(Driver& driver, const HostOptions& options) {
  file_ = std::make_unique<SlowFile>(SlowFile::Options{
      .directory = options.directory,
      .frame_bytes = granule_,
      .allow_memory = options.allow_memory,
      .named = !options.cufile.empty(),
      .checksums = options.cufile.empty() ? options.checksums : ChecksumLevel::off});
  if (!options.cufile.empty()) device_ = driver.open_files(file_->files(), options.cufile);
  file_->forget_names();  // where the call throws, file_ does
  if (device_) try_files(driver, *device_, *file_, granule_);
  executor_ = make_executor(*file_, {.backend = options.io,
                                     .depth = options.depth,
                                     .frame_bytes = granule_,
                                     .inject = options.inject,
                                     .device = device_.get()});
}

void FileTransfers::reserve_slot(HostPlace* place) {
  place->slot = file_->reserve();
  if (place->slot < 0)
    throw Error(
        "no space for what neither the GPU nor the host's memory holds; free some, give "
        "--host-memory more, or name another directory with --slow",
        static_cast<int>(-place->slot));
}

void FileTransfers::release_slot(HostPlace* place) {
  if (place->slot >= 0) file_->release(place->slot);
}

bool FileTransfers::has_room_to_write() const {
  const auto most_writes = std::max<std::size_t>(1, executor_->depth() / 2);
  return writing_now_ < most_writes && has_room();
}

void FileTransfers::start(HostPlace* place, bool down) {
  const bool device = place->device != nullptr;
  if (down && !device) ++emptying_;
  place->way = down ? HostPlace::Way::down : HostPlace::Way::up;
  ++(down ? writing_now_ : reading_now_);
  (down ? writing_ : reading_).started();
  if (const int code = executor_->submit({.write = down,
                                          .slot = place->slot,
                                          .frame = device ? place->device : place->memory,
                                          .cookie = reinterpret_cast<std::uint64_t>(place),
                                          .device = device});
      code != 0)
    throw Error(down ? "could not start a write" : "could not start a read", -code);
}

void FileTransfers::ended(const HostPlace* place) {
  const bool up = place->way == HostPlace::Way::up;
  --(up ? reading_now_ : writing_now_);
  (up ? reading_ : writing_).finished(1, granule_);
}

void FileTransfers::await_rest() {
  std::array<Completion, 16> done;
  while (under_way() > 0) {
    const auto count = executor_->wait(done);
    for (std::size_t i = 0; i < count; ++i) {
      const auto* place = reinterpret_cast<const HostPlace*>(done[i].cookie);
      --(place->way == HostPlace::Way::up ? reading_now_ : writing_now_);
    }
  }
}

}  // namespace sentinel::gpu
