// Recordings that lack frees, and integers as large as addresses.
#include <gmock/gmock.h>

#include "sample_profile.h"
#include "trace/live_blocks.h"
#include "trace/plain_data.h"
#include "trace/pytorch_snapshot.h"

namespace sentinel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(LiveBlocks, ANewBlockProvesThoseBelowItGone) {
  LiveBlocks blocks;
  blocks.begin(100, 50, TensorId(0));
  blocks.begin(150, 50, TensorId(1));
  blocks.begin(UINT64_MAX - 9, 10, TensorId(2));
  EXPECT_THAT(blocks.clear(200, 10), IsEmpty());
  EXPECT_THAT(blocks.clear(149, 2), ElementsAre(TensorId(0), TensorId(1)));
  EXPECT_FALSE(blocks.end(100).has_value());
  EXPECT_THAT(blocks.clear(UINT64_MAX, 100), ElementsAre(TensorId(2)));
}

TEST(LiveBlocks, OneOfNoBytesHasAnAddress) {
  LiveBlocks blocks;
  blocks.begin(100, 0, TensorId(0));
  EXPECT_THAT(blocks.clear(100, 0), ElementsAre(TensorId(0)));
}

Profile recorded(const std::string& events, const std::string& segments = "") {
  const TestFolder folder;
  write_bytes(folder / "s",
              R"({"segments":[)" + segments + R"(],"device_traces":[[)" + events + "]]}");
  return read_pytorch_snapshot(folder / "s");
}
std::string event(const char* action, std::uint64_t address, int bytes, int us) {
  return std::string(R"({"action":")") + action + R"(","addr":)" + std::to_string(address) +
         R"(,"size":)" + std::to_string(bytes) + R"(,"time_us":)" + std::to_string(us) + "}";
}

TEST(RecordedFrees, WhereMemoryIsUsedAgainItsTensorWasFreed) {
  const auto p = recorded(event("alloc", 1024, 512, 1) + "," + event("alloc", 1024, 256, 2));
  EXPECT_TRUE(p.tensors.at(0).free_op.has_value());
  EXPECT_FALSE(p.tensors.at(1).free_op.has_value());
  EXPECT_THAT(p.meta.incomplete_reason, HasSubstr("the frees of 1 tensors were not recorded"));
}

TEST(RecordedFrees, AnInactiveBlockHoldsNone) {
  const auto p =
      recorded(event("alloc", 1024, 512, 1),
               R"({"device":0,"address":1024,"blocks":[{"size":512,"state":"inactive"}]})");
  EXPECT_TRUE(p.tensors.at(0).free_op.has_value());
  EXPECT_THAT(p.meta.incomplete_reason, HasSubstr("1 tensors"));
}

TEST(RecordedFrees, ASegmentThatIsGivenBackHoldsNone) {
  const auto p = recorded(event("alloc", 1024, 512, 1) + "," + event("segment_free", 0, 4096, 2));
  EXPECT_TRUE(p.tensors.at(0).free_op.has_value());
}

// The completion of a request before the recording frees nothing of it.
TEST(RecordedFrees, ACompletionEndsOnlyWhatNoRequestDid) {
  const auto with =
      recorded(event("free_completed", 64, 8, 1) + "," + event("alloc", 1024, 8, 2) + "," +
               event("free_requested", 1024, 8, 3) + "," + event("free_completed", 1024, 8, 4));
  EXPECT_EQ(with.tensors.size(), 1u);
  const auto alone = recorded(event("free_completed", 64, 8, 1) + "," + event("alloc", 1024, 8, 2) +
                              "," + event("free_completed", 1024, 8, 4));
  EXPECT_EQ(alone.tensors.size(), 2u);
  EXPECT_EQ(with.meta.incomplete_reason + alone.meta.incomplete_reason, "");
}

TEST(RecordedFrees, AddressesAboveTheSignBit) {
  const std::uint64_t high = 0xFF00000000200000;
  const auto p =
      recorded(event("alloc", high, 512, 1) + "," + event("free_requested", high, 512, 2));
  EXPECT_TRUE(p.tensors.at(0).free_op.has_value());
  const auto negative = recorded(
      R"({"action":"alloc","addr":-4096,"size":8},{"action":"free_requested","addr":-4096,"size":8})");
  EXPECT_TRUE(negative.tensors.at(0).free_op.has_value());
  EXPECT_THAT(negative.meta.incomplete_reason, HasSubstr("no event tells its time"));
}

TEST(RecordedFrees, NinthByteOfAPicklesInteger) {
  using namespace std::string_view_literals;
  PlainData data;
  const auto high = unpickle("\x80\x04\x8a\x09\x00\x00\x20\x00\x00\x00\x00\xff\x00."sv, data);
  EXPECT_EQ(data.natural(high), 0xFF00000000200000u);
  const auto beyond = unpickle("\x80\x04\x8a\x09\x00\x00\x20\x00\x00\x00\x00\xff\x01."sv, data);
  EXPECT_FALSE(data.natural(beyond).has_value());
}

}  // namespace
}  // namespace sentinel
