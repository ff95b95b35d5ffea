// An executor that sums what it writes, and compares the sum when the bytes come back.
#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "engine/io/executors.h"

namespace sentinel {
namespace {

// A transfer goes on with its flight's number as the cookie, for the caller's need not be unique.
class CheckedExecutor final : public Executor {
 public:
  CheckedExecutor(std::unique_ptr<Executor> inner, const SlowFile& file,
                  const ExecutorOptions& options)
      : inner_(std::move(inner)),
        file_(file),
        sums_(file.checksums()),
        frame_bytes_(options.frame_bytes),
        flights_(inner_->depth()) {
    waiting_.reserve(flights_.size());
    failed_.reserve(flights_.size());
    started_.reserve(flights_.size());
    transfers_.reserve(flights_.size());
    for (std::size_t i = 0; i < flights_.size(); ++i) idle_.push_back(i);
  }

  std::size_t depth() const override { return inner_->depth(); }
  void wake() noexcept override { inner_->wake(); }

  int submit_all(std::span<const Transfer> transfers) noexcept override {
    started_.clear();
    for (const auto& transfer : transfers) {
      if (idle_.empty()) return -EAGAIN;
      const auto flight = idle_.back();
      idle_.pop_back();
      flights_[flight] = transfer;
      (summed(transfer) && transfer.write ? waiting_ : started_).push_back(flight);
    }
    return start();
  }

  std::size_t wait_for(std::size_t least, std::span<Completion> out) noexcept override {
    start_writes();
    std::size_t count = 0;
    for (; count < out.size() && !failed_.empty(); ++count) {
      out[count] = failed_.back();
      failed_.pop_back();
    }
    if (count == 0) {
      count = inner_->wait_for(least, out);
      for (auto& completion : out.first(count)) completion = finished(completion);
    }
    return count;
  }

 private:
  bool summed(const Transfer& transfer) const noexcept {
    return !transfer.device && !transfer.unchecked && sums_.level() != ChecksumLevel::off;
  }

  int start() noexcept {
    transfers_.clear();
    for (const auto flight : started_) {
      transfers_.push_back(flights_[flight]);
      transfers_.back().cookie = flight;
    }
    return transfers_.empty() ? 0 : inner_->submit_all(transfers_);
  }

  // One by one: the drive writes the first while the next one is summed up.
  void start_writes() noexcept {
    for (const auto flight : waiting_) {
      const auto& transfer = flights_[flight];
      sums_.take(transfer.slot, transfer.frame);
      started_.assign(1, flight);
      if (const int code = start(); code != 0) failed_.push_back(over(flight, -code));
    }
    waiting_.clear();
  }

  Completion finished(const Completion& completion) noexcept {
    const auto& transfer = flights_[completion.cookie];
    int error = completion.error;
    if ((error == 0 || error == EIO) && !file_.ends_as_left(transfer.slot)) error = kOtherEnd;
    const auto bytes = transfer.bytes != 0 ? transfer.bytes : frame_bytes_;
    if (error == 0 && !transfer.write && summed(transfer) &&
        !sums_.match(transfer.slot, transfer.first, transfer.frame, bytes))
      error = kOtherBytes;
    return over(completion.cookie, error);
  }

  Completion over(std::size_t flight, int error) noexcept {
    idle_.push_back(flight);
    return {flights_[flight].cookie, error};
  }

  std::unique_ptr<Executor> inner_;
  const SlowFile& file_;
  Checksums& sums_;
  std::uint64_t frame_bytes_;
  std::vector<Transfer> flights_;
  std::vector<std::size_t> idle_;
  std::vector<std::size_t> waiting_;  // writes to be summed up and started
  std::vector<std::size_t> started_;  // by one call
  std::vector<Transfer> transfers_;   // the same, as they go on
  std::vector<Completion> failed_;    // writes that could not be started
};

}  // namespace

std::unique_ptr<Executor> make_checked_executor(std::unique_ptr<Executor> inner,
                                                const SlowFile& file,
                                                const ExecutorOptions& options) {
  return std::make_unique<CheckedExecutor>(std::move(inner), file, options);
}

}  // namespace sentinel
