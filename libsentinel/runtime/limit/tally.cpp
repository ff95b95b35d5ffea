// Shares the tally through a memfd of the command, which its processes open below /proc.
#include "runtime/limit/tally.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include "engine/host/command_life.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr const char* kVariable = "SENTINEL_TALLY";
constexpr std::uint64_t kMagic = 0x746e6573'796c6174;

void* map(int file, std::size_t bytes) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
}

// The variable may name anything: only a sealed memfd of this length and content is taken.
bool is_tally(int file, std::size_t bytes) {
  struct stat status {};
  const int seals = fcntl(file, F_GET_SEALS);  // -1: no memfd
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(file, &status) == 0 &&
         status.st_size == static_cast<off_t>(bytes);
}

// "/proc/17/fd/5"; 0: no process.
pid_t process_in(std::string_view name) {
  constexpr std::string_view kBegin = "/proc/";
  pid_t process = 0;
  if (name.starts_with(kBegin))
    std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), process);
  return process;
}

}  // namespace

Tally Tally::make() {
  Descriptor file(memfd_create("sentinel-tally", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  void* page = MAP_FAILED;
  if (file && ftruncate(file.get(), sizeof(Page)) == 0 &&
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    page = map(file.get(), sizeof(Page));
  if (page == MAP_FAILED) throw Error("could not share memory with the command's processes", errno);
  const auto name = fmt::format("/proc/{}/fd/{}", getpid(), file.get());
  setenv(kVariable, name.c_str(), 1);
  return {std::move(file), new (page) Page{.magic = kMagic}};
}

Tally Tally::found() {
  const char* name = std::getenv(kVariable);
  const Descriptor file(name != nullptr ? open(name, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
                                        : -1);
  void* page =
      file && is_tally(file.get(), sizeof(Page)) ? map(file.get(), sizeof(Page)) : MAP_FAILED;
  if (page != MAP_FAILED && static_cast<Page*>(page)->magic == kMagic)
    return {Descriptor(), static_cast<Page*>(page), process_in(name)};
  if (page != MAP_FAILED) munmap(page, sizeof(Page));
  page = map(-1, sizeof(Page));
  if (page == MAP_FAILED) throw Error("could not get a page of memory (see ulimit -v)", errno);
  return {Descriptor(), new (page) Page};
}

Tally::Tally(Tally&& other) noexcept
    : file_(std::move(other.file_)),
      page_(std::exchange(other.page_, nullptr)),
      command_(other.command_) {
  for (int field = 0; field < kFields; ++field)
    counted_[field] = other.counted_[field].load(std::memory_order_relaxed);
}

Tally::~Tally() {
  if (page_ == nullptr) return;
  if (file_) page_->over = true;
  munmap(page_, sizeof(Page));
}

void Tally::end_with_command() const {
  if (command_ == 0) return;
  when_process_ends(command_, [page = page_] {
    if (!page->over) kill(getpid(), SIGKILL);
  });
}

Tally::Counts Tally::counts() const {
  return {page_->counts[kTrainings], page_->counts[kSteps], page_->counts[kPlanned],
          page_->counts[kLimited], page_->counts[kGaveUp]};
}

}  // namespace sentinel
