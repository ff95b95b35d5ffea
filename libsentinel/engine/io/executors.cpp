// Chooses an executor by name, and wraps it where faults are injected.
#include "engine/io/executors.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <map>
#include <utility>

#include "sentinel/error.h"

namespace sentinel {
namespace {

struct Injection {
  bool write = false;
  std::uint64_t at = 0;  // the how-manieth transfer of its kind, from 1
  int error = 0;
};

constexpr int kFlip = -1;  // no error: a bit is flipped

Injection parse_injection(std::string_view text) {
  static const std::map<std::string_view, int> errors{
      {"EIO", EIO}, {"ENOSPC", ENOSPC}, {"short", EIO}, {"ETIMEDOUT", ETIMEDOUT}, {"flip", kFlip}};
  const auto first = text.find(':'), second = text.find(':', first + 1);
  Injection injection;
  if (first != std::string_view::npos && second != std::string_view::npos) {
    const auto kind = text.substr(0, first), number = text.substr(first + 1, second - first - 1);
    const auto error = errors.find(text.substr(second + 1));
    std::from_chars(number.data(), number.data() + number.size(), injection.at);
    injection.write = kind == "write";
    if ((kind == "write" || kind == "read") && injection.at > 0 && error != errors.end()) {
      injection.error = error->second;
      return injection;
    }
  }
  throw Error(fmt::format("\"{}\" is no fault to inject; write for example write:3:EIO", text));
}

class InjectingExecutor final : public Executor {
 public:
  InjectingExecutor(std::unique_ptr<Executor> inner, const std::string& text)
      : inner_(std::move(inner)), injection_(parse_injection(text)) {}

  std::size_t depth() const override { return inner_->depth(); }
  void wake() noexcept override { inner_->wake(); }

  int submit_all(std::span<const Transfer> transfers) noexcept override {
    for (const auto& transfer : transfers)
      if (transfer.write == injection_.write && ++seen_ == injection_.at) {
        doomed_ = transfer.cookie;
        frame_ = static_cast<char*>(transfer.frame);
      }
    return inner_->submit_all(transfers);
  }

  std::size_t wait_for(std::size_t least, std::span<Completion> out) noexcept override {
    const auto count = inner_->wait_for(least, out);
    for (auto& completion : out.first(count))
      if (seen_ >= injection_.at && completion.cookie == doomed_) fail(completion);
    return count;
  }

 private:
  void fail(Completion& completion) noexcept {
    doomed_ = ~0ull;  // another transfer may have its cookie next
    if (injection_.error != kFlip)
      completion.error = injection_.error;
    else if (char* frame = std::exchange(frame_, nullptr))
      *frame ^= 1;
  }

  std::unique_ptr<Executor> inner_;
  Injection injection_;
  std::uint64_t seen_ = 0, doomed_ = ~0ull;
  char* frame_ = nullptr;  // of the doomed one
};

std::unique_ptr<Executor> make_plain(const SlowFile& file, const ExecutorOptions& options) {
  if (options.backend == IoBackend::threads || options.device != nullptr)
    return make_thread_executor(file, options);
  if (options.backend == IoBackend::uring) return make_uring_executor(file, options);
  try {
    return make_uring_executor(file, options);
  } catch (const Error&) {
    return make_thread_executor(file, options);
  }
}

}  // namespace

IoBackend parse_io_backend(const std::string& text) {
  if (text.empty() || text == "auto") return IoBackend::automatic;
  if (text == "uring") return IoBackend::uring;
  if (text == "threads") return IoBackend::threads;
  throw Error(fmt::format(
      "\"{}\" is no I/O backend; known: auto, uring, threads; and cufile, beside a GPU", text));
}

std::unique_ptr<Executor> make_injecting_executor(std::unique_ptr<Executor> inner,
                                                  const std::string& inject) {
  return std::make_unique<InjectingExecutor>(std::move(inner), inject);
}

std::unique_ptr<Executor> make_executor(const SlowFile& file, const ExecutorOptions& options) {
  auto executor = make_plain(file, options);
  if (!options.inject.empty())
    executor = make_injecting_executor(std::move(executor), options.inject);
  return make_checked_executor(std::move(executor), file, options);
}

}  // namespace sentinel
