// An executor of blocking reads and writes in threads of its own.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/quiet_thread.h"
#include "engine/io/device_files.h"
#include "engine/io/executors.h"

namespace sentinel {
namespace {

constexpr std::size_t kMostThreads = 16;

// Where io_uring is refused: threads, each with one blocking transfer at a time. There are no more
// than kMostThreads; what they cannot take at once waits in a queue.
class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor(const SlowFile& file, const ExecutorOptions& options)
      : file_(file),
        device_(options.device),
        frame_bytes_(options.frame_bytes),
        depth_(options.depth) {
    for (std::size_t i = 0; i < std::min(depth_, kMostThreads); ++i)
      threads_.push_back(quiet_thread([this] { work(); }));
  }

  ~ThreadExecutor() override {
    {
      const std::lock_guard guard(lock_);
      stop_ = true;
    }
    todo_ready_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  std::size_t depth() const override { return depth_; }

  int submit_all(std::span<const Transfer> transfers) noexcept override {
    {
      const std::lock_guard guard(lock_);
      todo_.insert(todo_.end(), transfers.begin(), transfers.end());
    }
    transfers.size() == 1 ? todo_ready_.notify_one() : todo_ready_.notify_all();
    return 0;
  }

  std::size_t wait_for(std::size_t least, std::span<Completion> out) noexcept override {
    std::unique_lock guard(lock_);
    done_ready_.wait(guard, [this, least] { return woken_ || done_.size() >= least; });
    woken_ = false;
    std::size_t count = 0;
    for (; count < out.size() && !done_.empty(); ++count) {
      out[count] = done_.front();
      done_.pop_front();
    }
    return count;
  }

  void wake() noexcept override {
    {
      const std::lock_guard guard(lock_);
      woken_ = true;
    }
    done_ready_.notify_one();
  }

 private:
  void work() noexcept {
    std::unique_lock guard(lock_);
    while (true) {
      todo_ready_.wait(guard, [this] { return stop_ || !todo_.empty(); });
      if (stop_) return;
      const auto transfer = todo_.front();
      todo_.pop_front();
      guard.unlock();
      const int error = move(transfer);
      guard.lock();
      done_.push_back({transfer.cookie, error});
      done_ready_.notify_one();
    }
  }

  int move(const Transfer& transfer) const noexcept {
    auto* at = static_cast<char*>(transfer.frame);
    const auto bytes = transfer.bytes != 0 ? transfer.bytes : frame_bytes_;
    for (std::uint64_t done = 0; done < bytes;) {
      const auto offset = file_.offset(transfer.slot) + transfer.first + done;
      const auto n = transfer.device ? move_device(transfer, at + done, bytes - done, offset)
                                     : move_host(transfer, at + done, bytes - done, offset);
      if (n == -EINTR || n == -EAGAIN) continue;
      if (n <= 0) return n < 0 ? static_cast<int>(-n) : EIO;
      done += static_cast<std::uint64_t>(n);
    }
    return 0;
  }

  // Bytes moved, or a negative errno.
  std::int64_t move_host(const Transfer& transfer, char* at, std::uint64_t bytes,
                         std::uint64_t offset) const noexcept {
    if (!file_.is_ours(transfer.slot)) return -EBADF;
    const int fd = file_.descriptor(transfer.slot);
    const auto n = transfer.write ? pwrite(fd, at, bytes, static_cast<off_t>(offset))
                                  : pread(fd, at, bytes, static_cast<off_t>(offset));
    return n < 0 ? -errno : n;
  }
  std::int64_t move_device(const Transfer& transfer, char* at, std::uint64_t bytes,
                           std::uint64_t offset) const noexcept {
    const auto file = file_.file(transfer.slot);
    return transfer.write ? device_->write(file, at, bytes, offset)
                          : device_->read(file, at, bytes, offset);
  }

  const SlowFile& file_;
  gpu::DeviceFiles* const device_;
  std::uint64_t frame_bytes_;
  std::size_t depth_;
  std::mutex lock_;  // guards all below
  std::condition_variable todo_ready_, done_ready_;
  std::deque<Transfer> todo_;
  std::deque<Completion> done_;
  bool stop_ = false, woken_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Executor> make_thread_executor(const SlowFile& file,
                                               const ExecutorOptions& options) {
  return std::make_unique<ThreadExecutor>(file, options);
}

}  // namespace sentinel
