#include "execute/measure.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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

}  // namespace
}  // namespace sentinel
