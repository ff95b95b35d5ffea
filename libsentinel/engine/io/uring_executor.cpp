// An executor on io_uring: submits transfers in batches, and reaps completions.
#include <fmt/format.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <vector>

#include "base/descriptor.h"
#include "engine/host/stop.h"
#include "engine/io/executors.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kWakeCookie = ~0ull;

// One ring, its files registered; buffers are not, since a registered page cannot be moved
// (MEASUREMENTS: EBUSY even just after unregistering). A read of an eventfd in the ring lets wake()
// interrupt a wait for transfers.
class UringExecutor final : public Executor {
 public:
  UringExecutor(const SlowFile& file, const ExecutorOptions& options)
      : file_(file), frame_bytes_(options.frame_bytes), flights_(options.depth) {
    if (const int code =
            io_uring_queue_init(static_cast<unsigned>(2 * options.depth + 2), &ring_, 0);
        code != 0)
      throw Error(
          "io_uring is refused here (old kernel, kernel.io_uring_disabled, or a container's "
          "seccomp profile)",
          -code);
    // A copy of the library's number for the ring, which it uses for all of its calls.
    ring_.ring_fd = ring_.enter_ring_fd = out_of_reach(ring_.ring_fd);
    ring_file_ = OurFile(ring_.ring_fd);
    const auto files = file.files();
    fixed_files_ =
        io_uring_register_files(&ring_, files.data(), static_cast<unsigned>(files.size())) == 0;
    event_ = OurFile(out_of_reach(eventfd(0, EFD_CLOEXEC)));
    if (!event_.is_open()) {
      const int code = errno;
      io_uring_queue_exit(&ring_);
      throw Error("could not create an eventfd", code);
    }
    for (std::size_t i = 0; i < flights_.size(); ++i) idle_.push_back(i);
    watch();
  }

  ~UringExecutor() override {
    if (!ring_file_.is_ours()) ring_.ring_fd = -1;
    io_uring_queue_exit(&ring_);
    event_.close();
  }

  std::size_t depth() const override { return flights_.size(); }

  int submit_all(std::span<const Transfer> transfers) noexcept override {
    int code = 0;
    for (const auto& transfer : transfers) {
      if (idle_.empty()) code = -EAGAIN;
      if (code != 0) break;
      const auto flight = idle_.back();
      idle_.pop_back();
      flights_[flight] = {transfer, 0};
      code = enqueue(flight);
    }
    const int submitted = submit_queue();
    return code != 0 ? code : submitted;
  }

  std::size_t wait_for(std::size_t least, std::span<Completion> out) noexcept override {
    waiting_ = true;
    std::size_t count = 0;
    io_uring_cqe* cqe = nullptr;
    int code = 0;
    if (!woken_.exchange(false)) do
        code = io_uring_wait_cqe_nr(&ring_, &cqe, static_cast<unsigned>(least));
      while (code == -EINTR);
    waiting_ = false;
    require_ring(code);
    while (count < out.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const auto cookie = io_uring_cqe_get_data64(cqe);
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (cookie == kWakeCookie)
        watch();
      else if (finished(cookie, result, out[count]))
        ++count;
    }
    return count;
  }

  void wake() noexcept override {
    woken_ = true;
    if (!waiting_) return;
    const std::uint64_t one = 1;
    if (!event_.is_ours() || (write(event_.number(), &one, sizeof one) < 0 && errno == EBADF))
      stop_training(kClosed);
  }

 private:
  struct Flight {
    Transfer transfer;
    std::uint64_t done = 0;  // bytes transferred so far
  };

  std::uint64_t bytes_of(const Transfer& transfer) const noexcept {
    return transfer.bytes != 0 ? transfer.bytes : frame_bytes_;
  }

  // What the kernel answers to a number that is none, or not a ring's.
  static void require_ring(int code) noexcept {
    if (code == -EBADF || code == -EOPNOTSUPP) stop_training(kClosed);
  }

  void watch() noexcept {
    auto* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_read(sqe, event_.number(), &event_value_, sizeof event_value_, 0);
    io_uring_sqe_set_data64(sqe, kWakeCookie);
    io_uring_submit(&ring_);
  }

  int enqueue(std::size_t index) noexcept {
    const auto& [transfer, done] = flights_[index];
    auto* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return -EAGAIN;
    auto* buffer = static_cast<char*>(transfer.frame) + done;
    const auto bytes = static_cast<unsigned>(bytes_of(transfer) - done);
    const auto offset = file_.offset(transfer.slot) + transfer.first + done;
    if (!fixed_files_ && !file_.is_ours(transfer.slot)) return -EBADF;
    const int fd = fixed_files_ ? static_cast<int>(file_.file(transfer.slot))
                                : file_.descriptor(transfer.slot);
    if (transfer.write)
      io_uring_prep_write(sqe, fd, buffer, bytes, offset);
    else
      io_uring_prep_read(sqe, fd, buffer, bytes, offset);
    if (fixed_files_) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, index);
    return 0;
  }

  // The kernel stops behind one that it has no memory for: the rest is submitted by the next call.
  int submit_queue() noexcept {
    while (io_uring_sq_ready(&ring_) != 0) {
      const int submitted = io_uring_submit(&ring_);
      require_ring(submitted);
      if (submitted == 0) return -EAGAIN;
      if (submitted < 0 && submitted != -EINTR) return submitted;
    }
    return 0;
  }

  // A short transfer goes on where it ended; one that moves nothing is an I/O error.
  bool finished(std::uint64_t index, int result, Completion& out) noexcept {
    auto& flight = flights_[index];
    if (result > 0) flight.done += static_cast<std::uint64_t>(result);
    const bool again = result == -EINTR || result == -EAGAIN ||
                       (result > 0 && flight.done < bytes_of(flight.transfer));
    int error = result < 0 ? -result : result == 0 ? EIO : 0;
    if (again) {
      error = -enqueue(index);
      if (error == 0) error = -submit_queue();
      if (error == 0) return false;
    }
    out = {flight.transfer.cookie, error};
    idle_.push_back(index);
    return true;
  }

  const SlowFile& file_;
  std::uint64_t frame_bytes_;
  io_uring ring_{};
  bool fixed_files_ = false;
  OurFile event_, ring_file_;
  std::uint64_t event_value_ = 0;
  std::atomic<bool> waiting_ = false, woken_ = false;
  std::vector<Flight> flights_;
  std::vector<std::size_t> idle_;
};

}  // namespace

std::unique_ptr<Executor> make_uring_executor(const SlowFile& file,
                                              const ExecutorOptions& options) {
  return std::make_unique<UringExecutor>(file, options);
}

}  // namespace sentinel
