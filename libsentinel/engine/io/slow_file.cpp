// Opens a nameless file on each disk, gives out slots, and translates a full disk into words.
#include "engine/io/slow_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

// Behind the last slot of a file, so that a file which ends within a slot lacks a whole page of
// what was left: a forked child has no descriptor to ask for the end.
constexpr std::uint64_t kTail = 4096;
constexpr std::int64_t kGrowSlots = 64;  // slots added to each file at a time
constexpr std::time_t kYoung = 60;       // seconds
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
constexpr std::string_view kName = "sentinel-XXXXXX.slow", kEnd = ".slow";

void refuse_memory(const std::string& directory) {
  struct statfs fs;
  if (statfs(directory.c_str(), &fs) != 0)
    throw Error(fmt::format("could not use {} as the slow tier; name a directory on an SSD with "
                            "--slow DIR or SENTINEL_DIR",
                            directory),
                errno);
  if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
    throw Error(
        fmt::format("{} lies in memory (tmpfs): tensors moved there would save nothing. Name "
                    "a directory on a disk with --slow DIR, or force it with "
                    "--allow-tmpfs",
                    directory));
}

void refuse_full(const std::string& directory, std::uint64_t need) {
  struct statvfs fs;
  if (statvfs(directory.c_str(), &fs) != 0) return;
  const auto available = static_cast<std::uint64_t>(fs.f_bavail) * fs.f_frsize;
  if (available < need)
    throw Error(fmt::format("{} has {} free, but {} are needed for the tensors that leave memory; "
                            "make room or name another directory with --slow DIR",
                            directory, print_bytes(available), print_bytes(need)),
                ENOSPC);
}

dev_t device_of(const std::string& directory) {
  struct stat found {};
  return stat(directory.c_str(), &found) == 0 ? found.st_dev : 0;
}

}  // namespace

const char* print_transfer_error(int error) noexcept {
  if (error == kOtherBytes)
    return "the slow tier's file gave back other bytes than were written: another process has "
           "written to it, or the drive is failing";
  if (error == kOtherEnd)
    return "the slow tier's file does not end where it was left: another process has truncated or "
           "extended it, or this program has closed it";
  if (error == EBADF) return "this program has closed the slow tier's file, which it did not open";
  if (error == EFBIG)
    return "the slow tier's file is as large as `ulimit -f` allows: raise that, or name several "
           "directories with --slow A,B";
  return strerror(error);
}

std::vector<std::string> split_directories(const std::string& text) {
  if (std::error_code none; std::filesystem::is_directory(text, none)) return {text};
  std::vector<std::string> directories;
  for (std::size_t at = 0; at <= text.size();) {
    const auto end = std::min(text.find(',', at), text.size());
    directories.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return directories;
}

bool is_left_behind(const std::string& path) {
  const auto name = std::filesystem::path(path).filename().string();
  const auto begin = kName.substr(0, kName.find('X'));
  if (name.size() != kName.size() || !name.starts_with(begin) || !name.ends_with(kEnd))
    return false;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  struct stat found {};
  const bool left = fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                    found.st_uid == geteuid() &&
                    time(nullptr) - found.st_mtim.tv_sec >= kYoung &&  // else not locked yet, maybe
                    flock(file, LOCK_EX | LOCK_NB) == 0;
  close(file);
  return left;
}

SlowFile::SlowFile(const Options& options)
    : frame_bytes_(options.frame_bytes), checksums_(options.checksums, options.frame_bytes) {
  const auto directories = split_directories(options.directory);
  const std::uint64_t growth = kGrowSlots * frame_bytes_;
  const auto share = std::min<std::uint64_t>(options.need_bytes / directories.size(), ~0ull / 4);
  const auto each = round_up(share, growth);
  std::map<dev_t, std::uint64_t> needed;  // several directories may be on one disk
  for (const auto& directory : directories) {
    if (directory.empty())
      throw Error(fmt::format("\"{}\" names an empty directory", options.directory));
    if (!options.allow_memory) refuse_memory(directory);
    refuse_full(directory, needed[device_of(directory)] += options.need_bytes == 0 ? 0 : each);
  }
  try {
    for (const auto& directory : directories) open_in(directory, options.named);
  } catch (...) {
    forget_names();
    for (auto& file : files_) file.close();
    throw;
  }
  free_.reserve(1 << 16);
}

// O_TMPFILE where the file system has it: there is then no moment at which the file has a name.
void SlowFile::open_in(const std::string& directory, bool named) {
  const auto flags = O_RDWR | O_CLOEXEC;
  for (const int direct : {O_DIRECT, 0}) {
    int file = named ? open_named(directory, O_CLOEXEC | direct, true)
                     : open(directory.c_str(), flags | O_TMPFILE | direct, 0600);
    if (file < 0 && !named &&
        (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)) {
      file = open_named(directory, O_CLOEXEC | direct, false);
      forget_names();
    }
    if (file < 0) continue;
    direct_ &= direct != 0;
    files_.emplace_back(out_of_reach(file));
    return;
  }
  throw Error(fmt::format("could not create a file in {}; name a writable directory on an SSD with "
                          "--slow DIR",
                          directory),
              errno);
}

// Locked while its process lives, so that what was left behind is known (is_left_behind): where it
// cannot be, no name may stay.
int SlowFile::open_named(const std::string& directory, int flags, bool stays) {
  auto name = fmt::format("{}/{}", directory, kName);
  const int file = mkostemps(name.data(), static_cast<int>(kEnd.size()), flags);
  if (file < 0) return file;
  if (stays && flock(file, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    unlink(name.c_str());
    close(file);
    errno = code;
    return -1;
  }
  names_.push_back(std::move(name));
  return file;
}

void SlowFile::forget_names() noexcept {
  for (const auto& name : names_) unlink(name.c_str());
  names_.clear();
}

SlowFile::~SlowFile() {
  forget_names();
  for (auto& file : files_) file.close();
  for (auto& child : children_) child.life.forget();
}

std::vector<int> SlowFile::files() const {
  std::vector<int> numbers;
  for (const auto& file : files_) numbers.push_back(file.number());
  return numbers;
}

// Each file has as much as the one with the least; those on one disk share it.
std::uint64_t SlowFile::capacity() const {
  std::map<dev_t, std::pair<std::uint64_t, std::uint64_t>> disks;  // free bytes, files
  for (const auto& file : files_) {
    struct stat found {};
    struct statvfs fs {};
    if (fstat(file.number(), &found) != 0 || fstatvfs(file.number(), &fs) != 0) return 0;
    auto& [bytes, files] = disks[found.st_dev];
    bytes = static_cast<std::uint64_t>(fs.f_bavail) * fs.f_frsize;
    ++files;
  }
  std::uint64_t least = ~0ull;
  for (const auto& [device, disk] : disks) least = std::min(least, disk.first / disk.second);
  return least * files_.size();
}

// Fewer where `ulimit -f` ends a file earlier.
std::int64_t SlowFile::slots_to_grow() const noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kGrowSlots;
  const auto used = offset(slots_) + kTail;
  const auto left = limit.rlim_cur < used ? 0 : (limit.rlim_cur - used) / frame_bytes_;
  return static_cast<std::int64_t>(std::min<std::uint64_t>(left, kGrowSlots));
}

// Space is allocated before it is promised: a full disk shows here, not in the middle of a write. A
// file that was truncated meanwhile would be filled with zeros.
bool SlowFile::grow() noexcept {
  const auto slots = slots_to_grow();
  const auto end = offset(slots_) + frame_bytes_ * static_cast<std::uint64_t>(slots) + kTail;
  const auto more = slots * static_cast<std::int64_t>(files_.size());
  if (slots == 0 || slots_ + more > checksums_.most_slots()) {
    errno = slots == 0 ? EFBIG : EOVERFLOW;
    return false;
  }
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (!ends_as_left(static_cast<std::int64_t>(i))) {
      errno = kOtherEnd;
      return false;
    }
  next_end_ = end;
  for (const auto& file : files_)
    if (!extend(file, end)) return false;
  end_ = end;
  generation_of_.resize(static_cast<std::size_t>(slots_ + more));
  for (auto i = more; i-- > 0;) free_.push_back(slots_ + i);
  slots_ += more;
  return true;
}

// Where the file system allocates nothing beforehand, the file still ends where it is to end.
bool SlowFile::extend(const OurFile& file, std::uint64_t end) const noexcept {
  const auto begin = static_cast<off_t>(end_.load());
  const auto more = static_cast<off_t>(end) - begin;
  while (fallocate(file.number(), 0, begin, more) != 0) {
    if (errno == EOPNOTSUPP) return ftruncate(file.number(), static_cast<off_t>(end)) == 0;
    if (errno != EINTR) return false;
  }
  return true;
}

// A file that has grown already while another one of them grows is as it should be.
bool SlowFile::ends_as_left(std::int64_t slot) const noexcept {
  const auto least = end_.load();
  struct stat found {};
  if (fstat(descriptor(slot), &found) != 0 || !files_[file(slot)].is(found)) return false;
  const auto end = static_cast<std::uint64_t>(found.st_size);
  return end >= least && end <= next_end_.load();
}

std::int64_t SlowFile::reserve() noexcept {
  const std::lock_guard guard(lock_);
  if (free_.empty()) reap();
  if (free_.empty() && !grow()) return -errno;
  const auto slot = free_.back();
  free_.pop_back();
  generation_of_[static_cast<std::size_t>(slot)] = generation_;
  return slot;
}

bool SlowFile::is_short() const noexcept {
  const std::lock_guard guard(lock_);
  if (!free_.empty()) return false;
  if (slots_to_grow() < kGrowSlots) return true;
  return std::ranges::any_of(files_, [this](const OurFile& file) {
    struct statvfs fs {};
    if (fstatvfs(file.number(), &fs) != 0) return true;
    const auto left = static_cast<std::uint64_t>(fs.f_bavail) * fs.f_frsize;
    return left < (end_ + kGrowSlots * frame_bytes_) * files_.size();
  });
}

void SlowFile::release(std::int64_t slot) noexcept {
  const std::lock_guard guard(lock_);
  (child_may_read(slot) ? kept_ : free_).push_back(slot);
}

bool SlowFile::child_may_read(std::int64_t slot) const noexcept {
  const auto reserved = generation_of_[static_cast<std::size_t>(slot)];
  return std::any_of(children_.begin(), children_.end(),
                     [&](const Child& child) { return reserved < child.generation; });
}

// ---------------------------------------------------------------- forked children

int SlowFile::before_fork() noexcept {
  life_ = ChildLife::begin();
  if (!life_.begun()) return -errno;
  const int code = map_files();
  if (code == 0) return 0;
  life_.in_parent();
  life_.forget();
  return code;
}

// Private, for some file systems share no mapping of a file that is written past the page cache.
int SlowFile::map_files() noexcept {
  if (slots_ == 0) return 0;
  mappings_.resize(files_.size());
  for (std::size_t i = 0; i < files_.size(); ++i) {
    void* address = files_[i].is_ours()
                        ? mmap(nullptr, end_, PROT_READ, MAP_PRIVATE, files_[i].number(), 0)
                        : MAP_FAILED;
    if (address == MAP_FAILED) {
      const int code = errno;
      unmap_files();
      return -code;
    }
    mappings_[i] = {address, end_};
  }
  return 0;
}

void SlowFile::unmap_files() noexcept {
  for (const auto& [address, bytes] : mappings_)
    if (address != nullptr) munmap(address, bytes);
  mappings_.clear();
}

void SlowFile::after_fork_in_parent() noexcept {
  unmap_files();
  life_.in_parent();
  const std::lock_guard guard(lock_);
  reap();
  children_.push_back({std::exchange(life_, {}), ++generation_});
}

void SlowFile::after_fork_in_child() noexcept { life_.in_child(); }

bool SlowFile::child_has_end(std::int64_t slot) const noexcept {
  const auto& mapping = mappings_[file(slot)];
  void* tail = static_cast<char*>(mapping.address) + mapping.bytes - kTail;
  return madvise(tail, kTail, MADV_POPULATE_READ) == 0;
}

// Populating tells of a file that ends too early, where a touch would be a signal.
const void* SlowFile::child_copy(std::int64_t slot) const noexcept {
  const auto& mapping = mappings_[file(slot)];
  if (offset(slot) + frame_bytes_ > mapping.bytes) return nullptr;
  void* copy = static_cast<char*>(mapping.address) + offset(slot);
  madvise(copy, frame_bytes_, MADV_WILLNEED);
  return madvise(copy, frame_bytes_, MADV_POPULATE_READ) == 0 ? copy : nullptr;
}

void SlowFile::let_go(const void* child_copy) const noexcept {
  madvise(const_cast<void*>(child_copy), frame_bytes_, MADV_DONTNEED);
}

// Forgets children that have gone and frees what was kept for them.
void SlowFile::reap() noexcept {
  std::erase_if(children_, [](Child& child) {
    const bool over = child.life.over();
    if (over) child.life.forget();
    return over;
  });
  std::erase_if(kept_, [this](std::int64_t slot) {
    if (child_may_read(slot)) return false;
    free_.push_back(slot);
    return true;
  });
}

}  // namespace sentinel
