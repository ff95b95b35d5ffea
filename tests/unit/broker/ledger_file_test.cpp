// The ledger's file: what was written comes back, of this boot and of this user alone.
#include "broker/server/ledger_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "sentinel/error.h"

namespace sentinel {
namespace {

class LedgerFile : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void replace(const std::string& from, const std::string& to) const {
    auto all = text();
    all.replace(all.find(from), from.size(), to);
    std::ofstream(path_) << all;
  }

  const std::string folder_ = testing::TempDir() + "ledger-" + std::to_string(getpid());
  const std::string path_ = folder_ + "/ledger";
  const std::vector<Holder> holders_{{.process = 12,
                                      .begun = 34,
                                      .name = "python3 \"train.py\"",
                                      .need = {.least = 5, .most = 9, .priority = 2},
                                      .counted = 1ull << 41}};
};

TEST_F(LedgerFile, ComesBack) {
  write_ledger(path_, holders_);
  const auto found = read_ledger(path_);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].process, 12);
  EXPECT_EQ(found[0].name, "python3 \"train.py\"");
  EXPECT_EQ(found[0].counted, 1ull << 41);
  EXPECT_EQ(found[0].need.priority, 2);
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(LedgerFile, NoneIsEmptyAndSoIsAnotherBoots) {
  EXPECT_TRUE(read_ledger(path_).empty());
  write_ledger(path_, holders_);
  const auto at = text().find("\"boot\": \"") + 9;
  replace(text().substr(at, 8), "00000000");
  EXPECT_TRUE(read_ledger(path_).empty());
}

TEST_F(LedgerFile, DamageIsAnError) {
  for (const auto& [from, to] : {std::pair{"\"process\": 12", "\"process\": -1"},
                                 {"\"process\": 12", "\"process\": 4294967308"},
                                 {"\"begun\": 34", "\"begun\": 34.5"},
                                 {"\"begun\": 34", "\"begun\": 1e300"},
                                 {"\"most\": 9", "\"most\": 1"},
                                 {"\"counted\"", "\"counter\""},
                                 {"sentinel-ledger", "another"},
                                 {"\"jobs\": [",
                                  "\"jobs\": ["
                                  "7, "},
                                 {"{", ""}}) {
    write_ledger(path_, holders_);
    replace(from, to);
    EXPECT_THROW(read_ledger(path_), Error) << to;
  }
}

TEST_F(LedgerFile, OthersMayNotHaveWrittenIt) {
  write_ledger(path_, holders_);
  chmod(path_.c_str(), 0622);
  EXPECT_THROW(read_ledger(path_), Error);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/dev/null", path_);
  EXPECT_THROW(read_ledger(path_), Error);
}

}  // namespace
}  // namespace sentinel
