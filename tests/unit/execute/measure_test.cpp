#include "execute/measure.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "execute/backing.h"
#include "execute/measure_exchange.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

class IsMeasured : public testing::Test {
 protected:
  void SetUp() override {
    cache_ = fs::temp_directory_path() / fmt::format("sentinel-measure-test-{}", getpid());
    ::setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
    options_.slow_directory = fs::temp_directory_path();
  }
  void TearDown() override {
    ::unsetenv("XDG_CACHE_HOME");
    fs::remove_all(cache_);
  }
  static Machine machine(const std::string& source) {
    return {.name = "local", .source = source, .tiers = {{.name = "dram"}, {.name = "ssd"}}};
  }
  void write(const std::string& source) {
    sim::write_machine(sim::local_machine_path(), machine(source));
  }
  std::string here() const {
    struct stat status {};
    EXPECT_EQ(stat(options_.slow_directory.c_str(), &status), 0);
    return fmt::format("measured on {}:{}", major(status.st_dev), minor(status.st_dev));
  }

  fs::path cache_;
  SessionOptions options_;
};

TEST_F(IsMeasured, OnlyOnTheDriveThatIsUsed) {
  EXPECT_FALSE(is_measured(options_)) << "nothing is there";
  write(here());
  EXPECT_TRUE(is_measured(options_));
  write("measured on 0:0");
  EXPECT_FALSE(is_measured(options_)) << "another drive";
  write("measured");
  EXPECT_FALSE(is_measured(options_)) << "of a version that did not say where";
}

TEST_F(IsMeasured, NotByADamagedFile) {
  write(here());
  std::ofstream(sim::local_machine_path()) << "name = \"lo";
  EXPECT_FALSE(is_measured(options_));
}

// What each way then has while both move is what was measured.
TEST(PortBandwidth, IsThatOfOneThingAtATimeOrMore) {
  TierSpeed speed{
      .write_bw = 6e9, .read_bw = 3e9, .exchange_write_bw = 2e9, .exchange_read_bw = 2e9};
  for (const auto& [each_way, bw] : {std::pair{2e9, 6e9}, {1.5e9, 6e9}, {3e9, 9e9}}) {
    speed.exchange_read_bw = speed.exchange_write_bw = each_way;
    EXPECT_DOUBLE_EQ(port_bw(speed), bw);
  }
}

TEST(Exchange, MovesEveryTensorOutAndIn) {
  constexpr std::uint64_t kBlocks = 48;
  try {
    FaultLoop::open();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  Exchange exchange({.slow_directory = "/var/tmp", .arena_bytes = 2 * kBlocks * kGranule}, kBlocks);
  for (int turn = 0; turn < 2; ++turn) {
    const auto run = exchange.run();
    // Two rounds, in and out; what is wanted before it has left does not move.
    EXPECT_GT(run.bytes, kBlocks * kGranule);
    EXPECT_LE(run.bytes, 5 * kBlocks * kGranule);
    EXPECT_GT(run.seconds, 0);
  }
}

}  // namespace
}  // namespace sentinel
