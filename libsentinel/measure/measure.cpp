// Times the slow tier's reads and writes and memory's bandwidth, and describes this machine by
// them.
#include "measure/measure.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <vector>

#include "alloc/ranges.h"
#include "base/clock.h"
#include "base/units.h"
#include "engine/granule.h"
#include "engine/host/limits.h"
#include "measure/exchange.h"
#include "measure/nodes.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"

namespace sentinel {
namespace {

template <class Measure>
double median(Measure measure) {
  std::array<double, 5> values;
  for (double& value : values) value = measure();
  std::ranges::nth_element(values, values.begin() + 2);
  return values[2];
}

// Memory that looks like the engine's frames: whole huge pages, populated.
class Buffer {
 public:
  explicit Buffer(std::size_t frames)
      : bytes_(frames * kGranule), begin_(reserve_anonymous(bytes_, kGranule)) {
    for (std::size_t i = 0; i < bytes_ / 8; ++i)
      reinterpret_cast<std::uint64_t*>(begin_)[i] = i * 0x9E3779B97F4A7C15ull;
  }
  ~Buffer() { munmap(reinterpret_cast<void*>(begin_), bytes_); }
  void* frame(std::size_t i) { return reinterpret_cast<void*>(begin_ + i * kGranule); }

 private:
  std::size_t bytes_;
  std::uintptr_t begin_;
};

// Keeps the executor's queue full until every slot was transferred or `over` is set, which it then
// is; bytes per second.
double transfer(Executor& executor, Buffer& buffer, const std::vector<std::int64_t>& slots,
                bool write, std::atomic<bool>& over) {
  std::array<Completion, 16> done;
  const auto begin = Clock::now();
  std::size_t started = 0, finished = 0;
  for (; started < std::min(executor.depth(), slots.size()); ++started)
    executor.submit({write, slots[started], buffer.frame(started), started});
  double bw = 0;
  while (finished < started) {
    const auto count = executor.wait(done);
    for (std::size_t i = 0; i < count; ++i, ++finished) {
      if (done[i].error != 0) throw Error("could not measure the slow tier", done[i].error);
      if (started == slots.size() || over) continue;
      executor.submit(
          {write, slots[started], buffer.frame(done[i].cookie % executor.depth()), done[i].cookie});
      ++started;
    }
    if (bw == 0 && (over || finished == slots.size())) {
      over = true;
      bw = static_cast<double>(finished * kGranule) / seconds_since(begin);
    }
  }
  return bw;
}

double transfer(Executor& executor, Buffer& buffer, const std::vector<std::int64_t>& slots,
                bool write) {
  std::atomic<bool> over = false;
  return transfer(executor, buffer, slots, write, over);
}

std::vector<std::int64_t> reserve_slots(SlowFile& file, std::size_t count) {
  std::vector<std::int64_t> slots;
  for (std::size_t i = 0; i < count; ++i) {
    slots.push_back(file.reserve());
    if (slots.back() < 0)
      throw Error("no space to measure the slow tier with", static_cast<int>(-slots.back()));
  }
  return slots;
}

}  // namespace

TierSpeed measure_slow_tier(const std::string& directory, std::uint64_t bytes,
                            const ExecutorOptions& io, bool allow_memory) {
  bytes = std::max<std::uint64_t>(bytes, (8 + 2 * io.depth) * kGranule);
  SlowFile file({.directory = directory,
                 .frame_bytes = kGranule,
                 .need_bytes = 2 * bytes,
                 .allow_memory = allow_memory});
  const auto writer = make_executor(file, io), reader = make_executor(file, io);
  const auto old_slots = reserve_slots(file, bytes / kGranule),
             new_slots = reserve_slots(file, bytes / kGranule);
  Buffer outgoing(writer->depth()), incoming(reader->depth());
  TierSpeed speed;
  transfer(*writer, outgoing, new_slots,
           true);  // a slot's first write is slower than all later ones
  transfer(*writer, outgoing, old_slots, true);
  speed.write_bw = transfer(*writer, outgoing, old_slots, true);
  speed.read_bw = transfer(*reader, incoming, old_slots, false);
  std::atomic<bool> over = false;  // as soon as one of the two is
  auto out = std::async(std::launch::async,
                        [&] { return transfer(*writer, outgoing, new_slots, true, over); });
  speed.exchange_read_bw = transfer(*reader, incoming, old_slots, false, over);
  speed.exchange_write_bw = out.get();
  speed.latency_us = median([&, slot = old_slots.begin()]() mutable {
    const auto begin = Clock::now();
    transfer(*reader, incoming, {*slot++}, false);
    return 1e6 * seconds_since(begin);
  });
  return speed;
}

double port_bw(const TierSpeed& speed) {
  const double of_alone =
      speed.exchange_read_bw / speed.read_bw + speed.exchange_write_bw / speed.write_bw;
  return std::max(speed.read_bw, speed.write_bw) * std::clamp(of_alone, 1.0, 2.0);
}

double measure_memory_bw() {
  Buffer from(32), to(32);
  return median([&] {
    const auto begin = Clock::now();
    std::memcpy(to.frame(0), from.frame(0), 32 * kGranule);
    return 32.0 * kGranule / seconds_since(begin);
  });
}

namespace {

std::string measured_on(const std::string& directories) {
  std::string drives;
  for (const auto& directory : split_directories(directories)) {
    struct stat status {};
    if (stat(directory.c_str(), &status) != 0) continue;
    drives += fmt::format(" {}:{}", major(status.st_dev), minor(status.st_dev));
  }
  return "measured with its processors on" + drives;
}

// As much as gives a stable figure, or what a small drive has room for.
std::uint64_t bytes_to_measure(const std::string& directories) {
  constexpr std::uint64_t kEnough = 256_MiB;
  std::uint64_t bytes = kEnough;
  for (const auto& directory : split_directories(directories)) {
    std::error_code unknown;
    const auto space = std::filesystem::space(directory, unknown);
    if (!unknown) bytes = std::min<std::uint64_t>(bytes, space.available / 4);
  }
  return bytes;
}

// Zero where it cannot be measured: on a drive with little room, or where no faults are to be had.
double cpu_s_per_gb(const std::string& directories, bool allow_memory) try {
  constexpr std::uint64_t kMovedBytes = 96_MiB;
  if (bytes_to_measure(directories) < kMovedBytes) return 0;
  return measure_cpu_s_per_gb({.slow_directory = directories,
                               .allow_memory_tier = allow_memory,
                               .keep_copies = false,  // none would be of use
                               .arena_bytes = 2 * kMovedBytes},
                              kMovedBytes / kGranule);
} catch (const Error&) {
  return 0;
}

}  // namespace

Machine measure_machine(const std::string& directory, bool allow_memory) {
  const auto speed = measure_slow_tier(directory, bytes_to_measure(directory),
                                       {.frame_bytes = kGranule}, allow_memory);
  const auto memory = measure_memory_bw();
  // The engine keeps its queue full, so the bandwidth has the latency in it; only what is asked for
  // by demand waits for it.
  const double fault_us = speed.latency_us - 1e6 * kGranule / speed.read_bw;
  Machine machine{.name = "local",
                  .source = measured_on(directory),
                  .fault_us = std::max(0.0, fault_us),
                  .fault_batch_bytes = kGranule,
                  .granule_bytes = kGranule,
                  .exclusive = true,
                  .cpu_s_per_gb = cpu_s_per_gb(directory, allow_memory)};
  machine.tiers.push_back({.name = "dram",
                           .capacity = physical_bytes(),
                           .read_bw = memory,
                           .write_bw = memory,
                           .latency_us = 0.1,
                           .byte_addressable = true});
  machine.tiers.push_back({.name = "ssd",
                           .read_bw = speed.read_bw,
                           .write_bw = speed.write_bw,
                           .byte_addressable = false});
  machine.links.push_back(
      {.name = "ssd", .bw = port_bw(speed), .tiers = {"ssd"}, .half_duplex = true});
  return machine;
}

Machine measure_machine(const SessionOptions& options) {
  if (options.gpu.device)
    return measure_gpu(*open_gpu(options), local_machine(options), options.tiers.granule_bytes);
  if (options.tiers.nodes) return measure_nodes(*options.tiers.nodes, options.tiers.granule_bytes);
  return measure_machine(options.tiers.slow_directory, options.tiers.allow_tmpfs);
}

SessionOptions of_drive(SessionOptions options) {
  options.gpu.device.reset();
  options.gpu.driver.reset();
  options.tiers.nodes.reset();
  options.machine.clear();
  if (options.moves.io == kCuFile) options.moves.io = "auto";
  return options;
}

gpu::HostOptions host_options(const SessionOptions& options) {
  const bool direct = options.moves.io == kCuFile;
  return {.bytes = options.gpu.host_bytes,
          .directory = options.tiers.slow_directory,
          .allow_memory = options.tiers.allow_tmpfs,
          .io = parse_io_backend(direct ? "threads" : options.moves.io),
          .depth = options.moves.depth,
          .inject = options.moves.inject,
          .checksums = options.moves.checksums,
          .cufile = direct ? options.gpu.cufile : ""};
}

// What goes between the device and either crosses the link to the host. Where that was measured as
// slower one way, both ways count as the faster one's from here on (LinkSpec): it is no port any
// more.
void put_drive_below(Machine& machine, const SessionOptions& options) {
  auto& tiers = machine.tiers;
  if (options.gpu.host_bytes == 0 && !options.tiers.three()) return;
  if (tiers.size() < 2) throw Error(fmt::format("machine {} has no host's memory", machine.name));
  tiers[1].capacity = options.tiers.three() ? options.tiers.node_bytes
                                            : gpu::HostStore::capacity(host_options(options),
                                                                       options.tiers.granule_bytes);
  if (tiers.size() > 2) return;
  const auto drive = of_drive(options);
  const auto below = known_machine(drive);
  tiers.push_back(below.tiers.back());
  for (auto& link : machine.links)
    if (link.tiers == std::vector{tiers[1].name})
      link.tiers = {tiers[0].name, tiers[1].name, tiers[2].name};
  machine.links.insert(machine.links.end(), below.links.begin(), below.links.end());
}

Machine known_machine(const SessionOptions& options) {
  return is_measured(options) ? sim::find_machine(local_machine(options))
                              : measure_machine(options);
}

bool is_measured(const SessionOptions& options) {
  const auto name = local_machine(options);
  if (!sim::has_local_machine(name)) return false;
  if (options.tiers.nodes || options.gpu.device) return true;
  try {
    return sim::find_machine(name).source == measured_on(options.tiers.slow_directory);
  } catch (const Error&) {  // damaged: to be measured anew
    return false;
  }
}

}  // namespace sentinel
