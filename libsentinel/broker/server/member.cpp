// Maps a job's page, and opens its life.
#include "broker/server/member.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "broker/wire/socket.h"
#include "sentinel/error.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace sentinel {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

// One that could shrink would end the broker as it reads.
HeldPage::HeldPage(const Descriptor& file) {
  struct stat status {};
  const int seals = file ? fcntl(file.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(kPageBytes))
    return;
  void* page = mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (page != MAP_FAILED) page_ = static_cast<const std::atomic<std::uint64_t>*>(page);
}

HeldPage::~HeldPage() {
  if (page_ != nullptr) munmap(const_cast<std::atomic<std::uint64_t>*>(page_), kPageBytes);
}

std::optional<std::uint64_t> HeldPage::bytes() const {
  if (page_ == nullptr) return std::nullopt;
  return page_->load(std::memory_order_acquire);
}

Descriptor life_of(pid_t process, std::uint64_t begun) {
  Descriptor life(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (!life && errno == ESRCH) return {};
  if (!life) throw Error("the broker needs pidfd_open, of Linux 5.3", errno);
  return process_begun(process) == begun ? std::move(life) : Descriptor();
}

}  // namespace sentinel
