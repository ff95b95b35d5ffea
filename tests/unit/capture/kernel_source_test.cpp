// The kernel's source: the seam's contract, and the same counts as the userfaultfd source.
#include "capture/kernel_source.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <random>

#include "capture/userfault/userfault_source.h"
#include "contract/access_source.h"
#include "unit/capture/fault_fixture.h"
#include "unit/capture/worker.h"

namespace sentinel {
namespace {

std::string why_absent() {
  const int code = KernelSource::probe();
  return code == 0 ? "" : std::string("no patched kernel (/dev/sentinel): ") + std::strerror(-code);
}

void mark_pages(const Mapping& mapping, std::size_t pages) {
  for (std::size_t i = 0; i < pages; ++i) std::memset(mapping.page(i), Memory::mark(i), kPage);
}

struct Kernel {
  static std::string absent() { return why_absent(); }
  Kernel(std::size_t pages, std::uint32_t window)
      : mapping_(Mapping::anonymous(pages)), source_({.window_pages = window}) {
    mark_pages(mapping_, pages);
  }
  AccessSource& source() { return source_; }
  std::uintptr_t page(std::size_t i) { return mapping_.address(i); }
  void touch(std::size_t i, bool write, unsigned thread) {
    unsigned char* const at = mapping_.page(i);
    workers_[thread].post([=] {
      if (write)
        poke(at, Memory::mark(i));
      else
        EXPECT_EQ(sentinel::touch(at), Memory::mark(i));
    });
  }
  Mapping mapping_;
  KernelSource source_;
  Worker workers_[4];
};

INSTANTIATE_TYPED_TEST_SUITE_P(Kernel, AccessSourceContract, Kernel);

// --- both sources

constexpr std::size_t kPages = 96;

using Program = std::function<void(const Mapping&)>;
using Counts = std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>>;

// Three tags; the last is sampled.
std::vector<ArmRange> ranges_of(const Mapping& mapping) {
  return {{mapping.address(0), 32 * kPage, 1, 1},
          {mapping.address(32), 32 * kPage, 1, 2},
          {mapping.address(64), 32 * kPage, 4, 3}};
}

Counts drained(AccessSource& source) {
  std::vector<PageCount> counts;
  EXPECT_EQ(source.drain(counts), 0);
  Counts sum;
  for (const auto& count : counts) {
    sum[count.tag].first += count.reads;
    sum[count.tag].second += count.writes;
  }
  return sum;
}

constexpr std::uintptr_t kPlace = 0x100000000000;  // the same, so that the same pages are sampled

Counts in_the_kernel(const Program& program, std::uint32_t window) {
  const auto mapping = Mapping::anonymous(kPages, kPlace);
  mark_pages(mapping, kPages);
  KernelSource source({.window_pages = window, .seed = 7});
  EXPECT_EQ(source.arm(ranges_of(mapping)), 0);
  program(mapping);
  return drained(source);
}

Counts by_userfaultfd(const Program& program, std::uint32_t window) {
  const Memory memory(kPages, kPlace);
  const auto loop = FaultLoop::open();
  UserfaultSource source(*loop, {.window_pages = window, .seed = 7});
  EXPECT_EQ(loop->register_range(kPlace, kPages * kPage, false, true), 0);
  loop->set_minor_handler(&UserfaultSource::answer, &source);
  EXPECT_EQ(source.arm(ranges_of(memory.mapping)), 0);
  program(memory.mapping);
  const auto counts = drained(source);
  loop->set_minor_handler(nullptr, nullptr);
  return counts;
}

class BothSources : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    if (const auto why = why_absent(); !why.empty()) GTEST_SKIP() << why;
    try {
      if (!FaultLoop::open()->can_count()) GTEST_SKIP() << "no MINOR faults on shared memory";
    } catch (const Error& refused) {
      GTEST_SKIP() << refused.what();
    }
  }
  void expect_the_same(const Program& program) {
    const auto kernel = in_the_kernel(program, GetParam());
    EXPECT_FALSE(kernel.empty());
    EXPECT_EQ(kernel, by_userfaultfd(program, GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(Windows, BothSources, testing::Values(1u, 2u, 8u, 63u, 64u, 1024u));

TEST_P(BothSources, CountRandomAccessesAlike) {
  expect_the_same([](const Mapping& mapping) {
    std::mt19937 random(3);
    for (int i = 0; i < 1500; ++i) {
      unsigned char* const at = mapping.page(random() % kPages) + random() % kPage;
      if (random() % 3 == 0)
        poke(at, 1);
      else
        touch(at);
    }
  });
}

TEST_P(BothSources, CountSweepsAlike) {
  expect_the_same([](const Mapping& mapping) {
    for (int round = 0; round < 4; ++round)
      for (std::size_t i = 0; i < mapping.bytes(); i += 512) poke(mapping.page(0) + i, 2);
  });
}

TEST_P(BothSources, CountInstructionsOnTwoPagesAlike) {
  expect_the_same([](const Mapping& mapping) {
    std::mt19937 random(5);
    for (int i = 0; i < 500; ++i) {
      unsigned char* const at = mapping.page(1 + random() % 62) - 3;
      *reinterpret_cast<volatile std::uint64_t*>(at);
      touch(mapping.page(random() % 64));
    }
  });
}

TEST_P(BothSources, CountCopiesAlike) {
  // Both ends cross into a page. With a window of one page each byte opens two.
  expect_the_same([](const Mapping& mapping) {
    for (std::size_t i = 0; i < 30; ++i) {
      void* to = mapping.page(i + 1) - 70;
      const void* from = mapping.page(41 + i % 20) - 40;
      std::size_t bytes = 100;
      asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    }
  });
}

TEST_P(BothSources, CountSystemCallsAlike) {
  expect_the_same([](const Mapping& mapping) {
    const int zero = open("/dev/zero", O_RDONLY);
    for (std::size_t i = 0; i < 20; ++i)
      EXPECT_EQ(read(zero, mapping.page(i), 2 * kPage), static_cast<ssize_t>(2 * kPage));
    close(zero);
    unsigned char byte = 0;
    for (std::size_t i = 30; i < 60; ++i) {
      const iovec to{&byte, 1}, from{mapping.page(i), 1};
      EXPECT_EQ(process_vm_readv(getpid(), &to, 1, &from, 1, 0), 1);
    }
  });
}

// A file without a name on a disk, past the page cache; -1 where there is none.
int direct_file(std::size_t pages) {
  const int fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  const auto bytes = Mapping::anonymous(pages);
  if (fd >= 0) {
    EXPECT_EQ(pwrite(fd, bytes.page(0), bytes.bytes(), 0), static_cast<ssize_t>(bytes.bytes()));
  }
  return fd;
}

// The kernel takes the pages themselves: for a read it writes them, for a write it reads them.
TEST_P(BothSources, CountDirectIoAlike) {
  const int file = direct_file(4);
  if (file < 0) GTEST_SKIP() << "no O_DIRECT in /var/tmp";
  expect_the_same([&](const Mapping& mapping) {
    for (std::size_t i = 0; i < 60; i += 3)
      EXPECT_EQ(pread(file, mapping.page(i), 4 * kPage, 0), static_cast<ssize_t>(4 * kPage));
    for (std::size_t i = 60; i < 90; i += 2)
      EXPECT_EQ(pwrite(file, mapping.page(i), 3 * kPage, 0), static_cast<ssize_t>(3 * kPage));
  });
  close(file);
}

// In this thread, and in one of the kernel's that works for it.
TEST_P(BothSources, CountIoUringAlike) {
  const int file = direct_file(4);
  io_uring ring;
  if (file < 0 || io_uring_queue_init(4, &ring, 0) != 0)
    GTEST_SKIP() << "no O_DIRECT or no io_uring";
  const auto read_into = [&](unsigned char* at, unsigned flags) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring);
    io_uring_prep_read(entry, file, at, 2 * kPage, 0);
    io_uring_sqe_set_flags(entry, flags);
    EXPECT_EQ(io_uring_submit(&ring), 1);
    io_uring_cqe* done = nullptr;
    ASSERT_EQ(io_uring_wait_cqe(&ring, &done), 0);
    EXPECT_EQ(done->res, static_cast<int>(2 * kPage));
    io_uring_cqe_seen(&ring, done);
  };
  expect_the_same([&](const Mapping& mapping) {
    for (std::size_t i = 0; i < 40; i += 2) read_into(mapping.page(i), 0);
    for (std::size_t i = 40; i < 90; i += 2) read_into(mapping.page(i), IOSQE_ASYNC);
  });
  io_uring_queue_exit(&ring);
  close(file);
}

// Ground truth of the program's own: it notes its accesses and replays them through a window.
TEST_P(BothSources, CountWhatAModelOfTheWindowCounts) {
  std::mt19937 random(11);
  std::vector<std::pair<std::size_t, bool>> accesses;  // page, write
  for (int i = 0; i < 2000; ++i) accesses.emplace_back(random() % 64, random() % 2 == 0);
  Counts expected;
  std::deque<std::size_t> window;
  for (const auto& [page, write] : accesses) {
    if (std::find(window.begin(), window.end(), page) != window.end()) continue;
    if (window.size() == GetParam()) window.pop_front();
    window.push_back(page);
    auto& [reads, writes] = expected[page < 32 ? 1 : 2];
    ++(write ? writes : reads);
  }
  const Program program = [&](const Mapping& mapping) {
    for (const auto& [page, write] : accesses)
      if (write)
        poke(mapping.page(page), 1);
      else
        touch(mapping.page(page));
  };
  EXPECT_EQ(in_the_kernel(program, GetParam()), expected);
  EXPECT_EQ(by_userfaultfd(program, GetParam()), expected);
}

// --- what only the kernel's can do

class KernelSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_absent(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(KernelSourceTest, OneSourceAProcess) {
  const KernelSource first({});
  EXPECT_THROW(KernelSource({}), Error);
}

TEST_F(KernelSourceTest, AnotherComesAfterTheFirst) {
  for (int i = 0; i < 3; ++i) {
    const auto mapping = Mapping::anonymous(4);
    KernelSource source({});
    const ArmRange all{mapping.address(), mapping.bytes(), 1, 9};
    ASSERT_EQ(source.arm({&all, 1}), 0);
    poke(mapping.page(2), 1);
    EXPECT_EQ(drained(source)[9].second, 1u);
  }
}

TEST_F(KernelSourceTest, AForkedChildIsRefused) {
  KernelSource source({});
  const auto mapping = Mapping::anonymous(1);
  const ArmRange all{mapping.address(), mapping.bytes(), 1, 1};
  const pid_t child = fork();
  if (child == 0) _exit(source.arm({&all, 1}) == -ESRCH ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(KernelSourceTest, SharedMemoryIsRefused) {
  const Memory memory(1);
  KernelSource source({});
  const ArmRange all{memory.mapping.address(), memory.mapping.bytes(), 1, 1};
  EXPECT_EQ(source.arm({&all, 1}), -EOPNOTSUPP);
}

TEST_F(KernelSourceTest, ManyTags) {
  const auto mapping = Mapping::anonymous(1000);
  KernelSource source({});
  std::vector<ArmRange> ranges;
  for (std::uint32_t i = 0; i < 1000; ++i) ranges.push_back({mapping.address(i), kPage, 1, i * 3});
  ASSERT_EQ(source.arm(ranges), 0);
  for (std::size_t i = 0; i < 1000; ++i) poke(mapping.page(i), 1);
  EXPECT_EQ(drained(source).size(), 1000u);
  EXPECT_TRUE(drained(source).empty());
  EXPECT_EQ(source.status().openings, 1000u);
}

TEST(KernelSourceAbsence, IsExplained) {
  if (KernelSource::probe() == 0) GTEST_SKIP() << "this kernel has /dev/sentinel";
  try {
    KernelSource source({});
    FAIL();
  } catch (const Error& refused) {
    EXPECT_NE(std::string(refused.what()).find("kernel/README.md"), std::string::npos);
  }
}

}  // namespace
}  // namespace sentinel
