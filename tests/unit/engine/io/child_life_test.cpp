#include "engine/io/child_life.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace sentinel {
namespace {

// `body` runs in a child; the parent's life of it.
template <class Body>
std::pair<ChildLife, pid_t> fork_with(Body&& body) {
  auto life = ChildLife::begin();
  const pid_t child = fork();
  if (child == 0) {
    life.in_child();
    body();
    _exit(0);
  }
  life.in_parent();
  return {life, child};
}

bool comes_to_its_end(const ChildLife& life) {
  for (int i = 0; i < 200 && !life.over(); ++i) usleep(10000);
  return life.over();
}

TEST(ChildLife, IsOverAtOnceWhereNobodyWasForked) {
  auto life = ChildLife::begin();
  ASSERT_TRUE(life.begun());
  EXPECT_FALSE(life.over());
  life.in_parent();
  EXPECT_TRUE(life.over());
  EXPECT_TRUE(life.over());
  life.forget();
}

TEST(ChildLife, GoesOnThoughTheChildClosesEverything) {
  int wait[2];
  ASSERT_EQ(pipe(wait), 0);
  auto [life, child] = fork_with([&] {
    dup2(wait[0], 0);
    close_range(1, ~0u, 0);
    char byte = 0;
    [[maybe_unused]] const auto n = read(0, &byte, 1);
  });
  close(wait[0]);
  usleep(50000);
  EXPECT_FALSE(life.over());
  close(wait[1]);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(comes_to_its_end(life));
  life.forget();
}

TEST(ChildLife, GoesOnInAGrandchild) {
  int wait[2];
  ASSERT_EQ(pipe(wait), 0);
  auto [life, child] = fork_with([&] {
    close(wait[1]);
    if (fork() != 0) return;
    char byte = 0;
    [[maybe_unused]] const auto n = read(wait[0], &byte, 1);
  });
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(life.over());
  close(wait[0]);
  close(wait[1]);
  EXPECT_TRUE(comes_to_its_end(life));
  life.forget();
}

TEST(ChildLife, EndsWhereTheChildExecutesAnotherProgram) {
  auto [life, child] = fork_with([] { execl("/bin/sleep", "sleep", "5", nullptr); });
  EXPECT_TRUE(comes_to_its_end(life));
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  life.forget();
}

TEST(ChildLife, IsTakenToGoOnWhereTheFileHasBeenClosed) {
  auto life = ChildLife::begin();
  auto closed = life;
  life.in_parent();
  life.forget();
  EXPECT_FALSE(closed.over());
}

int number_of_the_file() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone).string().starts_with("/memfd:sentinel-child"))
      return std::stoi(entry.path().filename().string());
  }
  return -1;
}

// A program that closes all descriptors and opens its own: none of these is believed, sealed or
// closed.
TEST(ChildLife, TakesNoOtherFileForItsOwn) {
  for (const int theirs : {open("/etc/passwd", O_RDONLY | O_CLOEXEC),
                           memfd_create("theirs", MFD_CLOEXEC | MFD_ALLOW_SEALING)}) {
    auto life = ChildLife::begin();
    life.in_parent();
    const int number = number_of_the_file();
    ASSERT_EQ(dup2(theirs, number), number);
    EXPECT_FALSE(life.over());
    life.forget();
    EXPECT_NE(fcntl(number, F_GETFD), -1);
    EXPECT_LE(fcntl(number, F_GET_SEALS), 0);
    close(number);
    close(theirs);
  }
}

}  // namespace
}  // namespace sentinel
