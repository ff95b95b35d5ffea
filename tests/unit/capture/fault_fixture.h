// What the tests of this stage share: a fault loop, or the reason for skipping, and mappings.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "capture/userfault/fault_loop.h"
#include "sentinel/error.h"

namespace sentinel {

constexpr std::size_t kPage = 4096;

class Mapping {
 public:
  // `at`: where, if not 0; nothing may be mapped there.
  static Mapping anonymous(std::size_t pages, std::uintptr_t at = 0) {
    return Mapping(pages, MAP_PRIVATE | MAP_ANONYMOUS, -1, at);
  }
  static Mapping of(int file, std::size_t pages, std::uintptr_t at = 0) {
    return Mapping(pages, MAP_SHARED, file, at);
  }
  Mapping(Mapping&& other) noexcept : at_(other.at_), pages_(other.pages_) { other.at_ = nullptr; }
  ~Mapping() {
    if (at_) munmap(at_, bytes());
  }
  unsigned char* page(std::size_t i) const { return at_ + i * kPage; }
  std::uintptr_t address(std::size_t i = 0) const {
    return reinterpret_cast<std::uintptr_t>(page(i));
  }
  std::size_t bytes() const { return pages_ * kPage; }
  void release() { at_ = nullptr; }

 private:
  Mapping(std::size_t pages, int flags, int file, std::uintptr_t where) : pages_(pages) {
    if (where != 0) flags |= MAP_FIXED_NOREPLACE;
    void* const at =
        mmap(reinterpret_cast<void*>(where), bytes(), PROT_READ | PROT_WRITE, flags, file, 0);
    if (at == MAP_FAILED) throw Error("mapping test memory", errno);
    at_ = static_cast<unsigned char*>(at);
  }
  unsigned char* at_ = nullptr;
  std::size_t pages_;
};

// A memfd whose page i is filled with the byte mark(i); `alias` is a mapping that never faults.
struct Memory {
  explicit Memory(std::size_t pages, std::uintptr_t at = 0)
      : file(make(pages)), alias(Mapping::of(file, pages)), mapping(Mapping::of(file, pages, at)) {
    for (std::size_t i = 0; i < pages; ++i) std::memset(alias.page(i), mark(i), kPage);
  }
  ~Memory() { close(file); }
  static unsigned char mark(std::size_t page) { return static_cast<unsigned char>(page * 7 + 1); }
  static int make(std::size_t pages) {
    const int fd = memfd_create("sentinel-test", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(pages * kPage)) != 0)
      throw Error("making test memory", errno);
    return fd;
  }
  int file;
  Mapping alias, mapping;
};

class FaultTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      loop = FaultLoop::open();
    } catch (const Error& refused) {
      GTEST_SKIP() << refused.what();
    }
    if (!loop->can_count()) GTEST_SKIP() << "this kernel has no MINOR faults on shared memory";
  }
  std::unique_ptr<FaultLoop> loop;
};

inline unsigned char touch(const unsigned char* p) {
  return *const_cast<const volatile unsigned char*>(p);
}
inline void poke(unsigned char* p, unsigned char value) {
  *const_cast<volatile unsigned char*>(p) = value;
}

}  // namespace sentinel
