#include "measure/measure.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/granule.h"
#include "measure/exchange.h"
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
    options_.tiers.slow_directory = fs::temp_directory_path();
  }
  void TearDown() override {
    ::unsetenv("XDG_CACHE_HOME");
    fs::remove_all(cache_);
  }
  static Machine machine(const std::string& source) {
    return {.name = "local", .source = source, .tiers = {{.name = "dram"}, {.name = "ssd"}}};
  }
  void write(const std::string& source) { sim::write_local_machine("local", machine(source)); }
  std::string here() const {
    struct stat status {};
    EXPECT_EQ(stat(options_.tiers.slow_directory.c_str(), &status), 0);
    return fmt::format("measured with its processors on {}:{}", major(status.st_dev),
                       minor(status.st_dev));
  }

  fs::path cache_;
  SessionOptions options_;
};

TEST_F(IsMeasured, OnlyOnTheDriveThatIsUsed) {
  EXPECT_FALSE(is_measured(options_)) << "nothing is there";
  write(here());
  EXPECT_TRUE(is_measured(options_));
  write("measured with its processors on 0:0");
  EXPECT_FALSE(is_measured(options_)) << "another drive";
  write("measured on" + here().substr(here().rfind(' ')));
  EXPECT_FALSE(is_measured(options_)) << "of a version that measured less";
}

// It was measured once more, within a step of the program.
TEST_F(IsMeasured, OnceWhereTheCacheKeepsNothing) {
  fs::create_directory(cache_);
  fs::permissions(cache_, fs::perms::all);  // anybody could put something there
  EXPECT_THROW(write(here()), Error);
  EXPECT_TRUE(is_measured(options_));
  EXPECT_EQ(known_machine(options_).name, "local");
  fs::permissions(cache_, fs::perms::owner_all);
  write(here());
  fs::remove_all(cache_);
  EXPECT_FALSE(is_measured(options_)) << "what the cache keeps is in the cache alone";
}

TEST_F(IsMeasured, NotByADamagedFile) {
  write(here());
  std::ofstream(sim::local_machine_path()) << "name = \"lo";
  EXPECT_FALSE(is_measured(options_));
}

// What it then does in both directions at once is what was measured.
TEST(PortBandwidth, IsThatOfOneThingAtATimeOrMore) {
  const auto at_once = [](double read, double write) {
    return port_bw(
        {.write_bw = 6e9, .read_bw = 3e9, .exchange_write_bw = write, .exchange_read_bw = read});
  };
  EXPECT_DOUBLE_EQ(at_once(2e9, 2e9), 6e9);
  EXPECT_DOUBLE_EQ(at_once(1.5e9, 1.5e9), 6e9) << "never less than one way alone";
  EXPECT_DOUBLE_EQ(at_once(3e9, 3e9), 9e9);
  EXPECT_DOUBLE_EQ(at_once(1.5e9, 4.5e9), 7.5e9);
  EXPECT_DOUBLE_EQ(at_once(3e9, 6e9), 12e9) << "full duplex";
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
    exchange.settle();
    // Two rounds, in and out. The last may leave after the end of one run, in the next.
    EXPECT_GT(run.bytes, 3 * kBlocks * kGranule);
    EXPECT_LE(run.bytes, 5 * kBlocks * kGranule);
    EXPECT_GT(run.seconds, 0);
  }
}

TEST(Exchange, WhatItCostsIsMeasuredAndEnds) {
  try {
    FaultLoop::open();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const EngineOptions options{.slow_directory = "/var/tmp", .arena_bytes = 96 * kGranule};
  const double cost = measure_cpu_s_per_gb(options, 48);
  EXPECT_GE(cost, 0);
  EXPECT_LT(cost, 100) << "seconds a GB";
}

}  // namespace
}  // namespace sentinel
