#include "engine/host/topology.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/units.h"
#include "engine/host/node_calls.h"
#include "engine/numa/numa_maps.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::vector<NumaNode> kNodes{{.id = 0, .bytes = 8_GiB, .processors = 2, .tier = 4},
                                   {.id = 1, .bytes = 16_GiB, .tier = 22},
                                   {.id = 2, .processors = 2}};

std::string refusal(const NodeTiers& tiers, const std::vector<NumaNode>& nodes = kNodes) {
  try {
    check_tiers(tiers, nodes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(NodeTiers, AreWrittenAsPairs) {
  EXPECT_EQ(parse_node_tiers("fast=node0,slow=node1"), (NodeTiers{0, 1}));
  EXPECT_EQ(parse_node_tiers("slow=node12,fast=node3"), (NodeTiers{3, 12}));
  EXPECT_EQ(parse_node_tiers("slow=/mnt/ssd"), std::nullopt);
  EXPECT_EQ(parse_node_tiers(""), std::nullopt);
  for (const char* half : {"fast=node0", "slow=node1", "fast=node0,slow=/mnt",
                           "fast=node0,fast=node1", "fast=node0,slow=node1,x=node2"})
    EXPECT_THROW(parse_node_tiers(half), Error) << half;
}

TEST(NodeTiers, WhatCannotServeIsRefusedWithWhatThereIs) {
  EXPECT_EQ(refusal({0, 1}), "");
  EXPECT_THAT(refusal({0, 7}), HasSubstr("there is no node7; there are node0: 8.00 GiB"));
  EXPECT_THAT(refusal({1, 1}), HasSubstr("node1 cannot be both tiers"));
  EXPECT_THAT(refusal({0, 2}), HasSubstr("node2 has no memory"));
  EXPECT_THAT(refusal({0, 1}, {kNodes[0]}), HasSubstr("--slow DIR"));
  EXPECT_THAT(check_tiers({1, 0}, kNodes), HasSubstr("no processors"));
}

TEST(NumaNodes, ThereIsOneAtLeast) {
  const auto nodes = numa_nodes();
  if (nodes.empty()) GTEST_SKIP() << "this kernel has no NUMA support";
  EXPECT_GT(nodes[0].bytes, 0u);
  EXPECT_EQ(nodes[0].distances.size(), nodes.size());
}

class Sys : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/var/tmp/sentinel-sys-XXXXXX";
    root = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  fs::path root;
};

TEST_F(Sys, MemoryTiersListTheirNodes) {
  write("devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1,5\n");
  write("devices/virtual/memory_tiering/memory_tier22/nodelist", "2\n");
  EXPECT_EQ(memory_tier(1, root), 4);
  EXPECT_EQ(memory_tier(5, root), 4);
  EXPECT_EQ(memory_tier(2, root), 22);
  EXPECT_EQ(memory_tier(3, root), -1);
  EXPECT_EQ(memory_tier(0, root / "nowhere"), -1);
  for (const char* odd : {"", ",", "none", "1-", "-1", "99999999999999999999"}) {
    write("devices/virtual/memory_tiering/memory_tier9/nodelist", odd);
    EXPECT_EQ(memory_tier(3, root), -1) << odd;
  }
}

TEST_F(Sys, DaxDevicesTellWhetherTheyAreMemory) {
  write("bus/dax/devices/dax0.0/size", "1073741824\n");
  write("bus/dax/devices/dax0.0/target_node", "1\n");
  fs::create_directory_symlink("../../drivers/device_dax", root / "bus/dax/devices/dax0.0/driver");
  write("bus/dax/devices/dax1.0/size", "4096\n");
  fs::create_directory_symlink("../../drivers/kmem", root / "bus/dax/devices/dax1.0/driver");
  const auto devices = dax_devices(root);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "dax0.0");
  EXPECT_EQ(devices[0].bytes, 1_GiB);
  EXPECT_EQ(devices[0].node, 1);
  EXPECT_FALSE(devices[0].is_memory);
  EXPECT_TRUE(devices[1].is_memory);
}

TEST(NumaMaps, CountsTheRangeByNode) {
  std::istringstream maps(
      "7f0000000000 prefer:1 anon=6 dirty=6 N0=2 N1=4 kernelpagesize_kB=4\n"
      "7f0000200000 prefer:0 anon=1 dirty=1 N0=1 kernelpagesize_kB=2048\n"
      "7f0000400000 prefer:0\n"
      "7f1000000000 default file=/lib/x.so mapped=3 N0=3 kernelpagesize_kB=4\n");
  const auto bytes = bytes_by_node(maps, 0x7f0000000000, 0x7f1000000000);
  EXPECT_EQ(bytes, (NodeBytes{{0, 2 * 4096 + (2 << 20)}, {1, 4 * 4096}}));
}

TEST(NumaMaps, PassesOverWhatIsNoNumber) {
  std::istringstream maps("7f0000000000 default N0=many N=3 N99999999999=1 N1=2x N2=3 dirty=\n");
  EXPECT_EQ(bytes_by_node(maps, 0x7f0000000000, 0x7f1000000000), (NodeBytes{{2, 3 * 4096}}));
}

TEST(NodeCalls, TwoTiersOnOneNodeMustBeAskedFor) {
  EXPECT_TRUE(on_one_node("one-node"));
  EXPECT_TRUE(on_one_node("one-node,move:3:EBUSY"));
  EXPECT_FALSE(on_one_node("move:3:EBUSY"));
  EXPECT_NO_THROW(make_node_calls("one-node,move:3:EBUSY"));
}

TEST(NodeCalls, AFaultThatCannotBeInjectedIsNamed) {
  for (const char* wrong : {"move:EBUSY", "move:0:EBUSY", "write:3:EIO", "move:3:EIO"})
    EXPECT_THROW(make_node_calls(wrong), Error) << wrong;
  for (const char* right : {"move:3:EBUSY", "move:%7:ENOMEM", "move:500:slow"})
    EXPECT_NO_THROW(make_node_calls(right)) << right;
}

}  // namespace
}  // namespace sentinel
