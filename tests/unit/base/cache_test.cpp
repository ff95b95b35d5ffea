#include "base/cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pwd.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "unit/base/folder.h"

namespace sentinel {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

// The variables are put back when the test is over.
class Variable {
 public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* set = std::getenv(name)) before_ = set;
    apply(value);
  }
  ~Variable() { apply(before_); }

 private:
  void apply(const std::optional<std::string>& value) {
    value ? setenv(name_, value->c_str(), 1) : unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> before_;
};

class Cache : public testing::Test {
 protected:
  std::string refusal() {
    return error_of([] { cache::write("name", "text", "cannot write it"); });
  }
  std::string reading() {
    return error_of([] { cache::read("name", "cannot read it"); });
  }
  void make(const std::string& path, mode_t mode) {
    std::filesystem::create_directories(path);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }

  const Folder folder_;
  const std::string base_ = folder_ / "base", own_ = base_ + "/sentinel";
  const Variable xdg_{"XDG_CACHE_HOME", base_};
};

TEST_F(Cache, IsMadeForItsUserAlone) {
  const mode_t before = umask(0);
  cache::write("name", "text", "");
  umask(before);
  EXPECT_EQ(cache::read("name", ""), "text");
  struct stat found {};
  for (const auto& path : {base_, own_}) {
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0700u) << path;
  }
  ASSERT_EQ(stat((own_ + "/name").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(Cache, IsWhereTheVariablesOrThePasswdEntrySay) {
  EXPECT_EQ(cache::place(), own_);
  for (const auto& unset : {std::optional<std::string>{}, std::optional<std::string>{"relative"}}) {
    const Variable xdg("XDG_CACHE_HOME", unset);
    const Variable home("HOME", "/home/somebody");
    EXPECT_EQ(cache::place(), "/home/somebody/.cache/sentinel");
    const Variable no_home("HOME", unset);
    EXPECT_EQ(cache::place(), std::string(getpwuid(geteuid())->pw_dir) + "/.cache/sentinel");
  }
}

TEST_F(Cache, MakesNoHome) {
  const Variable xdg("XDG_CACHE_HOME", std::nullopt), home("HOME", folder_ / "none");
  EXPECT_THAT(refusal(), HasSubstr("there is no cache"));
  EXPECT_EQ(folder_.files(), 0u);
}

TEST_F(Cache, WhereOthersMayWriteIsNotUsed) {
  for (const mode_t mode : {0770u, 0702u, 01777u}) {
    make(own_, mode);
    EXPECT_THAT(refusal(), AllOf(HasSubstr("not used"), HasSubstr("others may write to " + own_),
                                 HasSubstr("chmod go-w " + own_)));
  }
  make(own_, 0700);
  make(base_, 0770);
  EXPECT_THAT(refusal(), HasSubstr("chmod go-w " + base_));
  EXPECT_THAT(reading(), HasSubstr("chmod go-w " + base_));
  make(base_, 01777);
  EXPECT_EQ(refusal(), "no error") << "a sticky parent keeps what is in it";
}

TEST_F(Cache, ThatIsALinkIsNotUsed) {
  make(base_, 0700);
  make(folder_ / "elsewhere", 0700);
  std::filesystem::create_directory_symlink(folder_ / "elsewhere", own_);
  EXPECT_THAT(refusal(), HasSubstr("symbolic link"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "elsewhere"));
}

TEST_F(Cache, OfAnotherUserIsNotUsed) {
  NEEDS_ANOTHER_USER();
  make(own_, 0700);
  give_away(own_);
  EXPECT_THAT(refusal(), HasSubstr("belongs to user 65534"));
}

TEST_F(Cache, NothingIsMadeInAnotherUsersFolder) {
  NEEDS_ANOTHER_USER();
  make(base_, 0755);
  give_away(base_);
  EXPECT_THAT(refusal(), HasSubstr(base_ + " belongs to user 65534"));
  EXPECT_TRUE(std::filesystem::is_empty(base_));
}

TEST_F(Cache, FilesOfOthersAreNotRead) {
  NEEDS_ANOTHER_USER();
  cache::write("name", "text", "");
  give_away(own_ + "/name");
  EXPECT_THAT(reading(), HasSubstr("cannot read it: it belongs to user 65534"));
}

TEST_F(Cache, FilesThatOthersMayWriteLinksAndPipesAreNotRead) {
  cache::write("name", "text", "");
  ASSERT_EQ(chmod((own_ + "/name").c_str(), 0620), 0);
  EXPECT_THAT(reading(), HasSubstr("others may write to it (mode 0620)"));
  cache::write("name", "again", "");
  EXPECT_EQ(cache::read("name", ""), "again");
  std::filesystem::rename(own_ + "/name", own_ + "/other");
  std::filesystem::create_symlink("other", own_ + "/name");
  EXPECT_NE(reading(), "no error");
  std::filesystem::remove(own_ + "/name");
  ASSERT_EQ(mkfifo((own_ + "/name").c_str(), 0600), 0);
  EXPECT_THAT(reading(), HasSubstr("regular file"));
}

// As one who knows the names had prepared it.
TEST_F(Cache, WritesThroughNoPlantedLink) {
  make(own_, 0700);
  std::ofstream(folder_ / "target") << "mine";
  std::filesystem::create_symlink(folder_ / "target", own_ + "/name");
  std::filesystem::create_symlink(folder_ / "target", own_ + "/name." + std::to_string(getpid()));
  cache::write("name", "text", "");
  std::string text;
  std::ifstream(folder_ / "target") >> text;
  EXPECT_EQ(text, "mine");
  EXPECT_EQ(cache::read("name", ""), "text");
}

TEST_F(Cache, LibrariesAreTheUsersOrRoots) {
  make(own_, 0700);
  const Descriptor folder(open(own_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto opening = [&] { return error_of([&] { cache::open_library(folder.get(), "a.so"); }); };
  EXPECT_THAT(opening(), EndsWith("No such file or directory"));
  std::ofstream(own_ + "/a.so");
  ASSERT_EQ(chmod((own_ + "/a.so").c_str(), 0755), 0);
  EXPECT_EQ(opening(), "no error");
  ASSERT_EQ(chmod((own_ + "/a.so").c_str(), 0775), 0);
  EXPECT_THAT(opening(), HasSubstr("others may write"));
  if (geteuid() != 0) return;
  ASSERT_EQ(chmod((own_ + "/a.so").c_str(), 0755), 0);
  give_away(own_ + "/a.so");
  EXPECT_THAT(opening(), HasSubstr("belongs to user 65534"));
}

}  // namespace
}  // namespace sentinel
