#include "runtime/limit/tally.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace sentinel {
namespace {

TEST(Tally, CountsEachSessionOnceOverProcesses) {
  const auto tally = Tally::make();
  for (int process = 0; process < 2; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      auto session = Tally::found();
      session.begins();
      for (int step = 0; step < 3; ++step) session.saw_step();
      if (process == 0) session.ended_planned_step();
      kill(getpid(), SIGKILL);  // counted all the same
    }
    waitpid(child, nullptr, 0);
  }
  const auto counts = tally.counts();
  EXPECT_EQ(counts.trainings, 2u);
  EXPECT_EQ(counts.with_steps, 2u);
  EXPECT_EQ(counts.planned, 1u);
  EXPECT_EQ(counts.limited + counts.gave_up, 0u);
}

// A file may be cut while it is mapped: a touch would then end the training.
TEST(Tally, TakesNoFileThatIsNoTally) {
  const auto tally = Tally::make();
  const std::string real = std::getenv("SENTINEL_TALLY");
  std::ifstream in(real, std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(in), {});
  ASSERT_FALSE(content.empty());
  const auto copy = testing::TempDir() + "tally." + std::to_string(getpid());
  std::ofstream(copy, std::ios::binary) << content;
  for (const auto& name : {copy, std::string("/dev/null"), std::string("/nowhere")}) {
    setenv("SENTINEL_TALLY", name.c_str(), 1);
    auto session = Tally::found();
    session.begins();
    EXPECT_EQ(session.counts().trainings, 1u);  // its own
  }
  EXPECT_EQ(tally.counts().trainings, 0u);
  std::ifstream after(copy, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(after), {}), content);
  unlink(copy.c_str());
  unsetenv("SENTINEL_TALLY");
}

}  // namespace
}  // namespace sentinel
