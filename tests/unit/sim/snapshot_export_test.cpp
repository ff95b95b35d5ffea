#include "sim/snapshot_export.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/units.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/pickle_writer.h"
#include "trace/plain_data.h"
#include "trace/pytorch_snapshot.h"
#include "trace/tensor_trace.h"
#include "unit/places.h"

namespace sentinel::sim {
namespace {

using Ref = PlainData::Ref;

std::string unpickled_text(const PlainData& data, Ref at, const char* key) {
  return std::string(data.text(*data.find(at, key)));
}

// Two tensors from before, one of which goes; one that is made and goes; one that stays.
Profile step() {
  Profile p;
  p.meta.model = "tiny";
  p.layers = {{"one", Phase::forward}, {"two", Phase::backward}};
  p.ops = {{.name = "make", .layer = LayerId(0), .phase = Phase::forward, .us = 10},
           {.name = "use", .layer = LayerId(1), .phase = Phase::backward, .us = 20}};
  p.tensors = {{.name = "weight", .bytes = 4096, .kind = TensorKind::global},
               {.name = "old", .bytes = 1000, .free_op = OpId(0)},
               {.name = "brief", .bytes = 700, .alloc_op = OpId(0), .free_op = OpId(1)},
               {.name = "kept", .bytes = 3u << 20, .alloc_op = OpId(1)},
               {.name = "theirs", .bytes = 1 << 20, .foreign = true},
               {.name = "none", .bytes = 0, .alloc_op = OpId(0)}};
  return p;
}

TEST(SnapshotExport, EventsInTheOrderOfTheOps) {
  PlainData data;
  const auto root = unpickle(pytorch_snapshot(step()), data);
  const auto devices = data.list(*data.find(root, "device_traces"));
  ASSERT_EQ(devices.size(), 1u);
  std::vector<std::string> events;
  for (const Ref event : data.list(devices[0]))
    events.push_back(unpickled_text(data, event, "action") + " " +
                     unpickled_text(data, event, "user_metadata"));
  EXPECT_THAT(events,
              ::testing::ElementsAre("alloc brief", "free_requested old", "free_completed old",
                                     "alloc kept", "free_requested brief", "free_completed brief"));
  const auto first = data.list(devices[0])[0];
  EXPECT_EQ(data.integer(*data.find(first, "size")), 700);
  const auto frames = data.list(*data.find(first, "frames"));
  EXPECT_EQ(unpickled_text(data, frames[0], "name"), "make");
  EXPECT_EQ(unpickled_text(data, frames[0], "filename"), "one");
  const auto last = data.list(devices[0])[5];
  EXPECT_EQ(data.integer(*data.find(last, "time_us")), 30);
}

TEST(SnapshotExport, BlocksFillTheirSegment) {
  PlainData data;
  const auto root = unpickle(pytorch_snapshot(step()), data);
  const auto segment = data.list(*data.find(root, "segments"))[0];
  std::int64_t sum = 0;
  std::vector<std::string> living;
  for (const Ref block : data.list(*data.find(segment, "blocks"))) {
    sum += *data.integer(*data.find(block, "size"));
    if (unpickled_text(data, block, "state") == "active_allocated")
      living.push_back(unpickled_text(data, block, "user_metadata"));
  }
  EXPECT_EQ(sum, data.integer(*data.find(segment, "total_size")));
  EXPECT_THAT(living, ::testing::UnorderedElementsAre("weight", "kept"));
}

// The tensors of a real step come back, with their sizes, and so does its peak.
TEST(SnapshotExport, IsReadBack) {
  const auto profile = read_tensor_trace(std::string(test::kProject) +
                                         "/tests/bench/data/resnet20-batch32.jsonl.gz");
  const auto path = std::filesystem::path(::testing::TempDir()) / "exported.pickle";
  std::ofstream(path, std::ios::binary) << pytorch_snapshot(profile);
  const auto back = read_pytorch_snapshot(path);
  std::filesystem::remove(path);
  const auto sizes_of = [](const Profile& of) {  // blocks are rounded
    std::multiset<std::uint64_t> sizes;
    for (const auto& tensor : of.tensors)
      if (!tensor.foreign && tensor.bytes != 0) sizes.insert(round_up(tensor.bytes, 512));
    return sizes;
  };
  EXPECT_EQ(sizes_of(profile), sizes_of(back));
  EXPECT_EQ(peak_live_bytes(profile), peak_live_bytes(back));
}

TEST(SnapshotExport, AProfileWithoutOpsIsRefused) {
  EXPECT_THROW(pytorch_snapshot(Profile{}), Error);
}

TEST(PickleWriter, NumbersOfAllSizesAndTextsThatRepeat) {
  PickleWriter out;
  out.begin_list();
  const std::vector<std::uint64_t> numbers{
      0, 255, 256, 0x7fff'ffff, 0x8000'0000, 1ull << 40, (1ull << 63) - 1};
  for (const auto number : numbers) out.number(number);
  for (int i = 0; i < 2; ++i) out.text("twice");
  out.text("\xff\n");
  out.boolean(true);
  out.end();
  PlainData data;
  const auto items = data.list(unpickle(out.take(), data));
  ASSERT_EQ(items.size(), numbers.size() + 4);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(data.natural(items[i]), numbers[i]) << i;
  EXPECT_EQ(data.text(items[numbers.size()]), "twice");
  EXPECT_EQ(data.text(items[numbers.size() + 1]), "twice");
  EXPECT_EQ(data.text(items[numbers.size() + 2]), "\\xff\\x0a");
  EXPECT_EQ(data.boolean(items.back()), true);
}

TEST(PickleWriter, LongListsInParts) {
  PickleWriter out;
  out.begin_list();
  for (std::uint64_t i = 0; i < 2500; ++i) {
    out.begin_dictionary();
    out.key("i");
    out.number(i);
    out.end();
  }
  out.end();
  const auto bytes = out.take();
  std::size_t parts = 1;  // "e(" ends one and begins the next
  for (auto at = bytes.find("e("); at != bytes.npos; at = bytes.find("e(", at + 1)) ++parts;
  EXPECT_EQ(parts, 3u);
  PlainData data;
  const auto items = data.list(unpickle(bytes, data));
  ASSERT_EQ(items.size(), 2500u);
  EXPECT_EQ(data.natural(*data.find(items[2499], "i")), 2499u);
}

}  // namespace
}  // namespace sentinel::sim
