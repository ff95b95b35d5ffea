#include "capture/userfault/fault_loop.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "capture/userfault/uffd_open.h"
#include "unit/capture/fault_fixture.h"

namespace sentinel {
namespace {

using FaultLoopTest = FaultTest;

TEST_F(FaultLoopTest, EitherWayOfOpeningServes) {
  const UffdProbe probe = probe_userfaultfd();
  EXPECT_NE(probe.features, 0u);
  for (const auto backend : {FaultLoop::Backend::device, FaultLoop::Backend::syscall}) {
    try {
      EXPECT_TRUE(FaultLoop::open({.backend = backend})->can_count());
    } catch (const Error& refused) {
      EXPECT_NE(std::string(refused.what()).find("userfaultfd"), std::string::npos);
    }
  }
}

TEST_F(FaultLoopTest, UnwantedFeaturesStayOff) {
  const auto plain = FaultLoop::open({.features = 0});
  EXPECT_FALSE(plain->can_move());
  EXPECT_FALSE(plain->can_count());
  EXPECT_EQ(plain->replace_mapping(kPage, kPage, kPage), -EOPNOTSUPP);
}

TEST_F(FaultLoopTest, WithoutHandlersFaultsAreResolvedPlainly) {
  Memory memory(4);
  ASSERT_EQ(loop->register_range(memory.mapping.address(), memory.mapping.bytes(), false, true), 0);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(touch(memory.mapping.page(i)), Memory::mark(i));
  EXPECT_EQ(loop->faults(), 4u);
  const Mapping anonymous = Mapping::anonymous(2);
  ASSERT_EQ(loop->register_range(anonymous.address(), anonymous.bytes(), true, false), 0);
  EXPECT_EQ(touch(anonymous.page(1)), 0);
}

// The status of a child in which `body` runs, for it closes what this process has open. The loop of
// this process ends first: its threads may be in the allocator at the fork, and that of the address
// sanitizer would stay locked in the child.
template <class Body>
int status_of(std::unique_ptr<FaultLoop>& here, Body&& body) {
  here.reset();
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(FaultLoopTest, HiddenDescriptorsCannotBeClosed) {
  EXPECT_EQ(status_of(loop,
                      [] {
                        const auto own = FaultLoop::open({.keeper = false}).release();
                        const Mapping memory = Mapping::anonymous(4);
                        if (own->register_range(memory.address(), memory.bytes(), true, false) != 0)
                          _exit(2);
                        if (own->hide_descriptors() != 0) _exit(3);
                        close_range(0, ~0u, 0);
                        if (touch(memory.page(0)) == 0 && own->faults() == 1) _exit(0);
                      }),
            0);
}

// The thread that serves holds no end of a pipe that the program has closed.
TEST_F(FaultLoopTest, HidingKeepsNothingElseOpen) {
  EXPECT_EQ(status_of(loop,
                      [] {
                        int pipe[2];
                        if (::pipe(pipe) != 0) _exit(2);
                        const auto own = FaultLoop::open({.keeper = false}).release();
                        if (own->hide_descriptors() != 0) _exit(3);
                        close(pipe[1]);
                        char byte = 0;
                        if (read(pipe[0], &byte, 1) == 0) _exit(0);
                      }),
            0);
}

// Without the keeper the kernel would drop the guard, and the touch would find zeros.
TEST_F(FaultLoopTest, AProgramThatClosesTheDescriptorReadsNoZeros) {
  constexpr int kLost = 7;
  EXPECT_EQ(status_of(loop,
                      [] {
                        const auto own = FaultLoop::open().release();
                        own->set_missing_handler([](void*, const Fault&) noexcept {}, nullptr);
                        own->set_lost_handler([](void*) noexcept { _exit(kLost); }, nullptr);
                        const Mapping memory = Mapping::anonymous(4);
                        if (own->register_range(memory.address(), memory.bytes(), true, false) != 0)
                          _exit(2);
                        usleep(50000);  // the loop waits for faults
                        close_range(3, ~0u, 0);
                        touch(memory.page(0));
                      }),
            kLost);
}

// Any thread that fills memory finds out, before it says "Inappropriate ioctl for device".
TEST_F(FaultLoopTest, AFileOfTheProgramsUnderTheNumberIsNoFailedTransfer) {
  constexpr int kLost = 7;
  EXPECT_EQ(
      status_of(loop,
                [] {
                  const auto own = FaultLoop::open().release();
                  own->set_lost_handler([](void*) noexcept { _exit(kLost); }, nullptr);
                  const Mapping memory = Mapping::anonymous(4);
                  if (own->register_range(memory.address(), memory.bytes(), true, false) != 0)
                    _exit(2);
                  const int zeros = open("/dev/zero", O_RDONLY);
                  std::error_code gone;
                  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
                    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
                    if (target.find("[userfaultfd]") != std::string::npos)
                      dup2(zeros, std::stoi(entry.path().filename()));
                  }
                  own->zero(memory.address(), kPage);
                }),
      kLost);
}

struct Seen {
  FaultLoop* loop;
  std::atomic<int> reads{0}, writes{0};
  std::atomic<pid_t> tid{0};
  std::atomic<std::uintptr_t> address{0};
  static void run(void* self, const Fault& fault) noexcept {
    auto& seen = *static_cast<Seen*>(self);
    (fault.write ? seen.writes : seen.reads)++;
    seen.tid = fault.tid;
    seen.address = fault.address;
    seen.loop->cont(fault.address & ~(kPage - 1), kPage);
  }
};

TEST_F(FaultLoopTest, AHandlerIsToldWhoWhereAndHow) {
  Memory memory(4);
  Seen seen{loop.get()};
  loop->set_minor_handler(Seen::run, &seen);
  ASSERT_EQ(loop->register_range(memory.mapping.address(), memory.mapping.bytes(), false, true), 0);
  poke(memory.mapping.page(1) + 5, 99);
  EXPECT_EQ(seen.writes, 1);
  EXPECT_EQ(seen.tid, gettid());
  EXPECT_EQ(seen.address & ~(kPage - 1), memory.mapping.address(1));
  EXPECT_EQ(touch(memory.mapping.page(2)), Memory::mark(2));
  EXPECT_EQ(seen.reads, 1);
  EXPECT_EQ(touch(memory.alias.page(1) + 5), 99);
  loop->set_minor_handler(nullptr, nullptr);
}

TEST_F(FaultLoopTest, KernelModeAccessesFaultToo) {
  Memory memory(4);
  Seen seen{loop.get()};
  loop->set_minor_handler(Seen::run, &seen);
  ASSERT_EQ(loop->register_range(memory.mapping.address(), memory.mapping.bytes(), false, true), 0);
  const int zero = open("/dev/zero", O_RDONLY);
  EXPECT_EQ(read(zero, memory.mapping.page(0), kPage), static_cast<ssize_t>(kPage));
  close(zero);
  EXPECT_EQ(touch(memory.mapping.page(0)), 0);
  EXPECT_EQ(seen.writes, 1);
  loop->set_minor_handler(nullptr, nullptr);
}

TEST_F(FaultLoopTest, PresentPagesAreNoError) {
  Memory memory(8);
  ASSERT_EQ(loop->register_range(memory.mapping.address(), memory.mapping.bytes(), true, true), 0);
  touch(memory.mapping.page(3));
  EXPECT_EQ(loop->cont(memory.mapping.address(), memory.mapping.bytes()), 0);
  EXPECT_EQ(loop->cont(memory.mapping.address(), memory.mapping.bytes()), 0);
  EXPECT_EQ(loop->faults(), 1u);
  EXPECT_EQ(touch(memory.mapping.page(7)), Memory::mark(7));
  EXPECT_EQ(loop->faults(), 1u);
}

TEST_F(FaultLoopTest, CopyFillsWhatIsAbsentAndKeepsWhatIsThere) {
  const Mapping from = Mapping::anonymous(3), to = Mapping::anonymous(3);
  std::memset(from.page(0), 5, from.bytes());
  ASSERT_EQ(loop->register_range(to.address(), to.bytes(), true, false), 0);
  poke(to.page(1), 8);
  EXPECT_EQ(loop->copy(to.address(), from.address(), to.bytes()), 0);
  EXPECT_EQ(touch(to.page(0)), 5);
  EXPECT_EQ(touch(to.page(1)), 8);
  EXPECT_EQ(touch(to.page(2)), 5);
}

TEST_F(FaultLoopTest, TheFirstWriteToAProtectedCopyIsAFault) {
  if (!loop->can_protect()) GTEST_SKIP() << "this kernel has no write protection";
  const Mapping from = Mapping::anonymous(2), to = Mapping::anonymous(2);
  std::memset(from.page(0), 5, from.bytes());
  ASSERT_EQ(loop->register_range(to.address(), to.bytes(), true, false, true), 0);
  EXPECT_EQ(loop->copy_protected(to.address(), from.address(), to.bytes()), 0);
  struct Seen {
    FaultLoop* loop;
    std::atomic<int> protect = 0, other = 0;
  } seen{loop.get()};
  loop->set_missing_handler(
      [](void* context, const Fault& fault) noexcept {
        auto& s = *static_cast<Seen*>(context);
        const auto page = fault.address & ~(kPage - 1);
        ++(fault.protect ? s.protect : s.other);
        if (fault.protect)
          madvise(reinterpret_cast<void*>(page), kPage, MADV_DONTNEED);
        else
          s.loop->zero(page, kPage);
        s.loop->wake(page, kPage);
      },
      &seen);
  EXPECT_EQ(touch(to.page(1)), 5);
  EXPECT_EQ(seen.protect + seen.other, 0);
  poke(to.page(0), 9);  // refused; then the page is gone; then there is a new one
  EXPECT_EQ(seen.protect, 1);
  EXPECT_EQ(seen.other, 1);
  EXPECT_EQ(touch(to.page(0)), 9);
  EXPECT_EQ(touch(to.page(1)), 5);
  loop->set_missing_handler(nullptr, nullptr);
  poke(to.page(1), 9);  // nobody minds
  EXPECT_EQ(touch(to.page(1)), 9);
}

TEST_F(FaultLoopTest, MoveTellsHowFarItCame) {
  if (!loop->can_move()) GTEST_SKIP() << "this kernel has no UFFDIO_MOVE";
  const Mapping from = Mapping::anonymous(8), to = Mapping::anonymous(8);
  for (std::size_t i = 0; i < 6; ++i) std::memset(from.page(i), 40 + static_cast<int>(i), kPage);
  ASSERT_EQ(loop->register_range(to.address(), to.bytes(), true, false), 0);
  std::size_t moved = 99;
  EXPECT_EQ(loop->move(to.address(), from.address(), 4 * kPage, &moved), 0);
  EXPECT_EQ(moved, 4 * kPage);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(touch(to.page(i)), 40 + i);
  EXPECT_EQ(loop->move(to.address(4), from.address(4), 4 * kPage, &moved), -ENOENT);
  EXPECT_EQ(moved, 2 * kPage);
  std::memset(from.page(0), 1, kPage);
  EXPECT_EQ(loop->move(to.address(1), from.address(0), kPage, &moved), -EEXIST);
  EXPECT_EQ(moved, 0u);
}

TEST_F(FaultLoopTest, MoveOfAPageSharedWithAChildIsBusy) {
  if (!loop->can_move()) GTEST_SKIP() << "this kernel has no UFFDIO_MOVE";
  const Mapping from = Mapping::anonymous(1), to = Mapping::anonymous(1);
  std::memset(from.page(0), 1, kPage);
  ASSERT_EQ(loop->register_range(to.address(), to.bytes(), true, false), 0);
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(hold[1]);
    _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
  }
  EXPECT_EQ(loop->move(to.address(), from.address(), kPage), -EBUSY);
  close(hold[0]);
  close(hold[1]);
  waitpid(child, nullptr, 0);
}

TEST_F(FaultLoopTest, AChildMayAbandonIt) {
  Memory memory(2);
  ASSERT_EQ(loop->register_range(memory.mapping.address(), memory.mapping.bytes(), false, true), 0);
  const pid_t child = fork();
  if (child == 0) {
    loop->abandon_in_child();
    loop.reset();
    _exit(touch(memory.mapping.page(1)) == Memory::mark(1) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(touch(memory.mapping.page(1)), Memory::mark(1));  // the parent's goes on
}

// --- replacing a mapping

// Gives every missing page of the range the mark of its place.
struct Guard {
  FaultLoop* loop;
  std::uintptr_t begin;
  const unsigned char* contents;
  std::atomic<int> faults{0};
  static void run(void* self, const Fault& fault) noexcept {
    auto& guard = *static_cast<Guard*>(self);
    guard.faults++;
    const std::uintptr_t page = fault.address & ~(kPage - 1);
    const auto from = reinterpret_cast<std::uintptr_t>(guard.contents) + (page - guard.begin);
    if (guard.loop->copy(page, from, kPage) != 0) guard.loop->wake(page, kPage);
  }
};

class Replacing : public FaultTest {
 protected:
  static constexpr std::size_t kPages = 64;
  void SetUp() override {
    FaultTest::SetUp();
    if (IsSkipped()) return;
    if (!loop->can_replace()) GTEST_SKIP() << "this kernel has no EVENT_REMAP";
    guard.loop = loop.get();
    loop->set_missing_handler(Guard::run, &guard);
    ASSERT_EQ(loop->register_range(place.address(), place.bytes(), true, false), 0);
  }
  void TearDown() override {
    if (loop) loop->set_missing_handler(nullptr, nullptr);
  }
  int replace_by(Mapping prepared, bool minor) {
    const int rc = loop->register_range(prepared.address(), prepared.bytes(), true, minor);
    if (rc != 0) return rc;
    const int replaced = loop->replace_mapping(place.address(), place.bytes(), prepared.address());
    if (replaced == 0) prepared.release();
    return replaced;
  }
  Memory memory{kPages};
  Mapping place = Mapping::anonymous(kPages);
  Guard guard{nullptr, place.address(), memory.alias.page(0)};
};

TEST_F(Replacing, KeepsTheRegistrationBothWays) {
  EXPECT_EQ(touch(place.page(3)), Memory::mark(3));
  EXPECT_EQ(guard.faults, 1);

  ASSERT_EQ(replace_by(Mapping::of(memory.file, kPages), true), 0);
  const std::uint64_t before = loop->faults();
  EXPECT_EQ(touch(place.page(3)), Memory::mark(3));
  EXPECT_EQ(loop->faults(), before + 1) << "the MINOR registration was lost";
  EXPECT_EQ(guard.faults, 1);
  poke(place.page(4), 200);
  EXPECT_EQ(touch(memory.alias.page(4)), 200);
  madvise(place.page(0), place.bytes(), MADV_DONTNEED);
  EXPECT_EQ(touch(place.page(3)), Memory::mark(3));
  EXPECT_EQ(loop->faults(), before + 3) << "arming after the switch did not take";

  ASSERT_EQ(replace_by(Mapping::anonymous(kPages), false), 0);
  EXPECT_EQ(touch(place.page(4)), 200);
  EXPECT_EQ(guard.faults, 2) << "the MISSING registration was lost";
}

TEST_F(Replacing, OtherThreadsSeeTheContentsAllAlong) {
  std::atomic<bool> stop{false};
  std::atomic<long> wrong{0}, rounds{0};
  const auto hammer = [&] {
    while (!stop) {
      for (std::size_t i = 0; i < kPages; ++i) wrong += touch(place.page(i)) != Memory::mark(i);
      ++rounds;
    }
  };
  std::thread one(hammer), two(hammer);
  for (int i = 0; i < 200; ++i) {
    // Now and then the threads get through a whole round between two switches.
    for (const long seen = rounds; i % 8 == 0 && rounds == seen;) std::this_thread::yield();
    ASSERT_EQ(replace_by(Mapping::of(memory.file, kPages), true), 0);
    ASSERT_EQ(replace_by(Mapping::anonymous(kPages), false), 0);
  }
  stop = true;
  one.join();
  two.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(rounds, 0);
  EXPECT_GT(guard.faults, 0);
}

TEST_F(Replacing, IsRefusedFromAHandler) {
  struct Inside {
    FaultLoop* loop;
    std::atomic<int> answer = 0;
    static void run(void* self, const Fault& fault) noexcept {
      auto& inside = *static_cast<Inside*>(self);
      inside.answer = inside.loop->replace_mapping(kPage, kPage, kPage);
      inside.loop->zero(fault.address & ~(kPage - 1), kPage);
    }
  } inside{loop.get()};
  loop->set_missing_handler(Inside::run, &inside);
  EXPECT_EQ(touch(place.page(0)), 0);
  EXPECT_EQ(inside.answer, -EDEADLK);
}

}  // namespace
}  // namespace sentinel
