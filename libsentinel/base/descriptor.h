// A file descriptor that its holder closes; and descriptors out of a program's reach.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>

struct stat;

namespace sentinel {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// The same file under a number that programs do not come to, close-on-exec; `fd` itself where the
// limit of descriptors leaves none. Daemons close all that they did not open and then open files of
// their own, which get the lowest numbers: what we write to a number that has become theirs would
// be written into their file. A high number stays closed, and its use an error. -1 stays -1, with
// its errno.
int out_of_reach(int fd) noexcept;

// A number, and which file it meant when it was ours. A program that closes a number may get it for
// a file of its own: whoever then writes, reads, cuts or closes by the number does so to that file.
// (The kernel's nameless objects, an eventfd and a userfaultfd, are one file in this sense.)
// Copies mean the same number; none closes it when it ends.
class OurFile {
 public:
  OurFile() = default;
  explicit OurFile(int number) noexcept;

  int number() const noexcept { return number_; }
  bool is_open() const noexcept { return number_ >= 0; }  // or was, and the program has closed it
  // Else errno is EBADF.
  bool is_ours() const noexcept;
  bool is(const struct stat& found) const noexcept;
  // Where it is ours.
  void close() noexcept;

 private:
  int number_ = -1;
  std::uint64_t device_ = 0, inode_ = 0;
};

}  // namespace sentinel
