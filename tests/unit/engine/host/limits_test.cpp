#include "engine/host/limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "unit/trace/sample_profile.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

// A file system that says what this process's memory cgroup allows.
class CgroupHeadroom : public testing::Test {
 protected:
  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    write_bytes(root / path, text);
  }
  void v2(const fs::path& group, const std::string& limit, const std::string& used,
          const std::string& stat = "") {
    const auto folder = "sys/fs/cgroup" / group;
    write(folder / "memory.max", limit);
    write(folder / "memory.current", used);
    write(folder / "memory.stat", stat);
  }

  TestFolder folder;
  fs::path root{folder / ""};
};

TEST_F(CgroupHeadroom, IsNoneWithoutAGroupOrALimit) {
  EXPECT_FALSE(cgroup_headroom(root));
  write("proc/self/cgroup", "0::/job\n");
  EXPECT_FALSE(cgroup_headroom(root));
  v2("job", "max\n", "100\n");
  EXPECT_FALSE(cgroup_headroom(root));
}

TEST_F(CgroupHeadroom, IsWhatIsNotUsedYet) {
  write("proc/self/cgroup", "0::/job\n");
  v2("job", "1000\n", "300\n");
  EXPECT_EQ(cgroup_headroom(root), 700);
  v2("job", "1000\n", "1300\n");
  EXPECT_EQ(cgroup_headroom(root), 0);
}

TEST_F(CgroupHeadroom, IsTheLeastOfAllGroupsAbove) {
  write("proc/self/cgroup", "0::/team/job\n");
  v2("team/job", "1000\n", "100\n");
  v2("team", "2000\n", "1600\n");
  EXPECT_EQ(cgroup_headroom(root), 400);
}

// As in a container, which sees its own group as the root and the host's path to it.
TEST_F(CgroupHeadroom, FindsTheGroupThatIsTheRoot) {
  write("proc/self/cgroup", "4:memory:/docker/0123\n1:cpu:/docker/0123\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(cgroup_headroom(root), 4000);
}

TEST_F(CgroupHeadroom, CountsFilesThatNobodyHasMappedAsFree) {
  write("proc/self/cgroup", "0::/job\n");
  v2("job", "1000\n", "900\n", "anon 400\nfile_mapped 100\ninactive_file 250\nactive_file 50\n");
  EXPECT_EQ(cgroup_headroom(root), 300);
  v2("job", "1000\n", "900\n", "file_mapped 400\ninactive_file 250\nactive_file 50\n");
  EXPECT_EQ(cgroup_headroom(root), 100);
}

TEST_F(CgroupHeadroom, ReadsWhatTheFirstVersionSays) {
  write("proc/self/cgroup", "4:cpu,memory:/job\n1:memory_of_none:/other\n");
  const fs::path group = "sys/fs/cgroup/memory/job";
  write(group / "memory.limit_in_bytes", "1000\n");
  write(group / "memory.usage_in_bytes", "900\n");
  write(group / "memory.stat",
        "inactive_file 7\ntotal_mapped_file 100\ntotal_inactive_file 250\n"
        "total_active_file 50\n");
  EXPECT_EQ(cgroup_headroom(root), 300);
}

TEST_F(CgroupHeadroom, EndsWhereTheKernelWouldThrottle) {
  write("proc/self/cgroup", "0::/job\n");
  v2("job", "max\n", "300\n");
  write("sys/fs/cgroup/job/memory.high", "800\n");
  EXPECT_EQ(cgroup_headroom(root), 500);
  write("sys/fs/cgroup/job/memory.max", "600\n");
  EXPECT_EQ(cgroup_headroom(root), 300);
}

TEST_F(CgroupHeadroom, SurvivesGarbage) {
  write("proc/self/cgroup", "memory\n0::\n0:://job\n0::/job\n:::\n7:memory");
  v2("job", "1000\n", "300\n", "inactive_file many\n\n7 7 7");
  EXPECT_EQ(cgroup_headroom(root), 700);
  v2("job", "-\n", "\n");
  EXPECT_FALSE(cgroup_headroom(root));
}

}  // namespace
}  // namespace sentinel
