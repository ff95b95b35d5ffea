// Opens the access source, arms tensors as they begin, and drains it at each op's end.
#include "runtime/profiling/counting.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "capture/kernel_source.h"
#include "capture/samples/sample_source.h"
#include "capture/userfault/rwp_source.h"
#include "capture/userfault/userfault_source.h"
#include "engine/gpu/fault_source.h"
#include "engine/gpu/page_faults.h"
#include "runtime/limit/arena_size.h"
#include "runtime/limit/gpu_counting.h"
#include "sentinel/error.h"
#include "trace/machine_record.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSmall = 8;  // pages of a tensor of which each is tracked
constexpr std::size_t kArmedTogether = 4096;
constexpr std::uint64_t kSamples = 4;  // pages of a larger one that are tracked, at least

// Small tensors page by page, large ones by one page in 2^n.
std::uint32_t stride_of(std::uint64_t bytes, bool exact) {
  const auto pages = round_up(bytes, kPage) / kPage;
  if (exact || pages <= kSmall) return 1;
  return static_cast<std::uint32_t>(std::bit_floor(pages / kSamples));
}

ArmRange range_of(const LiveTensor& tensor, bool exact) {
  return {.begin = tensor.address,
          .bytes = round_up(tensor.bytes, kPage),
          .stride = stride_of(tensor.bytes, exact),
          .tag = tensor.record};
}

// Very many small tensors have no pages of their own: a page's openings would be anybody's.
bool shares_page(const LiveTensor& tensor) {
  return tensor.bytes < kPage && tensor.reserved % kPage != 0;
}
constexpr const char* kShared = "so many are smaller than a page that they share some";

// W: as many pages as the last-level cache holds, so that what is counted are accesses to memory.
std::uint32_t window_of(const SessionOptions& options) {
  constexpr std::uint32_t kUnknownCache = 8192;
  if (options.counting.window_pages != 0) return options.counting.window_pages;
  const auto pages = static_cast<std::uint32_t>(this_machine().llc_bytes / kPage);
  return std::max(pages != 0 ? pages : kUnknownCache, options.gpu.device ? gpu::kLeastWindow : 1);
}

// Without a plan's or a profile's file a session has to profile.
bool profiles(const SessionOptions& options) {
  return options.mode != Mode::run || (options.plan.empty() && options.profile.empty());
}

}  // namespace

bool may_bar(const SessionOptions& options) {
  if (options.counting.source == kRwp) return true;
  const bool kernel = options.mode == Mode::record && KernelSource::probe() == 0;
  return options.counting.source == "auto" && profiles(options) && !kernel;
}

Counting::Counting(const SessionOptions& options, Engine& engine, gpu::Driver* driver,
                   StepRecorder& recorder, const Voice& voice)
    : options_(options), engine_(engine), driver_(driver), recorder_(recorder), voice_(voice) {}

// The kernel's source needs nothing of the memory but that it stays where it is: what a SsdEngine
// takes out and puts back, the kernel would take for gone.
bool Counting::counts_in_kernel() const {
  if (options_.counting.source == "kernel") return true;
  const bool stays = engine_.in_place() != nullptr || options_.mode == Mode::record;
  return options_.counting.source == "auto" && stays && KernelSource::probe() == 0;
}

bool Counting::counts_by_bars() const {
  if (options_.counting.source == kRwp) return true;
  return options_.counting.source == "auto" && engine_.can_bar();
}

std::unique_ptr<AccessSource> Counting::make_kernel_source() {
  return std::make_unique<KernelSource>(
      KernelSource::Options{.window_pages = window_of(options_),
                            .in_company = !options_.counting.exact,
                            .device = driver_ ? gpu::name_of(driver_->pageable()) : ""});
}

std::unique_ptr<AccessSource> Counting::make_rwp_source() {
  if (const int code = engine_.start_barring(); code != 0)
    throw Error("counting private memory where it lies: the arena cannot be registered for it",
                -code);
  try {
    RwpSource::Options options;
    options.window_pages = window_of(options_);
    options.in_company = !options_.counting.exact;
    options.populates = engine_.in_place() != nullptr;
    auto source = std::make_unique<RwpSource>(*engine_.loop(), options);
    engine_.count_with(&RwpSource::count, source.get());
    return source;
  } catch (const Error&) {
    engine_.stop_barring();
    throw;
  }
}

// The one that SENTINEL_COUNT names. Throws Error where it is refused.
std::unique_ptr<AccessSource> Counting::make_source() {
  if (options_.counting.source == "samples")
    return std::make_unique<SampleSource>(find_sample_events());
  if (options_.counting.source == kCupti)
    return std::make_unique<gpu::FaultSource>(
        *driver_, gpu::open_cupti(options_.gpu.cupti, *options_.gpu.device), engine_.arena(),
        engine_.arena_bytes());
  if (counts_in_kernel()) try {
      return make_kernel_source();
    } catch (const Error& error) {
      if (options_.counting.source == "kernel") throw;
      voice_.say(fmt::format("{}; {} counts instead", error.what(),
                             counts_by_bars() ? kRwp : "userfaultfd"));
    }
  if (counts_by_bars()) try {
      return make_rwp_source();
    } catch (const Error& error) {
      if (options_.counting.source == kRwp) throw;
      voice_.say(fmt::format("{}; userfaultfd counts instead", error.what()));
    }
  share_memory();
  auto source = std::make_unique<UserfaultSource>(
      *engine_.loop(), UserfaultSource::Options{.window_pages = window_of(options_),
                                                .in_company = !options_.counting.exact});
  engine_.count_with(&UserfaultSource::count, source.get());
  return source;
}

// Every live tensor is armed. Where counting is refused, the profile takes op inputs and outputs as
// accesses and says so.
void Counting::begin(AddressTable& table) {
  has_counts_ = false;
  arms_ = drains_ = {};
  if (options_.counting.source == "ops") refusal_ = "page counting was not asked for";
  if (!possible()) return;
  try {
    source_ = make_source();
  } catch (const Error& error) {
    if (options_.counting.source == "kernel" || options_.counting.source == kRwp ||
        gpu::counted(options_))
      throw;
    refusal_ = error.what();
    end();
    return voice_.say(fmt::format(
        "page accesses cannot be counted here, op inputs and outputs are taken instead: {}",
        error.what()));
  }
  active_ = has_counts_ = true;
  arm_all(table);
}

// Neighbours are armed by one call for both.
void Counting::arm_all(AddressTable& table) {
  std::vector<ArmRange> ranges;
  table.for_each([&](const LiveTensor& tensor) {
    if (tensor.record == StepRecorder::kNone) return;
    if (shares_page(tensor)) return arm(tensor);
    ranges.push_back(range_of(tensor, whole()));
    recorder_.sampled(tensor.record, ranges.back().stride);
  });
  std::ranges::sort(ranges, {}, &ArmRange::begin);
  for (auto rest = std::span<const ArmRange>(ranges); !rest.empty();) {
    const auto some = rest.first(std::min(rest.size(), kArmedTogether));
    rest = rest.subspan(some.size());
    arms_.asked += some.size();
    if (source_->arm(some) == 0) continue;
    for (const auto& range : some)  // to know which of them is refused
      if (const int code = source_->arm({&range, 1}); code != 0) failed(arms_, code);
  }
}

bool Counting::needs_shared_memory() const {
  const bool by_faults =
      options_.counting.source == "userfaultfd" ||
      (options_.counting.source == "auto" && !counts_in_kernel() && !counts_by_bars());
  return by_faults && engine_.loop() != nullptr && engine_.loop()->can_count();
}

void Counting::share_memory() {
  if (engine_.counting()) return;
  if (const int code = engine_.start_counting(); code != 0)
    throw Error("the arena could not be switched to counting" + arena_remedy(-code), -code);
}

void Counting::end() {
  if (active_) {
    drain(recorder_.latest_op());
    active_ = false;
    last_info_ = source_->info();
    engine_.count_with(nullptr, nullptr);
    source_.reset();  // before its memory is replaced
    if (last_info_.name == "kernel") engine_.counted_in_kernel();
    if (last_info_.name == kRwp) engine_.stop_barring();
    if (const auto lost = uncounted(); !lost.empty()) voice_.say(lost);
  }
  if (!engine_.counting()) return;
  const int code = engine_.stop_counting();
  if (code == -EBUSY)
    sentinel::refuse(Error(
        "training stopped: a tensor's memory is pinned (a buffer of io_uring or RDMA, or direct "
        "I/O under way) while page accesses are counted, and cannot be moved: pin it once the "
        "first steps are over, or run with --count=ops"));
  if (code != 0)
    sentinel::refuse(
        Error("the arena could not be switched back from counting" + arena_remedy(-code), -code));
}

void Counting::discard() {
  recorder_.forget_openings();
  has_counts_ = false;
}

// Every page is tracked. A source that samples accesses need not sample pages.
bool Counting::whole() const { return options_.counting.exact || source_->info().whole; }

void Counting::arm(const LiveTensor& tensor) {
  if (tensor.record == StepRecorder::kNone) return;
  const auto range = range_of(tensor, whole());
  recorder_.sampled(tensor.record, range.stride);
  ++arms_.asked;
  if (shares_page(tensor)) return not_counted(arms_, kShared);
  if (const int code = source_->arm({&range, 1}); code != 0) failed(arms_, code);
}

void Counting::disarm(const LiveTensor& tensor) {
  if (tensor.record == StepRecorder::kNone || shares_page(tensor)) return;
  const auto range = range_of(tensor, whole());
  if (const int code = source_->disarm({&range, 1}); code != 0) failed(arms_, code);
}

// A tensor that is not armed is not counted; what is not disarmed counts on, for nobody. What an op
// opened and could not be taken is told with a later op's, if at all.
void Counting::failed(Refused& of, int code) {
  const auto words = source_->failure();
  not_counted(of, words.empty() ? std::strerror(-code) : words);
}

void Counting::not_counted(Refused& of, std::string_view reason) {
  of.refused = std::min(of.refused + 1, of.asked);  // of a tensor, both may be refused
  if (of.reason.empty()) of.reason = reason;
}

std::string Counting::uncounted() const {
  std::string text;
  if (arms_.refused != 0)
    text = fmt::format("{} of {} tensors were not counted, or not to their end: {}", arms_.refused,
                       arms_.asked, arms_.reason);
  if (drains_.refused != 0)
    text += fmt::format("{}the counts of {} of {} ops are lost, or went to later ones: {}",
                        text.empty() ? "" : "; ", drains_.refused, drains_.asked, drains_.reason);
  return text;
}

void Counting::drain(StepRecorder::Op op) {
  drained_.clear();
  ++drains_.asked;
  if (const int code = source_->drain(drained_); code != 0) failed(drains_, code);
  for (const auto& count : drained_) recorder_.opened(op, count);
}

void Counting::describe(ProfileMeta& meta) const {
  meta.source = "ops";
  if (!has_counts_) return;
  const auto& source = source_ ? source_->info() : last_info_;
  const double lost = arms_.share() + drains_.share();
  meta.source = source.name;
  meta.exact = source.exact && options_.counting.exact && lost == 0;
  meta.read_write = source.reads_writes_apart;
  if (meta.complete) meta.incomplete_reason = uncounted();
  meta.window_pages = source.window ? window_of(options_) : 0;
  meta.sample_error = 2 * recorder_.sample_error() + source.missed + lost;
}

}  // namespace sentinel
