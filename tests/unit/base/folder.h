// What tests of files share: a folder of their own, errors as text, and another user.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "sentinel/error.h"

namespace sentinel {

constexpr uid_t kNobody = 65534;

class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "sentinel-base-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::size_t files() const {
    const std::filesystem::directory_iterator each(path_);
    return static_cast<std::size_t>(std::distance(begin(each), end(each)));
  }

 private:
  std::string path_;
};

template <class Run>
std::string error_of(Run run) {
  try {
    run();
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

inline void give_away(const std::string& path) {
  ASSERT_EQ(lchown(path.c_str(), kNobody, kNobody), 0);
}

#define NEEDS_ANOTHER_USER() \
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to another user"

}  // namespace sentinel
