#include "fuzz/host_readers.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/descriptor.h"
#include "base/files.h"
#include "broker/server/gains.h"
#include "broker/server/ledger_file.h"
#include "broker/wire/message.h"
#include "broker/wire/socket.h"
#include "capture/samples/sample_buffer.h"
#include "engine/numa/numa_maps.h"
#include "fuzz/input_files.h"
#include "fuzz/steps.h"
#include "options/options.h"
#include "options/table.h"
#include "runtime/status/status_page.h"
#include "runtime/status/status_reader.h"
#include "sentinel/error.h"
#include "sharing/jobs_list.h"
#include "top/figures.h"
#include "top/view.h"
#include "training/testimony.h"

namespace sentinel::fuzz {
namespace {

namespace fs = std::filesystem;

template <class T>
std::string raw(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// What stands in a ledger for the boot of this machine, so that a file outlives it.
constexpr std::string_view kBoot = "THIS-BOOT";
std::string boot() { return first_line("/proc/sys/kernel/random/boot_id"); }

std::string with(std::string text, std::string_view from, std::string_view to) {
  if (const auto at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
  return text;
}

void show(const Message& message) {
  text_of(message.policy) + text_of(message.machine) + text_of(message.name) +
      text_of(message.text);
}

void show(const std::vector<cli::Session>& sessions) {
  cli::json_of(sessions, 7e9);
  for (const bool blocks : {true, false}) {
    cli::Canvas canvas(80, 30);
    cli::draw(canvas, {.sessions = sessions, .now_us = 7e9, .blocks = blocks});
    canvas.painted();
  }
}

// Variables of the environment for as long as it lives.
class Variables {
 public:
  Variables() = default;
  ~Variables() {
    for (const auto& name : names_) unsetenv(name.c_str());
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  void set(const std::string& name, const std::string& value) {
    if (known().contains(name) && setenv(name.c_str(), value.c_str(), 1) == 0) names_.insert(name);
  }

 private:
  static const std::set<std::string>& known() {
    static const std::set<std::string> names = [] {
      std::set<std::string> all{
          "RANK",         "WORLD_SIZE",   "LOCAL_WORLD_SIZE",     "SENTINEL_SPAWNED",
          "SLURM_PROCID", "SLURM_NODEID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"};
      for (const auto& row : option_table()) all.insert(row.variable);
      return all;
    }();
    return names;
  }
  std::set<std::string> names_;
};

struct RingHead {
  std::uint64_t tail = 0, head = 0;
};

template <class... Words>
std::string record(std::uint32_t type, Words... words) {
  std::string body;
  ((body += raw(static_cast<std::uint64_t>(words))), ...);
  return raw(perf_event_header{
             .type = type,
             .misc = 0,
             .size = static_cast<std::uint16_t>(sizeof(perf_event_header) + body.size())}) +
         body;
}

Status status_of_training() {
  Status status{};
  status.program.command.set("python3 train.py");
  status.program.framework.set("torch 2.12");
  status.program.policy.set("sentinel");
  status.program.fast.set("memory");
  status.program.slow.set("/tmp");
  status.program.ranks = 1;
  status.program.began_us = 1e9;
  status.phase.set("planned");
  status.guide = StatusGuide::plan;
  status.steps = 300;
  status.step_ended_us = 6.9e9;
  status.memory = {.limit_bytes = 1 << 30,
                   .held_bytes = 1 << 29,
                   .peak_bytes = 1 << 30,
                   .unlimited_bytes = 3 << 29};
  status.last = {
      .us = 5e4, .stall_us = 1e3, .in_bytes = 1 << 28, .out_bytes = 1 << 28, .faults = 3};
  status.total = status.last;
  for (auto& step : status.history) step = {5e4f, 1e3f};
  status.plan.us = 4.8e4;
  status.plan.kinds = 1;
  status.plan.ops = 900;
  status.plan.points = kStatusPoints;
  status.plan.tensors = 2;
  for (std::size_t i = 0; i < kStatusPoints; ++i) status.plan.memory[i] = {i << 22, i << 21};
  status.plan.moves[0] = {.bytes = 1 << 24, .leaves = 5, .returns = 80, .times = 1};
  status.plan.moves[0].name.set("layer1.weight");
  status.plan.moves[1] = status.plan.moves[0];
  return status;
}

}  // namespace

// As a job and the broker do: from a socket, with the descriptor that came.
void read_message(std::string_view bytes) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::runtime_error("no sockets");
  const Descriptor ours(ends[0]), theirs(ends[1]);
  const auto sent = bytes.substr(0, 4096);
  if (send(theirs.get(), sent.data(), sent.size(), 0) != static_cast<ssize_t>(sent.size()))
    throw std::runtime_error("nothing was sent");
  Packet packet;
  if (const int code = receive_packet(ours.get(), packet)) throw Error("the connection ends", code);
  const auto message = parse_message(packet.bytes);
  if (!message) throw Error("that is no message");
  show(*message);
}

void read_needs(std::string_view bytes) {
  constexpr std::size_t kMost = 1 << 20;
  const auto trace = read_sealed(sealed_file(bytes), kMost);
  if (!trace) throw Error("a profile comes as a sealed memory file");
  use(*profile_of(*trace));
}

void read_listing(std::string_view bytes) {
  static const int off = setenv("SENTINEL_STATUS", "off", 1);  // sessions that really run
  if (off != 0) throw std::runtime_error("no environment");
  for (const bool as_json : {false, true}) cli::print_jobs(std::string(bytes), as_json);
}

void read_the_ledger(std::string_view bytes) {
  const auto path = named_file(with(std::string(bytes), kBoot, boot()));
  read_ledger(path);
}

void read_status(std::string_view bytes) {
  using Found = StatusReader::Found;
  using Life = cli::Session::Life;
  StatusReader reader(named_file(bytes));
  const auto found = reader.read();
  if (found == Found::no_status) throw Error("that is no file of a session");
  for (const auto life : {Life::runs, Life::over, Life::died, Life::other_version})
    show({{.process = 7, .life = life, .status = reader.status(), .version = reader.version()}});
  if (found != Found::status) throw Error("there is no status in it");
}

void read_hashes(std::string_view bytes) {
  const auto path = named_file(bytes);
  const auto one = cli::read_testimony(fs::path(path).parent_path() / "input");
  if (one.tensors() > bytes.size()) throw std::runtime_error("more tensors than bytes");
}

void read_samples(std::string_view bytes) {
  RingHead head;
  if (bytes.size() <= sizeof head) throw Error("there is no ring");
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  struct alignas(64) Block {
    std::byte bytes[64];
  };
  std::vector<Block> mapping((SampleRing::kHeader + bytes.size()) / sizeof(Block) + 1);
  std::memcpy(mapping.front().bytes + SampleRing::kHeader, bytes.data(), bytes.size());
  auto* const page = reinterpret_cast<perf_event_mmap_page*>(mapping.data());
  page->data_tail = head.tail;
  page->data_head = head.head;
  std::uint64_t lost = 0;
  std::size_t records = 0;
  SampleRing(mapping.data(), bytes.size()).take([&](const SampleRecord& found) {
    lost += found.lost;
    access_of(found.sample.data_src);
    if (++records > bytes.size()) throw std::runtime_error("reading does not end");
  });
}

void read_numa_maps(std::string_view bytes) {
  std::istringstream lines{std::string(bytes)};
  bytes_by_node(lines, 0, ~std::uintptr_t{0});
}

void read_options(std::string_view bytes) {
  Variables variables;
  std::istringstream lines{std::string(bytes)};
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find('=');
    if (equals != line.npos) variables.set(line.substr(0, equals), line.substr(equals + 1).c_str());
  }
  require_known_words();
  local_machine(options_from_environment());
}

std::vector<std::string> messages() {
  Message hello{.bytes = 0, .least = 1 << 20, .most = 1 << 30, .begun = 77, .priority = 2};
  put(hello.name, "python3 train.py");
  Message told{.kind = MessageKind::needs, .least = 1 << 20, .most = 1 << 30};
  put(told.policy, "sentinel");
  put(told.machine, "local");
  Message refused{.kind = MessageKind::refused};
  put(refused.text, "no machine has so many bytes");
  return {raw(hello), raw(told), raw(refused)};
}

std::vector<std::string> needs() { return {std::string(kTrace)}; }

std::vector<std::string> listings() {
  return {R"({"total_bytes":1073741824,"counted_bytes":536870912,"held_bytes":1048576,
"most_held_bytes":1048576,"waits_for_absent_jobs":false,"jobs":[
{"process":17,"name":"a","state":"settled","granted_bytes":536870912,"counted_bytes":536870912,
"least_bytes":1048576,"most_bytes":1073741824,"priority":1,"held_bytes":1048576,
"drive_part":0.5,"curve":[{"bytes":1048576,"slowdown":1.5,"drive":0.9}]},
{"process":18,"name":"b","state":"waiting","granted_bytes":0,"counted_bytes":0,
"least_bytes":1048576,"most_bytes":1048576,"priority":2.5,"waits_for":"memory"}]})",
          R"({"total_bytes":1,"waits_for_absent_jobs":true,"jobs":[]})"};
}

std::vector<std::string> ledgers() {
  const auto path = fresh_path();
  write_ledger(path, {{.process = 12,
                       .begun = 34,
                       .name = "python3 \"train.py\"",
                       .need = {.least = 5, .most = 9, .priority = 2},
                       .counted = 1ull << 41},
                      {.process = 13, .begun = 35, .name = "b", .need = {.least = 1, .most = 1}}});
  return {with(bytes_of(path), boot(), kBoot)};
}

std::vector<std::string> statuses() {
  return {raw(StatusHeader{.written = 2}) + raw(status_of_training())};
}

std::vector<std::string> hashes() {
  return {"1\tfc.weight\t0123456789abcdef\n1\tfc.bias\t00ff\n2\tfc.weight\tfedcba9876543210\n"};
}

std::vector<std::string> rings() {
  const auto sample = record(PERF_RECORD_SAMPLE, 1, 0x7f00'0000'1000, 0x2);
  const auto lost = record(PERF_RECORD_LOST, 1, 40);
  const auto more = record(PERF_RECORD_LOST_SAMPLES, 3);
  const auto throttled = record(PERF_RECORD_THROTTLE, 1, 2, 3);
  const auto records = sample + lost + more + throttled + sample;
  const auto filled = records + std::string(256 - records.size(), '\0');
  const auto round = filled.substr(16) + filled.substr(0, 16);  // begins before the ring's end
  return {raw(RingHead{0, records.size()}) + filled,
          raw(RingHead{256 - 16, 256 - 16 + records.size()}) + round};
}

std::vector<std::string> maps() {
  return {
      "7f3c00000000 prefer:1 anon=512 dirty=512 N0=128 N1=384 kernelpagesize_kB=4\n"
      "7f3d00000000 default file=/usr/lib/x.so mapped=3 N0=3 kernelpagesize_kB=2048\n"};
}

std::vector<std::string> environments() {
  return {
      "SENTINEL_MODE=run\nSENTINEL_FAST=40%\nSENTINEL_POLICY=sentinel\nSENTINEL_SLOW=/tmp\n"
      "SENTINEL_ARENA=4G\nSENTINEL_CHECKSUM=sampled\n",
      "SENTINEL_MODE=run\nSENTINEL_FAST=512M\nSENTINEL_TIERS=fast=gpu0,slow=host\n"
      "SENTINEL_GRANULE=4M\nSENTINEL_HOST_MEMORY=256M\n",
      "SENTINEL_MODE=run\nSENTINEL_TIERS=fast=node0,slow=node1\nSENTINEL_GRANULE=4K\n"
      "SLURM_STEP_NUM_TASKS=7\nSLURM_PROCID=3\nSLURM_STEP_TASKS_PER_NODE=2(x3),1\n"
      "SLURM_NODEID=1\nSENTINEL_OUTPUT=p.%r.sentinel\n",
      "SENTINEL_MODE=record\nRANK=1\nWORLD_SIZE=4\nLOCAL_WORLD_SIZE=2\n"};
}

}  // namespace sentinel::fuzz
