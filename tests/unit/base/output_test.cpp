#include "base/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "base/input.h"
#include "unit/base/folder.h"

namespace sentinel {
namespace {

using testing::HasSubstr;

std::string content(const std::string& path) {
  return read_input(path, "", {"files", 1 << 20, ""});
}

std::string write_error(const std::string& path, Readers readers = Readers::owner) {
  return error_of([&] { write_file(path, "new", "cannot write", readers); });
}

mode_t mode(const std::string& path) {
  struct stat found {};
  EXPECT_EQ(lstat(path.c_str(), &found), 0);
  return found.st_mode & 07777;
}

// As /tmp is, with a file of ours that nobody is to reach through it.
class Shared : public testing::Test {
 protected:
  void SetUp() override {
    NEEDS_ANOTHER_USER();
    std::filesystem::create_directory(folder_ / "shared");
    ASSERT_EQ(chmod((folder_ / "shared").c_str(), 01777), 0);
    std::ofstream(folder_ / "mine") << "old";
  }
  std::string planted() const { return folder_ / "shared/out"; }
  const Folder folder_;
};

TEST(Output, IsWholeOrAbsent) {
  const Folder folder;
  {
    Output file(folder / "out", "cannot write", Readers::owner);
    file.write("half");
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
  EXPECT_EQ(folder.files(), 0u);
  write_file(folder / "out", "whole", "", Readers::owner);
  EXPECT_EQ(content(folder / "out"), "whole");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(Output, ModesAreOfItsKindOrOfTheOlderFile) {
  const Folder folder;
  const mode_t before = umask(0022);
  for (const auto* name : {"plan", "page"}) std::ofstream(folder / name);
  ASSERT_EQ(chmod((folder / "page").c_str(), 0664), 0);
  write_file(folder / "plan", "", "", Readers::owner);
  write_file(folder / "page", "", "", Readers::everybody);
  write_file(folder / "fresh", "", "", Readers::everybody);
  umask(before);
  EXPECT_EQ(mode(folder / "plan"), 0600u);
  EXPECT_EQ(mode(folder / "page"), 0664u);
  EXPECT_EQ(mode(folder / "fresh"), 0644u);
}

TEST(Output, OwnLinksLeadToTheirTargets) {
  const Folder folder;
  std::filesystem::create_directory(folder / "deep");
  std::filesystem::create_symlink("deep/target", folder / "second");
  std::filesystem::create_symlink("second", folder / "first");
  for (const auto* text : {"made", "replaced"}) {
    write_file(folder / "first", text, "", Readers::owner);
    EXPECT_EQ(content(folder / "deep/target"), text);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "first"));
  std::filesystem::create_symlink("round", folder / "round");
  EXPECT_THAT(write_error(folder / "round"), HasSubstr("symbolic links"));
}

TEST(Output, DevicesAndReadPipesAreWrittenTo) {
  const Folder folder;
  write_file("/dev/null", "nowhere", "", Readers::owner);
  EXPECT_THAT(write_error("/dev/full"), HasSubstr("No space left"));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(write_error(folder / "fifo"), HasSubstr("nobody reads"));
  const Descriptor reader(open((folder / "fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_EQ(write_error(folder / "fifo"), "no error");
  char text[4] = {};
  EXPECT_EQ(read(reader.get(), text, 3), 3);
  EXPECT_STREQ(text, "new");
  EXPECT_THAT(write_error(folder / ""), HasSubstr("directory"));
}

TEST_F(Shared, LinksOfOthersAreNotFollowed) {
  std::filesystem::create_symlink(folder_ / "mine", planted());
  give_away(planted());
  EXPECT_THAT(write_error(planted()), HasSubstr("belongs to user 65534"));
  EXPECT_EQ(content(folder_ / "mine"), "old");
}

TEST_F(Shared, FilesAndPipesOfOthersAreLeftAlone) {
  std::ofstream(planted()) << "theirs";
  give_away(planted());
  EXPECT_THAT(write_error(planted()), HasSubstr("belongs to user 65534"));
  EXPECT_EQ(content(planted()), "theirs");
  std::filesystem::remove(planted());
  ASSERT_EQ(mkfifo(planted().c_str(), 0666), 0);
  give_away(planted());
  EXPECT_THAT(write_error(planted()), HasSubstr("belongs to user 65534"));
}

// The folder's owner can do there what they like anyway: root may write for a user.
TEST_F(Shared, FilesOfTheFoldersOwnerAreReplaced) {
  std::filesystem::create_directory(folder_ / "home");
  std::ofstream(folder_ / "home/out") << "theirs";
  for (const auto* name : {"home", "home/out"}) give_away(folder_ / name);
  EXPECT_EQ(write_error(folder_ / "home/out"), "no error");
}

}  // namespace
}  // namespace sentinel
