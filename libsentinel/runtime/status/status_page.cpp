// Makes the file, and writes the status word by word between two changes of its counter.
#include "runtime/status/status_page.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace sentinel {
namespace {

constexpr std::size_t kPageBytes = sizeof(StatusHeader) + sizeof(Status);
constexpr int kMostLooked = 256;  // files of others, at the beginning

// The user's own, which nobody else may write to.
Descriptor open_folder(const std::string& path) {
  mkdir(path.c_str(), 0700);
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found {};
  if (!folder || fstat(folder.get(), &found) != 0 || found.st_uid != geteuid() ||
      (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {};
  return Descriptor(out_of_reach(folder.release()));
}

bool lock(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return fcntl(file, F_SETLK, &whole) == 0;
}

bool is_number(const char* name) {
  return *name != '\0' && name[std::strspn(name, "0123456789")] == '\0';
}

// Files whose name is a number and whose lock nobody holds. `ours` is left alone: to open and close
// it would let go of our own lock.
void remove_dead(const Descriptor& folder, const std::string& ours) {
  const int copy = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> files(copy >= 0 ? fdopendir(copy) : nullptr, closedir);
  for (int i = 0; files && i < kMostLooked; ++i) {
    const auto* each = readdir(files.get());
    if (each == nullptr) return;
    if (!is_number(each->d_name) || ours == each->d_name) continue;
    const Descriptor file(
        openat(folder.get(), each->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file && lock(file.get())) unlinkat(folder.get(), each->d_name, 0);
  }
}

// Its pages are there from now on: a write to one that a full file system cannot give would end the
// process.
Descriptor make_file(const Descriptor& folder, const std::string& name) {
  unlinkat(folder.get(), name.c_str(), 0);
  Descriptor file(
      openat(folder.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return {};
  file = Descriptor(out_of_reach(file.release()));
  if (posix_fallocate(file.get(), 0, kPageBytes) == 0 && lock(file.get())) return file;
  unlinkat(folder.get(), name.c_str(), 0);
  return {};
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::uint64_t* words(void* page) {
  return reinterpret_cast<std::uint64_t*>(static_cast<char*>(page) + sizeof(StatusHeader));
}

}  // namespace

std::vector<std::string> status_folders() {
  if (auto asked = variable("SENTINEL_STATUS"); !asked.empty()) return {std::move(asked)};
  std::vector<std::string> folders;
  if (const auto runtime = variable("XDG_RUNTIME_DIR"); runtime.starts_with('/'))
    folders.push_back(runtime + "/sentinel");
  const auto user = fmt::format("/run/user/{}/sentinel", geteuid());
  if (folders.empty() || folders.front() != user) folders.push_back(user);
  folders.push_back(fmt::format("/dev/shm/sentinel-{}", geteuid()));
  return folders;
}

StatusPage StatusPage::make() noexcept try {
  const auto name = std::to_string(getpid());
  for (const auto& path : status_folders()) {
    auto folder = open_folder(path);
    if (!folder) continue;
    remove_dead(folder, name);
    auto file = make_file(folder, name);
    if (!file) continue;
    void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (page == MAP_FAILED) continue;
    madvise(page, kPageBytes, MADV_DONTFORK);
    new (page) StatusHeader;
    return {std::move(folder), std::move(file), page};
  }
  return {};
} catch (const std::exception&) {
  return {};
}

StatusPage::StatusPage(StatusPage&& other) noexcept
    : folder_(std::move(other.folder_)),
      file_(std::move(other.file_)),
      page_(std::exchange(other.page_, nullptr)),
      owner_(other.owner_) {}

StatusPage& StatusPage::operator=(StatusPage&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(file_, other.file_);
  std::swap(page_, other.page_);
  std::swap(owner_, other.owner_);
  return *this;
}

void StatusPage::write(const Status& status) noexcept {
  if (page_ == nullptr) return;
  std::atomic_ref counter(static_cast<StatusHeader*>(page_)->written);
  const auto before = counter.load(std::memory_order_relaxed);
  counter.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  auto* to = words(page_);
  for (std::size_t i = 0; i < sizeof(Status) / 8; ++i) {
    std::uint64_t word;
    std::memcpy(&word, reinterpret_cast<const char*>(&status) + 8 * i, 8);
    std::atomic_ref(to[i]).store(word, std::memory_order_relaxed);
  }
  counter.store(before + 2, std::memory_order_release);
}

// A forked child has neither the page nor the lock, and the file is its parent's.
void StatusPage::remove() noexcept {
  if (page_ == nullptr || owner_ != getpid()) return;
  unlinkat(folder_.get(), std::to_string(owner_).c_str(), 0);
  munmap(std::exchange(page_, nullptr), kPageBytes);
}

}  // namespace sentinel
