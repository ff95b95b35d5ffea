// Opens a ring for each thread of the process, finds new threads, and drops those that ended.
#include "capture/samples/sample_threads.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <filesystem>

#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr const char* kTasks = "/proc/self/task";

std::vector<pid_t> threads() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator(kTasks)) {
    const auto name = entry.path().filename().string();
    pid_t tid = 0;
    std::from_chars(name.data(), name.data() + name.size(), tid);
    found.push_back(tid);
  }
  return found;
}

// procfs gives the folder a link for each thread.
std::size_t thread_count() noexcept {
  struct stat tasks {};
  return stat(kTasks, &tasks) == 0 ? tasks.st_nlink : 0;
}

// The first of them has to work; processors that are off are left out.
std::vector<EventRing> one_per_processor(const SampleEvents& events) {
  std::vector<EventRing> rings;
  for (int processor = 0; processor < sysconf(_SC_NPROCESSORS_CONF); ++processor) try {
      rings.emplace_back(events, -1, processor);
    } catch (const Error& error) {
      if (rings.empty() || error.code() != ENODEV) throw;
    }
  return rings;
}

}  // namespace

SampleThreads::SampleThreads(SampleEvents events) : events_(std::move(events)) {
  try {
    rings_.emplace_back(events_, gettid(), -1);
  } catch (const Error& error) {
    if (error.code() != EINVAL) throw;
    rings_ = one_per_processor(events_);
    per_processor_ = true;
  }
  follow();
}

void SampleThreads::follow() noexcept try {
  const std::size_t count = thread_count();
  if (per_processor_ || count == threads_) return;
  follow_each();
  threads_ = count;
} catch (const std::exception&) {
  // /proc is away, or memory is: those that are followed still are
}

void SampleThreads::follow_each() {
  const auto alive = threads();
  const auto holds = [](const auto& list, pid_t tid) {
    return std::find(list.begin(), list.end(), tid) != list.end();
  };
  std::vector<pid_t> followed;
  for (const EventRing& ring : rings_) followed.push_back(ring.thread());
  refused_ = 0;
  for (const pid_t tid : alive) try {
      if (!holds(followed, tid)) rings_.emplace_back(events_, tid, -1);
    } catch (const Error& error) {
      refused_ += error.code() != ESRCH;
    }
  ended_.clear();
  for (const pid_t tid : followed)
    if (!holds(alive, tid)) ended_.push_back(tid);
}

void SampleThreads::drop_ended() noexcept {
  if (ended_.empty()) return;
  std::erase_if(rings_, [this](const EventRing& ring) {
    return std::find(ended_.begin(), ended_.end(), ring.thread()) != ended_.end();
  });
  ended_.clear();
}

double SampleThreads::unseen() const noexcept {
  return static_cast<double>(refused_) / static_cast<double>(refused_ + rings_.size());
}

SampleEvents find_sample_events() {
  const auto facts = read_sample_facts();
  auto events = choose_sample_events(facts);
  if (events.events.empty()) return events;
  try {
    SampleThreads{events};
    return events;
  } catch (const Error& error) {
    return refused_sample_events(facts, error.code());
  }
}

}  // namespace sentinel
