#include "engine/host/ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>

namespace sentinel {
namespace {

class RankOfProcess : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_PROCID",
          "SLURM_NODEID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SENTINEL_SPAWNED"})
      unsetenv(name);
  }
  static Rank with(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    return rank_of_process();
  }
};

void expect(const Rank& rank, unsigned number, unsigned ranks, unsigned beside) {
  EXPECT_EQ(rank.rank, number);
  EXPECT_EQ(rank.ranks, ranks);
  EXPECT_EQ(rank.beside, beside);
}

TEST_F(RankOfProcess, IsNoneWithoutALauncher) {
  EXPECT_FALSE(with({}).rank);
  EXPECT_FALSE(with({{"RANK", "first"}, {"WORLD_SIZE", "2"}}).rank);
  EXPECT_EQ(rank_of_process().beside, 1u);
}

TEST_F(RankOfProcess, ComesFromTorchrun) {
  expect(with({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}}), 5, 8, 4);
}

TEST_F(RankOfProcess, AProcessThatWasSpawnedWritesFilesOfItsOwn) {
  const auto spawned = with({{"SENTINEL_SPAWNED", "1.0"}});
  EXPECT_FALSE(spawned.rank);
  EXPECT_EQ(name_of_rank("out/s.json", spawned), "out/s.spawned1.0.json");
  EXPECT_EQ(name_of_rank("s.%p.json", spawned), "s." + std::to_string(getpid()) + ".json");
  EXPECT_EQ(name_of_rank("/dev/null", spawned), "/dev/null");
  const auto of_rank = with({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"SENTINEL_SPAWNED", "0"}});
  EXPECT_EQ(name_of_rank("s.json", of_rank), "s.rank1.spawned0.json");
  EXPECT_EQ(name_of_rank("s.json", with({{"SENTINEL_SPAWNED", "../x"}})), "s.rank1.json");
}

TEST_F(RankOfProcess, ComesFromMpi) {
  expect(with({{"OMPI_COMM_WORLD_RANK", "1"},
               {"OMPI_COMM_WORLD_SIZE", "2"},
               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
         1, 2, 2);
}

TEST_F(RankOfProcess, ComesFromASlurmStepAndNotFromABatchScript) {
  EXPECT_FALSE(with({{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}).rank);
  expect(with({{"SLURM_PROCID", "6"},
               {"SLURM_NODEID", "3"},
               {"SLURM_STEP_NUM_TASKS", "7"},
               {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}}),
         6, 7, 1);
  expect(with({{"SLURM_PROCID", "5"}, {"SLURM_NODEID", "2"}}), 5, 7, 2);
}

TEST_F(RankOfProcess, NamesAFileOfEachRank) {
  const auto one = with({}), second = with({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  const auto process = std::to_string(getpid());
  EXPECT_EQ(name_of_rank("a.d/s.json", one), "a.d/s.json");
  EXPECT_EQ(name_of_rank("s-%r.json", one), "s-0.json");
  EXPECT_EQ(name_of_rank("a.d/s.json", second), "a.d/s.rank1.json");
  EXPECT_EQ(name_of_rank("s", second), "s.rank1");
  EXPECT_EQ(name_of_rank("s-%r.json", second), "s-1.json");
  EXPECT_EQ(name_of_rank("s-%p.json", second), "s-" + process + ".json");
  EXPECT_EQ(name_of_rank("/dev/null", second), "/dev/null");
}

}  // namespace
}  // namespace sentinel
