// Makes the file, and writes the status word by word between two changes of its counter.
#include "runtime/status/status_page.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace sentinel {
namespace {

constexpr std::size_t kPageBytes = sizeof(StatusHeader) + sizeof(Status);
constexpr int kMostLooked = 256;  // files of others, at the beginning

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Of the page made last. A file of ours must not be opened again: closing it would let go of our
// own lock.
std::atomic<std::uint64_t> our_digits = 0;

// The default folders lie in folders that are another user's where `sudo -E` has kept the
// environment: nothing is made there.
bool may_be_made(const std::string& path) {
  if (!variable("SENTINEL_STATUS").empty() || path.starts_with("/dev/shm/")) return true;
  struct stat found {};
  const auto parent = path.substr(0, path.rfind('/'));
  return stat(parent.c_str(), &found) == 0 && found.st_uid == geteuid();
}

// The user's own, which nobody else may write to.
Descriptor open_folder(const std::string& path) {
  if (!may_be_made(path)) return {};
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

bool is_the_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The name still stands for the open file.
bool names(const Descriptor& folder, const std::string& name, const Descriptor& file) {
  struct stat open {
  }, named{};
  return fstat(file.get(), &open) == 0 &&
         fstatat(folder.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         is_the_same(open, named);
}

bool has_magic(const Descriptor& file) {
  StatusHeader expected, found;
  return pread(file.get(), &found, sizeof found, 0) == static_cast<ssize_t>(sizeof found) &&
         found.magic == expected.magic;
}

// Files of sessions: those that have the name, no lock of a living process, and the magic.
void remove_dead(const Descriptor& folder) {
  const int copy = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> files(copy >= 0 ? fdopendir(copy) : nullptr, closedir);
  const auto ours = fmt::format(".{:016x}{}", our_digits.load(), kStatusSuffix);
  for (int i = 0; files && i < kMostLooked; ++i) {
    const auto* each = readdir(files.get());
    if (each == nullptr) return;
    const std::string name = each->d_name;
    if (!name.ends_with(kStatusSuffix) || name.ends_with(ours)) continue;
    const Descriptor file(openat(folder.get(), name.c_str(),
                                 O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (file && lock(file.get()) && has_magic(file) && names(folder, name, file))
      unlinkat(folder.get(), name.c_str(), 0);
  }
}

struct Made {
  Descriptor file;
  void* page = nullptr;
};

// Its pages are there from now on: a write to one that a full file system cannot give would end the
// process.
Made fill(Descriptor file) {
  if (posix_fallocate(file.get(), 0, kPageBytes) != 0 || !lock(file.get())) return {};
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (page == MAP_FAILED) return {};
  madvise(page, kPageBytes, MADV_DONTFORK);
  new (page) StatusHeader;
  return {std::move(file), page};
}

// It gets its name once it is locked: under that name another process may take it for a dead one's.
Made make_file(const Descriptor& folder, const std::string& name) {
  const auto unnamed = "." + name + ".new";
  Descriptor file(openat(folder.get(), unnamed.c_str(),
                         O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return {};
  auto made = fill(Descriptor(out_of_reach(file.release())));
  if (made.page != nullptr &&
      renameat2(folder.get(), unnamed.c_str(), folder.get(), name.c_str(), RENAME_NOREPLACE) == 0)
    return made;
  unlinkat(folder.get(), unnamed.c_str(), 0);
  if (made.page != nullptr) munmap(made.page, kPageBytes);
  return {};
}

std::uint64_t* words(void* page) {
  return reinterpret_cast<std::uint64_t*>(static_cast<char*>(page) + sizeof(StatusHeader));
}

}  // namespace

std::vector<std::string> status_folders() {
  if (auto asked = variable("SENTINEL_STATUS"); asked == "off")
    return {};
  else if (!asked.empty())
    return {std::move(asked)};
  std::vector<std::string> folders;
  if (const auto runtime = variable("XDG_RUNTIME_DIR"); runtime.starts_with('/'))
    folders.push_back(runtime + "/sentinel");
  const auto user = fmt::format("/run/user/{}/sentinel", geteuid());
  if (folders.empty() || folders.front() != user) folders.push_back(user);
  folders.push_back(fmt::format("/dev/shm/sentinel-{}", geteuid()));
  return folders;
}

StatusPage StatusPage::make() noexcept try {
  std::uint64_t digits = 0;  // two namespaces of processes count from 1 each
  if (getrandom(&digits, sizeof digits, 0) != static_cast<ssize_t>(sizeof digits)) return {};
  const auto name = fmt::format("{}.{:016x}{}", getpid(), digits, kStatusSuffix);
  for (const auto& path : status_folders()) {
    auto folder = open_folder(path);
    if (!folder) continue;
    remove_dead(folder);
    auto [file, page] = make_file(folder, name);
    if (page == nullptr) continue;
    our_digits = digits;
    return {std::move(folder), std::move(file), page, name};
  }
  return {};
} catch (const std::exception&) {
  return {};
}

StatusPage::StatusPage(StatusPage&& other) noexcept
    : folder_(std::move(other.folder_)),
      file_(std::move(other.file_)),
      page_(std::exchange(other.page_, nullptr)),
      name_(std::move(other.name_)),
      owner_(other.owner_) {}

StatusPage& StatusPage::operator=(StatusPage&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(file_, other.file_);
  std::swap(page_, other.page_);
  std::swap(name_, other.name_);
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
  if (names(folder_, name_, file_)) unlinkat(folder_.get(), name_.c_str(), 0);
  munmap(std::exchange(page_, nullptr), kPageBytes);
}

}  // namespace sentinel
