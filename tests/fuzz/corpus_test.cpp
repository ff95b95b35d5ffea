// The files that lie in corpus/: valid ones, and those on which a reader once failed. Each is read,
// or is an Error.
#include <gmock/gmock.h>

#include <filesystem>

#include "fuzz/input_files.h"
#include "fuzz/readers.h"
#include "sentinel/error.h"
#include "unit/places.h"

namespace sentinel::fuzz {
namespace {

namespace fs = std::filesystem;

class Corpus : public ::testing::TestWithParam<Reader> {};

TEST_P(Corpus, IsReadOrIsAnError) {
  const auto folder = fs::path(test::kProject) / "tests/fuzz/corpus" / GetParam().name;
  std::size_t read = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path());
    try {
      GetParam().read(bytes_of(entry.path()));
      ++read;
    } catch (const Error& error) {
      EXPECT_STRNE(error.what(), "");
    } catch (const std::exception& other) {
      ADD_FAILURE() << other.what();
    }
  }
  EXPECT_GE(read, GetParam().seeds().size()) << "valid files are missing: corpus_writer";
}

INSTANTIATE_TEST_SUITE_P(Readers, Corpus, ::testing::ValuesIn(readers()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sentinel::fuzz
