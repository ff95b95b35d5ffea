// The figures that a session publishes for `sentinel top`: plain data of fixed layout, the same in
// the session's memory, in its file and in the reader's memory.
//
// Who changes a field here raises kStatusVersion: a reader tells another version, and reads no
// figure of it. Times are those of the clock that steps are measured with (CLOCK_MONOTONIC).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace sentinel {

constexpr std::uint32_t kStatusVersion = 1;
constexpr std::size_t kStatusHistory = 128;  // steps
constexpr std::size_t kStatusPoints = 128;   // of the memory over the step
constexpr std::size_t kStatusTensors = 40;   // those of the most bytes moved

// Text of at most N bytes; the rest is zero. A reader makes it fit for a terminal.
template <std::size_t N>
struct StatusText {
  std::array<char, N> bytes;

  void set(std::string_view text) {
    bytes = {};
    text.substr(0, N).copy(bytes.data(), N);
  }
  std::string_view view() const {
    const std::string_view all(bytes.data(), N);
    return all.substr(0, all.find('\0'));
  }
};

struct StatusFigures {  // of a step, or of all steps together
  double us, stall_us, replay_us;
  std::uint64_t in_bytes, out_bytes;  // from and to the slow tier
  std::uint64_t faults, replays, replayed_bytes;
  // Whole blocks, and how long any of them was on its way.
  std::uint64_t read_bytes, written_bytes;
  double read_us, written_us;
};

struct StatusStep {
  float us, stall_us;
};

struct StatusPoint {  // a share of the step's ops: the most of each, as planned
  std::uint64_t needed_bytes, held_bytes;
};

struct StatusTensor {  // that a plan moves
  StatusText<48> name;
  std::uint64_t bytes;
  std::uint32_t leaves, returns;  // the op at whose end it leaves, and the op that it is back for
  std::uint32_t times;            // it leaves, in a step
  std::uint32_t remade;           // 1: it is dropped and made again; nothing is copied
};

// What decides over the memory of the steps.
enum class StatusGuide : std::uint32_t { none, plan, pager };
// `left`: it has met what is not supported, or records, and manages nothing any more.
enum class StatusState : std::uint32_t { trains, left, over };

struct StatusProgram {
  StatusText<160> command;
  StatusText<32> framework, policy;
  StatusText<64> fast, slow;  // the tiers' names
  std::uint32_t rank, ranks;
  double began_us;
};

struct StatusMemory {
  std::uint64_t limit_bytes, held_bytes;  // of fast memory; limit 0: none yet
  std::uint64_t peak_bytes, unlimited_bytes;
};

struct StatusPlan {  // the one in force, or that was last
  double us;         // of a step
  std::uint64_t in_bytes, out_bytes;
  std::uint32_t kinds, ops;  // of step that have a plan; of this one
  std::uint32_t moved_tensors, reserved;
  std::uint32_t points, tensors;  // of those below
  std::array<StatusPoint, kStatusPoints> memory;
  std::array<StatusTensor, kStatusTensors> moves;
};

struct Status {
  StatusProgram program;
  StatusText<16> phase;  // of the last step: StepRow::phase
  StatusState state;
  StatusGuide guide;
  std::uint64_t steps;  // that have ended
  double step_ended_us;
  StatusMemory memory;
  StatusFigures last, total;
  std::array<StatusStep, kStatusHistory> history;  // the step n lies at n % kStatusHistory
  StatusPlan plan;
};
static_assert(std::is_trivially_copyable_v<Status> && sizeof(Status) % 8 == 0);
static_assert(sizeof(Status) < 8192 - 64, "it is written after each step");

}  // namespace sentinel
