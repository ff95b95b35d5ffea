#include "base/input.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>

#include "sentinel/error.h"
#include "unit/base/folder.h"

namespace sentinel {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr InputKind kThings{"things", 8, "make a smaller one"};

std::string read_error(const std::string& path) {
  return error_of([&] { read_input(path, "cannot read the thing", kThings); });
}

TEST(Input, IsARegularFileUpToItsKindsSize) {
  const Folder folder;
  std::ofstream(folder / "eight") << "12345678";
  std::filesystem::create_symlink("eight", folder / "link");
  EXPECT_EQ(read_input(folder / "eight", "", kThings), "12345678");
  EXPECT_EQ(read_input(folder / "link", "", kThings), "12345678");
  std::ofstream(folder / "nine") << "123456789";
  EXPECT_THAT(read_error(folder / "nine"),
              testing::AllOf(StartsWith("cannot read the thing: it has 9 B"),
                             HasSubstr("things have at most 8 B; make a smaller one")));
}

TEST(Input, OfASparseGiantIsNotRead) {
  const Folder folder;
  std::ofstream(folder / "giant");
  std::filesystem::resize_file(folder / "giant", std::uintmax_t{1} << 40);
  EXPECT_THAT(read_error(folder / "giant"), HasSubstr("make a smaller one"));
}

TEST(Input, ThatIsNoFileIsNamedAtOnce) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un at{.sun_family = AF_UNIX};
  (folder / "socket").copy(at.sun_path, sizeof at.sun_path - 1);
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  EXPECT_THAT(read_error(folder / "fifo"), HasSubstr("it is a pipe"));
  EXPECT_THAT(read_error(folder / "socket"), HasSubstr("it is a socket"));
  EXPECT_THAT(read_error("/dev/zero"), HasSubstr("it is a device"));
  EXPECT_THAT(read_error(folder / ""), HasSubstr("name the file, not its folder"));
  EXPECT_THAT(read_error(folder / "none"), HasSubstr("No such file"));
}

}  // namespace
}  // namespace sentinel
