// Times a GPU's copies and mappings through the driver's seam, and takes the medians.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "engine/gpu/gpu_engine.h"
#include "engine/gpu/managed_driver.h"
#include "engine/granule.h"
#include "measure/measure.h"
#include "plan/check/plan_file.h"
#include "sentinel/analysis.h"
#include "trace/read_any.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kBytes = 128_MiB;  // of a copy that is long enough to tell a bandwidth
constexpr std::uint64_t kShare = 8;        // of what the device has free, if that is less
constexpr int kRounds = 5;                 // of which the median is taken
constexpr double kFaster = 1.05;           // managed memory has to be; less is noise
constexpr std::uint64_t kRoom = 3;  // peaks: plans give disjoint lifetimes addresses of their own

double median(std::array<double, kRounds>& values) {
  std::ranges::nth_element(values, values.begin() + kRounds / 2);
  return values[kRounds / 2];
}

// Two ranges of the device's memory and two of the host's; some granules of the device's beside.
class Rig {
 public:
  Rig(gpu::Driver& driver, std::uint64_t granule)
      : driver_(driver),
        granule_(round_up(granule, driver.granularity())),
        bytes_(round_up(std::min(kBytes, driver.free_bytes() / kShare), driver.granularity())) {
    try {
      for (auto& range : device_) {
        make(range, bytes_, 1);
        map(range);
      }
      make(granules_, granule_, gpu::neighbours(granule_));
      for (auto& memory : host_) memory = driver_.pin(bytes_);
      for (auto& stream : streams_) stream = driver_.make_stream();
      for (auto& event : events_) event = driver_.make_event();
    } catch (...) {
      end();
      throw;
    }
  }
  ~Rig() { end(); }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  struct Way {
    bool in = false, out = false, within = false;
  };

  // Bytes per second of each copy, where all of `ways` go at once.
  double bw(Way way) { return static_cast<double>(bytes_) / seconds(way, bytes_); }
  std::uint64_t granule() const { return granule_; }
  double granule_seconds() { return seconds({.in = true}, granule_); }

  // Seconds of the calls that put a granule's memory in its place, and take it away, with as many
  // neighbours as may be.
  struct Mapping {
    double map, unmap;
  };
  Mapping mapping() {
    const auto together = static_cast<double>(gpu::neighbours(granule_));
    std::array<double, kRounds> in, out;
    for (std::size_t i = 0; i < kRounds; ++i) {
      auto begin = Clock::now();
      map(granules_);
      in[i] = seconds_since(begin) / together;
      begin = Clock::now();
      unmap(granules_);
      out[i] = seconds_since(begin) / together;
    }
    return {median(in), median(out)};
  }

 private:
  struct MappedRange {
    std::uint64_t bytes = 0, reserved = 0;  // of each chunk; of addresses
    std::uintptr_t address = 0;
    std::vector<gpu::Chunk> chunks;
    bool mapped = false;
  };

  void make(MappedRange& range, std::uint64_t bytes, std::size_t chunks) {
    range.bytes = bytes;
    range.reserved = bytes * chunks;
    range.address = driver_.reserve(range.reserved);
    while (range.chunks.size() < chunks) {
      const auto chunk = driver_.create(bytes);
      if (!chunk) throw Error("the GPU has too little memory free to be measured");
      range.chunks.push_back(*chunk);
    }
  }
  void map(MappedRange& range) {
    driver_.map_all(range.address, range.bytes, range.chunks);
    range.mapped = true;
  }
  void unmap(MappedRange& range) {
    driver_.unmap_all(range.address, range.bytes, range.chunks.size());
    range.mapped = false;
  }
  void give_back(MappedRange& range) {
    if (range.mapped) unmap(range);
    for (const auto chunk : range.chunks) driver_.destroy(chunk);
    if (range.address != 0) driver_.unreserve(range.address, range.reserved);
  }

  // Until the last has ended: of two ways at once the slower one's bandwidth.
  double seconds(Way way, std::uint64_t bytes) {
    const auto at = [&](std::size_t i) { return reinterpret_cast<void*>(device_[i].address); };
    std::array<double, kRounds> all;
    for (double& value : all) {
      if (way.in) driver_.copy(host_[0], at(0), bytes, streams_[0]);  // managed memory moves once
      if (way.out || way.within) driver_.copy(at(1), host_[1], bytes, streams_[1]);
      if (way.within) driver_.copy(at(0), host_[0], bytes, streams_[0]);
      synchronize();
      const auto begin = Clock::now();
      if (way.in) driver_.copy(at(0), host_[0], bytes, streams_[0]);
      if (way.out) driver_.copy(host_[1], at(1), bytes, streams_[1]);
      if (way.within) driver_.copy(at(1), at(0), bytes, streams_[0]);
      synchronize();
      value = seconds_since(begin);
    }
    return median(all);
  }

  void synchronize() {
    for (std::size_t i = 0; i < 2; ++i) driver_.record(events_[i], streams_[i]);
    for (auto* event : events_) driver_.synchronize(event);
  }

  void end() noexcept {
    try {
      for (auto* event : events_)
        if (event != nullptr) driver_.destroy_event(event);
      for (auto* stream : streams_)
        if (stream != nullptr) driver_.destroy_stream(stream);
      for (void* memory : host_)
        if (memory != nullptr) driver_.unpin(memory);
      for (auto& range : device_) give_back(range);
      give_back(granules_);
    } catch (const Error&) {  // the driver has failed before, and said so
    }
  }

  gpu::Driver& driver_;
  std::uint64_t granule_, bytes_;
  std::array<MappedRange, 2> device_;
  MappedRange granules_;
  std::array<void*, 2> host_{};
  std::array<gpu::Stream, 2> streams_{};
  std::array<gpu::Event, 2> events_{};
};

}  // namespace

std::unique_ptr<gpu::Driver> open_gpu(const SessionOptions& options) {
  auto driver = gpu::open_driver(*options.gpu.device, options.gpu.cuda);
  if (options.gpu.memory == "managed") return gpu::make_managed_driver(std::move(driver));
  return driver;
}

SessionOptions with_gpu_memory(SessionOptions options, const KnownMachine& known) {
  if (options.gpu.device && options.counting.source == "kernel") options.gpu.memory = kPageable;
  if (options.gpu.device && options.counting.source == kCupti && options.gpu.memory == "auto")
    options.gpu.memory = "managed";
  if (options.gpu.memory != "auto") return options;
  options.gpu.memory = "pools";
  if (!options.gpu.device || options.gpu.host_bytes != 0 || !options.machine.empty())
    return options;
  auto managed = options;
  managed.gpu.memory = "managed";
  if (!options.plan.empty())
    return plan::read_plan(options.plan).machine == local_machine(managed) ? managed : options;
  if (options.profile.empty()) return options;
  const auto peak = peak_live_bytes(read_any(options.profile));
  const auto link_bw = [&](const SessionOptions& way) {
    const auto machine = known(way);
    return machine.links.empty() ? 0 : machine.links.front().bw;
  };
  try {
    const double pools_bw = link_bw(options), managed_bw = link_bw(managed);
    const bool faster = pools_bw > 0 && managed_bw > kFaster * pools_bw;
    if (!faster) return options;
    const auto free = open_gpu(managed)->free_bytes();
    return kRoom * peak <= free - gpu::spare_of(free) ? managed : options;
  } catch (const Error&) {  // no managed memory; what pools lack is said when they are opened
    return options;
  }
}

// The engine maps what comes and unmaps what has left, one after the other, beside the copies: what
// takes longer is the rate. Managed memory needs no such calls. The host's memory is without a
// limit unless --host-memory gives one: some machines' grows as it is touched, and no measurement
// tells how far.
Machine measure_gpu(gpu::Driver& driver, const std::string& name, std::uint64_t granule_bytes) {
  const auto capacity = driver.free_bytes();
  Rig rig(driver, granule_bytes);
  rig.bw({.in = true, .out = true});  // the first copies wait for the device to wake up
  const auto [map, unmap] = rig.mapping();
  const auto granule = static_cast<double>(rig.granule());
  const auto of = [&](double bw, double seconds) { return std::min(bw, granule / seconds); };
  TierSpeed speed{.write_bw = of(rig.bw({.out = true}), unmap),
                  .read_bw = of(rig.bw({.in = true}), map)};
  speed.exchange_read_bw = speed.exchange_write_bw =
      of(rig.bw({.in = true, .out = true}), map + unmap);
  const double granule_us = 1e6 * (map + rig.granule_seconds() - granule / speed.read_bw);
  const double within = 2 * rig.bw({.within = true});  // each byte is read and written
  Machine machine{.name = name,
                  .source = "measured",
                  .fault_us = std::max(0.0, granule_us),
                  .fault_batch_bytes = rig.granule(),
                  .granule_bytes = rig.granule(),
                  .exclusive = true};
  machine.tiers.push_back({.name = "hbm",
                           .capacity = capacity,
                           .read_bw = within,
                           .write_bw = within,
                           .byte_addressable = true});
  machine.tiers.push_back({.name = "host", .read_bw = speed.read_bw, .write_bw = speed.write_bw});
  machine.links.push_back(
      {.name = "pcie", .bw = port_bw(speed), .tiers = {"host"}, .half_duplex = true});
  return machine;
}

}  // namespace sentinel
