// The two migration threads: the *promoter* reads blocks in, the *demoter* writes blocks out. Each
// owns one executor and waits on it alone: for transfers to complete and for wake().
//
// They begin and end each move with the engine's lock and wait without it. They touch no guarded
// address.
#pragma once

#include <mutex>
#include <thread>

#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_budget.h"
#include "engine/ssd/frame_transfers.h"
#include "engine/ssd/frame_transitions.h"
#include "engine/ssd/frame_use.h"
#include "engine/ssd/frame_victims.h"

namespace sentinel {

class FrameMovers {
 public:
  FrameMovers(std::mutex& lock, FrameBlocks& blocks, const FrameUse& use, StreamOrder& order,
              FrameTransfers& transfers, const FrameBudget& budget, FrameVictims& victims,
              FrameTransitions& transitions)
      : lock_(lock),
        blocks_(blocks),
        use_(use),
        order_(order),
        transfers_(transfers),
        budget_(budget),
        victims_(victims),
        transitions_(transitions) {}

  void start();          // once the slow tier is open; throws
  void stop() noexcept;  // without the lock; what is in flight stays so

 private:
  void promoter() noexcept;
  void demoter() noexcept;
  void start_promotions(EngineLock&) noexcept;
  void start_demanded(EngineLock&) noexcept;
  void start_ahead(EngineLock&) noexcept;
  void foresee() noexcept;
  void start_prefetches(EngineLock&) noexcept;
  void start_demotions(EngineLock&) noexcept;
  bool may_start() const noexcept {
    return !blocks_.frozen() && blocks_.arriving() < transfers_.reader().depth();
  }

  std::mutex& lock_;
  FrameBlocks& blocks_;
  const FrameUse& use_;
  StreamOrder& order_;
  FrameTransfers& transfers_;
  const FrameBudget& budget_;
  FrameVictims& victims_;
  FrameTransitions& transitions_;
  bool stop_ = false;
  std::thread promoter_, demoter_;
};

}  // namespace sentinel
