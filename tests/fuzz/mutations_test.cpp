// Thousands of files that are nearly right, the same ones on every machine: each is read, or is an
// Error; it never crashes, never takes long, and never throws anything else.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "fuzz/readers.h"
#include "sentinel/error.h"

namespace sentinel::fuzz {
namespace {

constexpr int kRounds = 4000;  // for each reader

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string operator()(std::string text) {
    for (auto rounds = 1 + below(3); rounds > 0 && !text.empty(); --rounds) change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  void change(std::string& text) {
    const auto at = below(text.size()), length = below(std::min<std::size_t>(40, text.size() - at));
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(below(text.size()), text.substr(at, length));
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
        text.insert(at, word());
        break;
      default:
        replace_number(text, at);
    }
  }

  const char* word() {
    static constexpr const char* kWords[] = {"-1",         "0",    "1e308", "18446744073709551615",
                                             "4294967296", "null", "[]",    "{}",
                                             "\"",         "true", "1.5",   "\n",
                                             "\\u0000",    ",",    "nan",   "[["};
    return kWords[below(std::size(kWords))];
  }

  // The next number in the text: most fields are numbers, and few flips hit one.
  void replace_number(std::string& text, std::size_t from) {
    const auto begin = text.find_first_of("0123456789", from);
    if (begin == std::string::npos) return;
    const auto end = std::min(text.find_first_not_of("0123456789.", begin), text.size());
    text.replace(begin, end - begin, word());
  }

  std::mt19937 random_;
};

class Mutations : public ::testing::TestWithParam<Reader> {};

TEST_P(Mutations, SeedsAreRead) {
  for (const auto& seed : GetParam().seeds()) EXPECT_NO_THROW(GetParam().read(seed));
}

TEST_P(Mutations, AreReadOrAreErrors) {
  const auto seeds = GetParam().seeds();
  Mutator mutated(7);
  int errors = 0, read = 0;
  auto longest = std::chrono::steady_clock::duration::zero();
  for (int round = 0; round < kRounds; ++round) {
    const auto bytes = mutated(seeds[static_cast<std::size_t>(round) % seeds.size()]);
    const auto begin = std::chrono::steady_clock::now();
    try {
      GetParam().read(bytes);
      ++read;
    } catch (const Error&) {
      ++errors;
    } catch (const std::exception& other) {
      ADD_FAILURE() << "round " << round << ": " << other.what() << "\n" << bytes;
    }
    longest = std::max(longest, std::chrono::steady_clock::now() - begin);
  }
  if (!GetParam().tolerant) EXPECT_GT(errors, kRounds / 4);
  EXPECT_GT(read, kRounds / 100);
  EXPECT_LT(longest, std::chrono::seconds(10));  // a hang, as the campaign says
}

// Whoever goes down into a value by recursion ends where the stack does.
TEST_P(Mutations, DeepOnesEndNothing) {
  constexpr std::size_t kDeep = 200'000;
  const auto nest = std::string(kDeep, '[') + std::string(kDeep, ']');
  for (const auto& bytes :
       {nest, R"({"jobs":[],"waits_for_absent_jobs":false,"x":)" + nest + "}", "x = " + nest}) {
    try {
      GetParam().read(bytes);
    } catch (const Error&) {
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Readers, Mutations, ::testing::ValuesIn(readers()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sentinel::fuzz
