// The file below the host's memory, and the transfers that are under way to and from it: by the
// host's memory, or by the device itself. It chooses no place and makes none.
//
// The engine's lock guards it, but for wait(), which the store's own thread calls without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/flow.h"
#include "engine/gpu/device/driver.h"
#include "engine/gpu/store/host_options.h"
#include "engine/gpu/store/place.h"

namespace sentinel::gpu {

class FileTransfers {
 public:
  explicit FileTransfers(std::uint64_t granule) : granule_(granule) {}
  void open(Driver&, const HostOptions&);  // throws Error where the file cannot be had

  bool has_file() const { return file_ != nullptr; }
  bool by_device() const { return device_ != nullptr; }

  void reserve_slot(HostPlace*);  // throws Error where the disk is full
  void release_slot(HostPlace*);

  bool has_room() const { return under_way() < executor_->depth(); }
  // Writes take half of the transfers at most, so that reads do not wait for them.
  bool has_room_to_write() const;
  void start(HostPlace*, bool down);
  void ended(const HostPlace*);        // as the executor says
  void has_emptied() { --emptying_; }  // a write from the host's memory has gone well
  std::size_t emptying() const { return emptying_; }
  std::size_t under_way() const { return reading_now_ + writing_now_; }
  void await_rest();  // of what is under way: it uses the memory

  std::size_t wait(std::span<Completion> done) { return executor_->wait(done); }
  void wake() { executor_->wake(); }

  Flow reading() const { return reading_.flow(); }
  Flow writing() const { return writing_.flow(); }

 private:
  const std::uint64_t granule_;
  std::unique_ptr<SlowFile> file_;       // null: the host's memory has no limit
  std::unique_ptr<DeviceFiles> device_;  // null: what moves passes the host's memory
  std::unique_ptr<Executor> executor_;
  std::size_t reading_now_ = 0, writing_now_ = 0;
  std::size_t emptying_ = 0;  // of the writes: those from the host's memory
  FlowMeter reading_, writing_;
};

}  // namespace sentinel::gpu
