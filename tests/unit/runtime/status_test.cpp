#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "runtime/status/status_page.h"
#include "runtime/status/status_reader.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;
using Found = StatusReader::Found;

class StatusTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "status." + std::to_string(getpid());
    fs::remove_all(folder_);
    setenv("SENTINEL_STATUS", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("SENTINEL_STATUS");
    fs::remove_all(folder_);
  }
  // Of a process's page; empty: there is none.
  std::string file(pid_t process = getpid()) const {
    std::error_code none;
    for (const auto& each : fs::directory_iterator(folder_, none))
      if (each.path().filename().string().starts_with(std::to_string(process) + "."))
        return each.path();
    return {};
  }
  std::string write(const std::string& name, const std::string& content) const {
    fs::create_directories(folder_);
    std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
    return folder_ + "/" + name;
  }
  static std::string content_of(const Status& status, std::uint64_t written = 2,
                                StatusHeader header = {}) {
    header.written = written;
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
           std::string(reinterpret_cast<const char*>(&status), sizeof status);
  }
  std::string folder_;
};

// Every field's first and last byte differ from step to step.
Status of_step(std::uint64_t step) {
  Status status{};
  status.steps = step;
  for (auto& point : status.plan.memory) point = {step, ~step};
  for (auto& tensor : status.plan.moves) tensor.bytes = step;
  return status;
}

TEST_F(StatusTest, IsReadAsItWasWritten) {
  auto page = StatusPage::make();
  ASSERT_TRUE(page.is_open());
  StatusReader reader(file());
  EXPECT_EQ(reader.read(), Found::unfinished);
  Status status{};
  status.program.command.set("python3 train.py");
  status.steps = 7;
  page.write(status);
  ASSERT_EQ(reader.read(), Found::status);
  EXPECT_EQ(reader.status().program.command.view(), "python3 train.py");
  EXPECT_EQ(reader.status().steps, 7u);
  struct stat found {};
  ASSERT_EQ(stat(file().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(StatusTest, ReadersSeeOneMomentWhileItIsWritten) {
  auto page = StatusPage::make();
  page.write(of_step(0));
  std::atomic<bool> over = false;
  std::thread writer([&] {
    for (std::uint64_t step = 1; !over; ++step) page.write(of_step(step));
  });
  StatusReader reader(file());
  int whole = 0;
  for (int i = 0; i < 2000; ++i) {
    if (reader.read() != Found::status) continue;
    ++whole;
    const auto& status = reader.status();
    for (const auto& point : status.plan.memory) ASSERT_EQ(point.held_bytes, ~status.steps);
    for (const auto& tensor : status.plan.moves) ASSERT_EQ(tensor.bytes, status.steps);
  }
  over = true;
  writer.join();
  EXPECT_GT(whole, 0);
}

// In a process that is ended by any system call but exit's.
TEST_F(StatusTest, IsWrittenWithoutASystemCall) {
  auto page = StatusPage::make();
  StatusReader reader(file());
  const pid_t child = fork();
  if (child == 0) {
    // Of the child's own, for a fork leaves the parent's page behind.
    auto own = StatusPage::make();
    const auto status = of_step(3);
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const sock_fprog program{.len = std::size(rules), .filter = rules};
    if (!own.is_open()) _exit(3);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      _exit(4);
    for (int i = 0; i < 1000; ++i) own.write(status);
    // Not _exit(), before which a sanitizer asks where the thread's stacks are.
    syscall(SYS_exit_group, 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 4)
    GTEST_SKIP() << "this kernel takes no seccomp filter";
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  StatusReader of_child(file(child));
  ASSERT_EQ(of_child.read(), Found::status);
  EXPECT_EQ(of_child.status().steps, 3u);
}

TEST_F(StatusTest, TheKernelTellsWhetherTheWriterLives) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto page = StatusPage::make();
    page.write(of_step(9));
    [[maybe_unused]] const auto told = ::write(pipes[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(pipes[0], &byte, 1), 1);
  auto running = running_sessions();
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].process, child);
  StatusReader reader(running[0].path);
  EXPECT_EQ(reader.writer(), child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(reader.writer(), std::nullopt);
  EXPECT_EQ(reader.read(), Found::status);
  EXPECT_EQ(reader.status().steps, 9u);
  EXPECT_TRUE(running_sessions().empty());
  EXPECT_TRUE(fs::exists(reader.path()));
  const auto next = StatusPage::make();  // removes what the dead one left
  EXPECT_FALSE(fs::exists(reader.path()));
  close(pipes[0]);
  close(pipes[1]);
}

TEST_F(StatusTest, AnEndedSessionIsFoundNoMoreAndStillRead) {
  auto page = StatusPage::make();
  page.write(of_step(4));
  StatusReader reader(file());
  auto last = of_step(5);
  last.state = StatusState::over;
  page.write(last);
  page.remove();
  EXPECT_TRUE(fs::is_empty(folder_));
  ASSERT_EQ(reader.read(), Found::status);
  EXPECT_EQ(reader.status().steps, 5u);
  EXPECT_EQ(reader.status().state, StatusState::over);
}

// It has no page, and what it does with its copy of the object changes nothing of the parent's.
TEST_F(StatusTest, AForkedChildLeavesItsParentsFileAlone) {
  auto page = StatusPage::make();
  page.write(of_step(1));
  const pid_t child = fork();
  if (child == 0) {
    page.remove();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(file()));
  page.write(of_step(2));
  StatusReader reader(file());
  EXPECT_EQ(reader.read(), Found::status);
}

TEST_F(StatusTest, FoldersThatOthersMayWriteToAreNotUsed) {
  fs::create_directories(folder_);
  chmod(folder_.c_str(), 0777);
  EXPECT_FALSE(StatusPage::make().is_open());
  fs::remove_all(folder_);
  fs::create_directory_symlink(testing::TempDir(), folder_);
  EXPECT_FALSE(StatusPage::make().is_open());
  fs::remove(folder_);
  write("file", "");
  setenv("SENTINEL_STATUS", (folder_ + "/file").c_str(), 1);
  EXPECT_FALSE(StatusPage::make().is_open());
}

// Of whatever name, and links.
TEST_F(StatusTest, FilesOfOthersStay) {
  const std::string names[] = {"100", "100.sentinel", "mine", "1.0123456789abcdef.sentinel"};
  for (const auto& name : names) write(name, "not a session's, " + std::string(9000, 'x'));
  fs::create_symlink(folder_ + "/mine", folder_ + "/2.sentinel");
  write("3.0123456789abcdef.sentinel", content_of(of_step(1)));  // a dead session's
  auto page = StatusPage::make();
  ASSERT_TRUE(page.is_open());
  page.write(of_step(1));
  for (const auto& name : names) EXPECT_EQ(fs::file_size(folder_ + "/" + name), 9017u) << name;
  EXPECT_TRUE(fs::is_symlink(folder_ + "/2.sentinel"));
  EXPECT_FALSE(fs::exists(folder_ + "/3.0123456789abcdef.sentinel"));
}

TEST_F(StatusTest, AFileThatHasTakenItsNameStays) {
  auto page = StatusPage::make();
  const auto name = file();
  fs::rename(name, folder_ + "/elsewhere");
  std::ofstream(name) << "another's";
  page.remove();
  EXPECT_TRUE(fs::exists(name));
}

// Ranks begin together, and each looks for dead ones' files while the others make theirs.
TEST_F(StatusTest, SessionsThatBeginTogetherAllKeepTheirFiles) {
  constexpr int kProcesses = 8, kTimes = 50;
  int begin[2], end[2];
  ASSERT_EQ(pipe(begin), 0);
  ASSERT_EQ(pipe(end), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      close(begin[1]);
      close(end[1]);
      char byte;
      int lost = 0;
      [[maybe_unused]] const auto told = ::read(begin[0], &byte, 1);  // until it is closed
      StatusPage page;
      for (int time = 0; time < kTimes; ++time) {
        page = StatusPage();
        page = StatusPage::make();
        lost += !page.is_open() || file().empty();
      }
      page.write(of_step(1));
      if (lost > 0) _exit(1);
      [[maybe_unused]] const auto over = ::read(end[0], &byte, 1);
      _exit(file().empty() ? 2 : 0);
    }
    children.push_back(child);
  }
  close(begin[1]);
  std::size_t found = 0;
  for (int i = 0; i < 600 && found < kProcesses; ++i) {
    found = 0;
    for (const auto& one : running_sessions()) try {
        found += StatusReader(one.path).read() == Found::status;
      } catch (const Error&) {  // it makes another
      }
    if (found < kProcesses) usleep(50'000);
  }
  EXPECT_EQ(found, std::size_t{kProcesses});
  close(end[1]);
  for (const auto child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  close(begin[0]);
  close(end[0]);
}

TEST_F(StatusTest, OffPublishesNothing) {
  setenv("SENTINEL_STATUS", "off", 1);
  EXPECT_FALSE(StatusPage::make().is_open());
  EXPECT_FALSE(fs::exists("off"));
  ASSERT_EQ(folders_passed_over().size(), 1u);
  EXPECT_NE(folders_passed_over()[0].find("is off"), std::string::npos);
}

// As a user without rights, in a folder of root's: as `sudo -E` the other way round.
TEST_F(StatusTest, AnotherUsersFoldersAreLeftAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  const auto runtime = folder_ + "/runtime";
  fs::create_directories(runtime);
  chmod(folder_.c_str(), 0755);
  ASSERT_EQ(chown(runtime.c_str(), 54321, 54321), 0);
  unsetenv("SENTINEL_STATUS");
  setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  const auto page = StatusPage::make();
  EXPECT_TRUE(fs::is_empty(runtime));
  unsetenv("XDG_RUNTIME_DIR");
  setenv("SENTINEL_STATUS", folder_.c_str(), 1);
  const auto mine = write("1.sentinel", content_of(of_step(1)));
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(54321, 54321, 54321) != 0) _exit(1);
    try {
      const StatusReader reader(mine);
      _exit(2);
    } catch (const Error&) {
    }
    const auto reasons = folders_passed_over();
    const bool told =
        reasons.size() == 1 && reasons[0].find("belongs to user 0") != reasons[0].npos;
    _exit(told && running_sessions().empty() ? 0 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(StatusTest, FilesThatAreNoneAreTold) {
  const Status status{};
  const auto whole = content_of(status);
  EXPECT_EQ(StatusReader(write("1", "")).read(), Found::no_status);
  EXPECT_EQ(StatusReader(write("2", whole.substr(0, 20))).read(), Found::no_status);
  EXPECT_EQ(StatusReader(write("3", whole.substr(0, 4000))).read(), Found::no_status);
  EXPECT_EQ(StatusReader(write("4", std::string(whole.size(), 'x'))).read(), Found::no_status);
  EXPECT_EQ(StatusReader(write("5", content_of(status, 0))).read(), Found::unfinished);
  EXPECT_EQ(StatusReader(write("6", content_of(status, 7))).read(), Found::unfinished);
  StatusReader later(write("7", content_of(status, 2, {.version = 9})));
  EXPECT_EQ(later.read(), Found::other_version);
  EXPECT_EQ(later.version(), 9u);
  EXPECT_EQ(StatusReader(write("8", content_of(status, 2, {.bytes = 12}))).read(),
            Found::other_version);
  fs::create_symlink(write("9", whole), folder_ + "/10");
  EXPECT_THROW(StatusReader(folder_ + "/10"), Error);
  ASSERT_EQ(mkfifo((folder_ + "/11").c_str(), 0600), 0);
  EXPECT_THROW(StatusReader(folder_ + "/11"), Error);
  EXPECT_THROW(StatusReader("/nowhere/12"), Error);
  EXPECT_TRUE(running_sessions().empty());
}

TEST_F(StatusTest, NumbersThatMakeNoSenseAreNotFollowed) {
  Status status{};
  std::memset(&status, 0xff, sizeof status);
  status.plan.us = std::numeric_limits<double>::infinity();
  StatusReader reader(write("1", content_of(status)));
  ASSERT_EQ(reader.read(), Found::status);
  const auto& read = reader.status();
  EXPECT_LE(read.plan.points, kStatusPoints);
  EXPECT_LE(read.plan.tensors, kStatusTensors);
  EXPECT_LE(read.guide, StatusGuide::pager);
  EXPECT_LE(read.state, StatusState::over);
  EXPECT_EQ(read.plan.us, 0);
  EXPECT_EQ(read.last.us, 0);
  for (const auto& step : read.history) EXPECT_EQ(step.us, 0);
  EXPECT_EQ(read.program.command.view().size(), 160u);
}

}  // namespace
}  // namespace sentinel
