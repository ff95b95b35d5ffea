// What lies beside a profile counts only where it is the profile's owner's: SQLite itself would
// take any file of that name.
#include "trace/database/side_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "trace/store.h"
#include "unit/base/folder.h"

namespace sentinel {
namespace {

using testing::HasSubstr;

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

// A journal that undoes nothing and names one more file, which SQLite removes once that is done.
std::string journal(const std::string& profile, const std::string& named) {
  constexpr std::string_view kMagic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  constexpr std::uint32_t kPage = 4096, kSector = 512, kLockPage = (1u << 30) / kPage + 1;
  const auto pages = static_cast<std::uint32_t>(std::filesystem::file_size(profile) / kPage);
  std::string bytes(kMagic);
  for (const auto number : {0u, 0u, pages, kSector, kPage}) bytes += big_endian(number);
  bytes.resize(kSector);
  std::uint32_t sum = 0;
  for (const char c : named) sum += static_cast<unsigned char>(c);
  const auto length = static_cast<std::uint32_t>(named.size());
  return bytes + big_endian(kLockPage) + named + big_endian(length) + big_endian(sum) +
         std::string(kMagic);
}

class SideFilesOf : public testing::Test {
 protected:
  void SetUp() override {
    write_profile(profile_, {.meta = {.complete = true, .model = "mine"}});
    std::ofstream(victim_) << "all my work";
  }
  void plant(const std::string& suffix, const std::string& bytes) {
    std::ofstream(profile_ + suffix, std::ios::binary) << bytes;
  }

  const Folder folder_;
  const std::string profile_ = folder_ / "p", victim_ = folder_ / "thesis";
};

TEST_F(SideFilesOf, AJournalRemovesNoOtherFile) {
  plant("-journal", journal(profile_, victim_));
  EXPECT_THAT(error_of([&] { read_profile(profile_); }), HasSubstr("no journal of a recording"));
  EXPECT_THAT(error_of([&] { write_profile(profile_, {}); }),
              HasSubstr("no journal of a recording"));
  EXPECT_TRUE(std::filesystem::exists(victim_));
}

TEST_F(SideFilesOf, OthersDoNotCount) {
  NEEDS_ANOTHER_USER();
  plant("-journal", journal(profile_, victim_));
  plant("-wal", "anything");
  for (const auto* suffix : {"-journal", "-wal"}) give_away(profile_ + suffix);
  EXPECT_EQ(read_profile(profile_).meta.model, "mine");
  EXPECT_TRUE(std::filesystem::exists(victim_));
  EXPECT_TRUE(std::filesystem::exists(profile_ + "-journal"));
}

// SQLite may write where one file is the owner's, and would go by the other's, too.
TEST_F(SideFilesOf, OthersBesideTheOwnersAreRefused) {
  NEEDS_ANOTHER_USER();
  for (const auto* own : {"-journal", "-wal"}) {
    const std::string theirs = own == std::string("-wal") ? "-journal" : "-wal";
    plant(own, "anything");
    plant(theirs, journal(profile_, victim_));
    give_away(profile_ + theirs);
    const auto refusal = HasSubstr(theirs + " is not a file of the profile's owner alone");
    EXPECT_THAT(error_of([&] { read_profile(profile_); }), refusal);
    EXPECT_THAT(error_of([&] { write_profile(profile_, {}); }), refusal);
    EXPECT_TRUE(std::filesystem::exists(victim_));
    for (const auto& suffix : {std::string(own), theirs})
      std::filesystem::remove(profile_ + suffix);
  }
}

TEST_F(SideFilesOf, LinksDoNotCount) {
  for (const auto* suffix : {"-journal", "-wal", "-shm"})
    std::filesystem::create_symlink(victim_, profile_ + suffix);
  EXPECT_EQ(read_profile(profile_).meta.model, "mine");
  write_profile(profile_, {.meta = {.complete = true, .model = "new"}});
  EXPECT_EQ(read_profile(profile_).meta.model, "new");
  EXPECT_EQ(std::filesystem::file_size(victim_), 11u);
}

TEST_F(SideFilesOf, ARecordingOfAnotherUserIsTheirs) {
  NEEDS_ANOTHER_USER();
  plant("-wal", "");
  for (const auto* suffix : {"", "-wal"}) give_away(profile_ + suffix);
  EXPECT_THAT(error_of([&] { read_profile(profile_); }), HasSubstr("user 65534 is recording it"));
}

// While it is written, others find every name that SQLite would take to be ours already.
TEST_F(SideFilesOf, AWriterHasMadeThemBefore) {
  ProfileWriter writer(profile_, {.model = "under way"});
  struct stat found {};
  for (const auto* suffix : {"", "-wal", "-shm", "-journal"}) {
    ASSERT_EQ(lstat((profile_ + suffix).c_str(), &found), 0) << suffix;
    EXPECT_EQ(found.st_uid, geteuid());
    EXPECT_EQ(found.st_mode & 0777, 0600u);
  }
  writer.finish({.complete = true});
  EXPECT_EQ(folder_.files(), 2u) << "the profile and the thesis";
}

TEST_F(SideFilesOf, AProfileGoesNotThroughAnothersLink) {
  NEEDS_ANOTHER_USER();
  std::filesystem::create_directory(folder_ / "shared");
  std::filesystem::permissions(folder_ / "shared", std::filesystem::perms(01777));
  const auto planted = folder_ / "shared/p";
  std::filesystem::create_symlink(profile_, planted);
  give_away(planted);
  EXPECT_THAT(error_of([&] { write_profile(planted, {}); }), HasSubstr("belongs to user 65534"));
  EXPECT_EQ(read_profile(profile_).meta.model, "mine");
}

}  // namespace
}  // namespace sentinel
