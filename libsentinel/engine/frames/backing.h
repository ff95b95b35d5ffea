// What lies behind the arena's blocks, and how a block's memory is taken away and given back.
//
// A *frame* is one granule of physical memory; a *token* names a frame that lies outside the arena.
// Three implementations:
// - MovedFrames: private anonymous memory. Frames move between the arena and a pool with
//   UFFDIO_MOVE, huge pages stay huge, nothing is copied. For training. Linux 6.8.
// - CopiedFrames: the same on older kernels, from Linux 5.14 on (MADV_POPULATE_WRITE). A block is
//   taken by moving its page tables (MREMAP_DONTUNMAP) and put back by a copy.
// - SharedFrames: a memory file mapped twice; a block is taken by zapping its page-table entries,
//   transferred through the alias and then punched out of the file. For counting only: MINOR faults
//   exist for shared memory alone, and a forked child would share it too.
//
// Internal to `engine/`: a seam for tests and for three implementations, which may change at any
// time.
//
// Conditions: the arena's range is registered with the FaultLoop; a block is handled by one thread
// at a time (the engine's block state sees to it); functions return 0 or a negative errno, allocate
// nothing and touch no guarded address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/descriptor.h"
#include "capture/userfault/fault_loop.h"
#include "engine/granule.h"
#include "engine/host/node_calls.h"
#include "engine/host/topology.h"

namespace sentinel {

using Token = std::int32_t;
constexpr Token kNoToken = -1;

// Where a frame lies, of two NUMA nodes that are tiers. Elsewhere all are `slow`.
enum class FrameNode : std::uint8_t { slow, fast };
struct FrameMemory {
  NodeCalls& calls;  // outlives the frames
  NodeTiers nodes;
};

// Whether what arrives in the arena is barred: not at all, as it is not registered for it; until
// the block is installed; until an access source has unbarred it.
enum class Barred : std::uint8_t { never, on_its_way, stays };

class Backing {
 public:
  virtual ~Backing() = default;

  // A new frame (contents unspecified), or a negative errno. Counted by the caller. If the node is
  // full, its memory comes from another one.
  virtual Token create(FrameNode = FrameNode::slow) noexcept = 0;
  virtual void destroy(Token) noexcept = 0;  // gives a frame back to the system

  // Makes the block inaccessible: whoever touches it waits. Its contents are then at buffer().
  // -EBUSY: a page is (or may be) pinned or shared with a child, and stays. -EIO: what had been
  // taken could not be put back; the block's contents are lost.
  virtual int take(BlockIndex, Token& token) noexcept = 0;
  // Whether the guard may call that: not where the kernel has the guard answer it (mremap).
  virtual bool guard_may_take() const noexcept { return false; }
  // The place of I/O for a block that has been taken, or is to be installed with this frame.
  virtual void* buffer(BlockIndex, Token) noexcept = 0;
  // The taken block's contents are no longer needed: its frame is free for another.
  virtual void scrub(BlockIndex, Token) noexcept = 0;
  // Makes the frame the block's memory and wakes who waits for it. Consumes the token.
  virtual int install(BlockIndex, Token) noexcept = 0;
  // Of blocks installed from then on. Only where frames move by UFFDIO_MOVE is it not `never`.
  virtual void arrive(Barred) noexcept {}
};

std::unique_ptr<Backing> make_moved_frames(FaultLoop&, std::uintptr_t arena, std::uint64_t bytes,
                                           const std::optional<FrameMemory>& = {});
std::unique_ptr<Backing> make_copied_frames(FaultLoop&, std::uintptr_t arena, std::uint64_t bytes);

// The pool of the first two: a range of addresses, cut into places; a token is a place. There are
// as many as the arena has blocks, so one can always be had. Thread-safe.
class FrameSlots {
 public:
  explicit FrameSlots(std::uint64_t bytes);
  ~FrameSlots();
  std::uintptr_t begin() const { return begin_; }
  std::uintptr_t address(Token token) const {
    return begin_ + static_cast<std::uint64_t>(token) * kGranule;
  }
  Token take() noexcept;
  void give(Token) noexcept;

 private:
  std::uint64_t bytes_;
  std::uintptr_t begin_;
  std::mutex lock_;           // empty_
  std::vector<Token> empty_;  // places without a frame; the last one given is the next taken
};

class SharedFrames final : public Backing {
 public:
  // `pinned`: by this process, before there was a tensor.
  SharedFrames(FaultLoop&, std::uintptr_t arena, std::uint64_t bytes, std::uint64_t pinned);
  ~SharedFrames() override;

  Token create(FrameNode) noexcept override { return 0; }
  void destroy(Token) noexcept override {}
  int take(BlockIndex, Token&) noexcept override;
  void* buffer(BlockIndex, Token) noexcept override;
  void scrub(BlockIndex, Token) noexcept override;
  int install(BlockIndex, Token) noexcept override;

  // While counting, an installed block stays unmapped: its first touch is the access source's.
  void count(bool on) { counting_ = on; }
  int descriptor() const noexcept;
  int prefer(NodeCalls&, int node) noexcept;  // pages made from then on lie there

  // The arena's mapping has been replaced: nobody writes to the file any more. From then on
  // buffer() is for reading, and blocks are let go by drop_from() alone. -EBUSY: somebody may, for
  // the kernel holds a page of it for I/O, now and a second later.
  int seal() noexcept;
  // Gives back the memory of a sealed file from this block to its end.
  void drop_from(BlockIndex) noexcept;

 private:
  void require_ours() const noexcept;

  FaultLoop& loop_;
  std::uintptr_t arena_, alias_;
  std::uint64_t bytes_;
  OurFile file_;
  std::uint64_t pinned_;
  bool counting_ = false;
};

}  // namespace sentinel
