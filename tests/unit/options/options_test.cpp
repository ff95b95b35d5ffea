// The table of options against all that is made from it within the library: the reader of the
// environment, and the parsers of words that other rooms have.
#include "options/options.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "engine/io/checksums.h"
#include "engine/io/executors.h"
#include "options/table.h"
#include "runtime/step/trial.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel {
namespace {

using testing::HasSubstr;

struct OptionTable : testing::Test {
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }

  static void clear() {
    for (const auto& row : option_table()) unsetenv(row.variable);
  }
  static void set(const OptionRow& row, const std::string& value) {
    setenv(row.variable, value.c_str(), 1);
  }
  static std::string refusal() {
    try {
      options_from_environment();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

template <class T>
T& field(const OptionRow& row, SessionOptions& options) {
  return std::get<FieldOf<T>>(row.into)(options);
}

TEST_F(OptionTable, EveryDefaultIsRead) {
  auto options = options_from_environment();
  EXPECT_EQ(options.mode, Mode::none);
  EXPECT_TRUE(options.fast.unlimited());
  EXPECT_EQ(options.tiers.arena_bytes, 256_GiB);
  EXPECT_EQ(options.moves.checksums, ChecksumLevel::sampled);
  EXPECT_EQ(options.counting.window_pages, 0u) << "it has no default of its own";
  for (const auto& row : option_table()) {
    if (std::holds_alternative<FieldOf<std::string>>(row.into)) {
      EXPECT_EQ(field<std::string>(row, options), row.fallback) << row.variable;
    }
    if (std::holds_alternative<FieldOf<bool>>(row.into)) {
      EXPECT_EQ(field<bool>(row, options), row.fallback == std::string("1")) << row.variable;
    }
  }
}

TEST_F(OptionTable, EveryTextGoesToAFieldOfItsOwn) {
  std::set<const std::string*> fields;
  for (const auto& row : option_table()) {
    if (!std::holds_alternative<FieldOf<std::string>>(row.into)) continue;
    const auto value = row.type == OptionType::choice ? words_of(row).front() : "a/%p";
    set(row, value);
    auto options = options_from_environment();
    const auto pid = "a/" + std::to_string(getpid());
    EXPECT_EQ(field<std::string>(row, options), row.type == OptionType::written ? pid : value)
        << row.variable;
    unsetenv(row.variable);
    static SessionOptions one;
    EXPECT_TRUE(fields.insert(&field<std::string>(row, one)).second) << row.variable;
  }
}

TEST_F(OptionTable, NumbersHaveLimits) {
  for (const auto& row : option_table()) {
    const bool flag = row.type == OptionType::flag;
    if (row.type != OptionType::number && !flag) continue;
    const auto most = flag ? 1 : row.most;
    for (const auto& wrong :
         {std::string("x"), std::string("-1"), std::string("1x"), std::to_string(most + 1)}) {
      set(row, wrong);
      EXPECT_EQ(refusal(), flag_of(row) + " (" + row.variable + "): \"" + wrong +
                               "\" is not a whole number from " + std::to_string(row.least) +
                               " to " + std::to_string(most));
    }
    set(row, std::to_string(most));
    EXPECT_EQ(refusal(), "");
    unsetenv(row.variable);
  }
}

TEST_F(OptionTable, AnEmptyVariableIsAnUnsetOne) {
  for (const auto& row : option_table()) set(row, "");
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(options_from_environment().tiers.slow_directory, "/var/tmp");
}

TEST_F(OptionTable, ParsersKnowEveryWordOfTheirRow) {
  for (const auto& word : words_of(option_row("SENTINEL_LATE"))) parse_late(word);
  for (const auto& word : words_of(option_row("SENTINEL_CHECKSUM"))) parse_checksum_level(word);
  for (const auto& word : words_of(option_row("SENTINEL_POLICY"))) make_policy(word);
  for (const auto& word : words_of(option_row("SENTINEL_IO"))) {
    if (word != kCuFile) parse_io_backend(word);
  }
  for (const char* variable : {"SENTINEL_MODE", "SENTINEL_GPU_MEMORY"})
    for (const auto& word : words_of(option_row(variable))) {
      set(option_row(variable), word);
      EXPECT_EQ(refusal(), "") << word;
      unsetenv(variable);
    }
  for (const char* tiers : {"fast=node0,slow=node1", "fast=gpu0,slow=host"}) {
    set(option_row("SENTINEL_TIERS"), tiers);
    int good = 0;
    for (const auto& word : words_of(option_row("SENTINEL_GRANULE"))) {
      set(option_row("SENTINEL_GRANULE"), word);
      good += refusal().empty();
    }
    EXPECT_EQ(good, tiers[5] == 'n' ? 3 : 7) << tiers;
  }
}

TEST_F(OptionTable, UnknownWordsAreRefusedByName) {
  require_known_words();
  for (const auto& row : option_table()) {
    if (row.type != OptionType::choice) continue;
    set(row, "neither");
    try {
      require_known_words();
      ADD_FAILURE() << row.variable;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(flag_of(row) + " \"neither\" is unknown; choose from: " +
                                          words_of(row).front() + ", "));
    }
    unsetenv(row.variable);
  }
}

TEST_F(OptionTable, ARowWithoutAnOptionIsNamedByItsVariable) {
  EXPECT_EQ(flag_of(option_row("SENTINEL_OUTPUT")), "--output");
  EXPECT_EQ(flag_of(option_row("SENTINEL_DIR")), "--slow");
  EXPECT_EQ(flag_of(option_row("SENTINEL_CUDA")), "SENTINEL_CUDA");
  EXPECT_THROW(option_row("SENTINEL_NONE"), Error);
}

}  // namespace
}  // namespace sentinel
