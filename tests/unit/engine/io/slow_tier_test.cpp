// The slow tier's file, and the executors against the contract of sentinel/tier.h.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/executors.h"
#include "engine/io/slow_file.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kFrame = 2u << 20;

struct FreeFrame {
  void operator()(void* frame) const { std::free(frame); }
};
using Frame = std::unique_ptr<unsigned char, FreeFrame>;

Frame frame_of(unsigned char fill) {
  Frame frame(static_cast<unsigned char*>(std::aligned_alloc(kFrame, kFrame)));
  std::memset(frame.get(), fill, kFrame);
  return frame;
}

SlowFile::Options options() { return {.directory = "/var/tmp", .frame_bytes = kFrame}; }

TEST(SlowFile, HasNoNameAndIsItsOwnersAlone) {
  umask(0);
  const SlowFile file(options());
  struct stat found {};
  ASSERT_EQ(fstat(file.descriptor(0), &found), 0);
  EXPECT_EQ(found.st_nlink, 0u);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(found.st_uid, geteuid());
  EXPECT_TRUE(fcntl(file.descriptor(0), F_GETFD) & FD_CLOEXEC);
}

// For as long as a driver has to be told of it. One whose process is gone is found.
TEST(SlowFile, HasANameUntilThatIsForgotten) {
  std::string folder = "/var/tmp/sentinel-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto names = [&] {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      found.push_back(entry.path());
    return found;
  };
  const auto age = [](const std::filesystem::path& path) {
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(61));
  };
  auto named = options();
  named.directory = folder;
  named.named = true;
  {
    SlowFile file(named);
    struct stat found {};
    ASSERT_EQ(fstat(file.descriptor(0), &found), 0);
    EXPECT_EQ(found.st_nlink, 1u);
    EXPECT_EQ(found.st_mode & 0777, 0600u);
    EXPECT_NE(fcntl(file.descriptor(0), F_GETFL) & O_TMPFILE, O_TMPFILE);
    ASSERT_EQ(names().size(), 1u);
    age(names()[0]);
    EXPECT_FALSE(is_left_behind(names()[0]));
    file.forget_names();
    EXPECT_TRUE(names().empty());
    EXPECT_GE(file.reserve(), 0);
  }
  { const SlowFile file(named); }
  EXPECT_TRUE(names().empty());
  if (const auto child = fork(); child == 0) {
    const SlowFile file(named);
    _exit(0);
  } else {
    waitpid(child, nullptr, 0);
  }
  ASSERT_EQ(names().size(), 1u);
  EXPECT_FALSE(is_left_behind(names()[0]));  // it may have begun just now
  age(names()[0]);
  EXPECT_TRUE(is_left_behind(names()[0]));
  EXPECT_FALSE(is_left_behind(folder));
  std::filesystem::remove_all(folder);
}

TEST(SlowFile, SlotsAreDistinctUntilReleased) {
  SlowFile file(options());
  const auto first = file.reserve(), second = file.reserve();
  EXPECT_NE(first, second);
  file.release(first);
  EXPECT_EQ(file.reserve(), first);
}

TEST(SlowFile, ReservedSlotsHaveTheirSpace) {
  SlowFile file(options());
  const auto slot = file.reserve();
  struct stat found {};
  ASSERT_EQ(fstat(file.descriptor(0), &found), 0);
  EXPECT_GE(static_cast<std::uint64_t>(found.st_size), file.offset(slot) + kFrame);
  EXPECT_GE(static_cast<std::uint64_t>(found.st_blocks) * 512, kFrame);
}

// Two disks, here two folders: slots lie on them in turn, each has its space, and one of them must
// not be missing or in memory.
TEST(SlowFile, SeveralDisksTakeSlotsInTurn) {
  std::string other = "/var/tmp/sentinel-test-XXXXXX";
  ASSERT_NE(mkdtemp(other.data()), nullptr);
  SlowFile file({.directory = "/var/tmp," + other, .frame_bytes = kFrame});
  rmdir(other.c_str());
  ASSERT_EQ(file.files().size(), 2u);
  std::set<std::pair<int, std::uint64_t>> places;
  std::array<int, 2> on{};
  for (int i = 0; i < 200; ++i) {
    const auto slot = file.reserve();
    ASSERT_GE(slot, 0);
    ++on[file.file(slot)];
    EXPECT_TRUE(places.emplace(file.descriptor(slot), file.offset(slot)).second);
    struct stat found {};
    ASSERT_EQ(fstat(file.descriptor(slot), &found), 0);
    EXPECT_GE(static_cast<std::uint64_t>(found.st_size), file.offset(slot) + kFrame);
  }
  EXPECT_EQ(on[0], on[1]);
  EXPECT_THROW(SlowFile({.directory = "/var/tmp,/dev/shm", .frame_bytes = kFrame}), Error);
  EXPECT_THROW(SlowFile({.directory = "/var/tmp,/no/such/place", .frame_bytes = kFrame}), Error);
}

TEST(SlowFile, RefusesMemoryAndWhatIsNoDirectory) {
  EXPECT_THROW(SlowFile({.directory = "/dev/shm", .frame_bytes = kFrame}), Error);
  EXPECT_THROW(SlowFile({.directory = "/no/such/place", .frame_bytes = kFrame}), Error);
  EXPECT_THROW(SlowFile({.directory = "/var/tmp", .frame_bytes = kFrame, .need_bytes = 1ull << 60}),
               Error);
}

class ExecutorContract : public testing::TestWithParam<IoBackend> {
 protected:
  ExecutorContract()
      : file_(options()),
        executor_(
            make_executor(file_, {.backend = GetParam(), .depth = 4, .frame_bytes = kFrame})) {}

  Completion finish(const Transfer& transfer) {
    EXPECT_EQ(executor_->submit(transfer), 0);
    std::array<Completion, 4> done;
    std::size_t count = 0;
    while (count == 0) count = executor_->wait(done);
    EXPECT_EQ(count, 1u);
    return done[0];
  }

  SlowFile file_;
  std::unique_ptr<Executor> executor_;
};

TEST_P(ExecutorContract, WhatWasWrittenIsRead) {
  const auto slot = file_.reserve(), other = file_.reserve();
  const auto out = frame_of(7), beside = frame_of(9), in = frame_of(0);
  EXPECT_EQ(finish({true, slot, out.get(), 11}).error, 0);
  EXPECT_EQ(finish({true, other, beside.get(), 12}).error, 0);
  const auto done = finish({false, slot, in.get(), 13});
  EXPECT_EQ(done.error, 0);
  EXPECT_EQ(done.cookie, 13u);
  EXPECT_EQ(std::memcmp(in.get(), out.get(), kFrame), 0);
}

TEST_P(ExecutorContract, APartOfASlotIsRead) {
  const auto slot = file_.reserve();
  const auto out = frame_of(7), in = frame_of(0);
  out.get()[kFrame / 2] = 1;
  out.get()[kFrame / 2 + 4095] = 2;
  EXPECT_EQ(finish({true, slot, out.get(), 1}).error, 0);
  constexpr auto kPart = Checksums::kBytes;
  EXPECT_EQ(finish({false, slot, in.get(), 2, kFrame / 2, kPart}).error, 0);
  EXPECT_EQ(std::memcmp(in.get(), out.get() + kFrame / 2, kPart), 0);
  EXPECT_EQ(in.get()[kPart], 0);
}

TEST_P(ExecutorContract, AsManyInFlightAsItsDepth) {
  std::vector<Frame> frames;
  for (std::size_t i = 0; i < executor_->depth(); ++i) {
    frames.push_back(frame_of(static_cast<unsigned char>(i)));
    ASSERT_EQ(executor_->submit({true, file_.reserve(), frames.back().get(), i}), 0);
  }
  std::array<Completion, 16> done;
  std::vector<std::uint64_t> cookies;
  while (cookies.size() < frames.size()) {
    const auto count = executor_->wait(done);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(done[i].error, 0);
      cookies.push_back(done[i].cookie);
    }
  }
  EXPECT_THAT(cookies, testing::UnorderedElementsAre(0, 1, 2, 3));
}

TEST_P(ExecutorContract, WaitsForAsManyAsAreWanted) {
  std::vector<Frame> frames;
  for (std::size_t i = 0; i < executor_->depth(); ++i) {
    frames.push_back(frame_of(static_cast<unsigned char>(i)));
    ASSERT_EQ(executor_->submit({true, file_.reserve(), frames.back().get(), i}), 0);
  }
  std::array<Completion, 16> done;
  EXPECT_EQ(executor_->wait_for(frames.size(), done), frames.size());
}

// The file loses half of the slot: the read that finds its end in the middle is an error, and not a
// frame of which half is what it was before.
TEST_P(ExecutorContract, AReadThatEndsShortFails) {
  const auto slot = file_.reserve();
  const auto out = frame_of(7), in = frame_of(0);
  ASSERT_EQ(finish({true, slot, out.get(), 1}).error, 0);
  ASSERT_EQ(ftruncate(file_.descriptor(slot), static_cast<off_t>(file_.offset(slot) + kFrame / 2)),
            0);
  EXPECT_EQ(finish({false, slot, in.get(), 2}).error, kOtherEnd);
}

// Where the end is at fault, the sentence says so, whatever was read; and the file does not grow
// over what it has lost.
TEST_P(ExecutorContract, AFileThatEndsElsewhereIsNoticedAtEveryLevel) {
  for (const auto level : {ChecksumLevel::off, ChecksumLevel::sampled, ChecksumLevel::full}) {
    auto of_level = options();
    of_level.checksums = level;
    SlowFile file(of_level);
    executor_ = make_executor(file, {.backend = GetParam(), .depth = 4, .frame_bytes = kFrame});
    const auto slot = file.reserve();
    const auto out = frame_of(7), in = frame_of(0);
    ASSERT_EQ(finish({true, slot, out.get(), 1}).error, 0);
    struct stat found {};
    ASSERT_EQ(fstat(file.descriptor(slot), &found), 0);
    for (const auto end : {found.st_size - 4096, found.st_size + 4096, off_t{0}}) {
      ASSERT_EQ(ftruncate(file.descriptor(slot), end), 0);
      EXPECT_EQ(finish({false, slot, in.get(), 2}).error, kOtherEnd);
    }
    std::int64_t next = 0;
    while ((next = file.reserve()) >= 0) {
    }
    EXPECT_EQ(next, -kOtherEnd);
    executor_.reset();
  }
}

// By another process, or by the drive: a block that was swapped with another, or zeroed.
TEST_P(ExecutorContract, OtherBytesThanWereWrittenAreNoticed) {
  const auto first = file_.reserve(), second = file_.reserve();
  const auto out = frame_of(7), other = frame_of(9), in = frame_of(0), zeros = frame_of(0);
  ASSERT_EQ(finish({true, first, out.get(), 1}).error, 0);
  ASSERT_EQ(finish({true, second, other.get(), 2}).error, 0);
  const auto overwrite = [&](std::int64_t slot, const Frame& with) {
    ASSERT_EQ(
        pwrite(file_.descriptor(slot), with.get(), kFrame, static_cast<off_t>(file_.offset(slot))),
        static_cast<ssize_t>(kFrame));
  };
  overwrite(first, other);
  overwrite(second, zeros);
  EXPECT_EQ(finish({false, first, in.get(), 3}).error, kOtherBytes);
  EXPECT_EQ(finish({false, second, in.get(), 4}).error, kOtherBytes);
  EXPECT_EQ(finish({.slot = second, .frame = in.get(), .cookie = 5, .unchecked = true}).error, 0);
  overwrite(first, out);
  EXPECT_EQ(finish({false, first, in.get(), 6}).error, 0);
}

TEST_P(ExecutorContract, AFailedTransferSaysWhy) {
  const auto slot = file_.reserve();
  EXPECT_EQ(finish({.write = true, .slot = slot, .cookie = 1, .unchecked = true}).error, EFAULT);
}

TEST_P(ExecutorContract, WakingEndsAWaitWithNothing) {
  std::array<Completion, 4> done;
  executor_->wake();
  EXPECT_EQ(executor_->wait(done), 0u);
}

INSTANTIATE_TEST_SUITE_P(Backends, ExecutorContract,
                         testing::Values(IoBackend::uring, IoBackend::threads),
                         [](const auto& backend) {
                           return backend.param == IoBackend::uring ? "uring" : "threads";
                         });

TEST(Executors, InjectedFaultsHitTheTransferNamed) {
  SlowFile file(options());
  const auto executor = make_executor(file, {.backend = IoBackend::threads,
                                             .depth = 2,
                                             .frame_bytes = kFrame,
                                             .inject = "write:2:ENOSPC"});
  const auto frame = frame_of(1);
  std::uint64_t cookie = 0;
  for (const int expected : {0, ENOSPC, 0}) {
    ASSERT_EQ(executor->submit({true, file.reserve(), frame.get(), ++cookie}), 0);
    std::array<Completion, 2> done;
    while (executor->wait(done) == 0) {
    }
    EXPECT_EQ(done[0].error, expected);
  }
}

TEST(Executors, AFlippedBitIsNoticed) {
  SlowFile file(options());
  const auto executor = make_executor(
      file,
      {.backend = IoBackend::uring, .depth = 2, .frame_bytes = kFrame, .inject = "read:2:flip"});
  const auto frame = frame_of(1);
  const auto slot = file.reserve();
  std::array<Completion, 2> done;
  const auto finish = [&](const Transfer& transfer) {
    EXPECT_EQ(executor->submit(transfer), 0);
    while (executor->wait(done) == 0) {
    }
    return done[0].error;
  };
  EXPECT_EQ(finish({true, slot, frame.get(), 1}), 0);
  EXPECT_EQ(finish({false, slot, frame.get(), 2}), 0);
  EXPECT_EQ(finish({false, slot, frame.get(), 3}), kOtherBytes);
}

TEST(Executors, WhatIsNoFaultIsRefused) {
  for (const auto* text : {"write", "write:0:EIO", "write:1:EVIL", "erase:1:EIO", "write:x:EIO"})
    EXPECT_THROW(make_injecting_executor(nullptr, text), Error) << text;
}

}  // namespace
}  // namespace sentinel
