#include "trace/pytorch_snapshot.h"

#include <gmock/gmock.h>

#include <chrono>

#include "sample_profile.h"
#include "trace/plain_data.h"

namespace sentinel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two lines of a module, an event of the backward thread, one of the optimizer. At 0x1000 lies
// what was there before and stays, at 0x2000 what was there before and goes.
constexpr const char* kSnapshot = R"({"segments":[
{"device":0,"address":4096,"blocks":[{"size":64,"state":"active_allocated"},
 {"size":4032,"state":"inactive"},{"size":8192,"state":"inactive"}]},
{"device":1,"address":4096,"blocks":[{"size":99,"state":"active_allocated"}]}],
"device_traces":[[
{"action":"segment_alloc","addr":4096,"size":65536,"time_us":90,"frames":[]},
{"action":"alloc","addr":12288,"size":1000,"time_us":100,"frames":[
  {"filename":"/x/torch/nn/modules/linear.py","line":114,"name":"forward"},
  {"filename":"/home/model.py","line":7,"name":"forward"}]},
{"action":"alloc","addr":20480,"size":10,"time_us":101,"frames":[
  {"filename":"/x/torch/nn/modules/linear.py","line":114,"name":"forward"},
  {"filename":"/home/model.py","line":7,"name":"forward"}]},
{"action":"free_requested","addr":20480,"size":10,"time_us":105,"frames":[]},
{"action":"free_completed","addr":20480,"size":10,"time_us":106,"frames":[]},
{"action":"alloc","addr":20480,"size":500,"time_us":130,"frames":[]},
{"action":"free_requested","addr":12288,"size":1000,"time_us":140,"frames":[]},
{"action":"alloc","addr":16384,"size":20,"time_us":150,"frames":[
  {"filename":"/x/torch/optim/sgd.py","line":70,"name":"step"}]},
{"action":"free_requested","addr":8192,"size":8192,"time_us":160,"frames":[]},
{"action":"free_requested","addr":16384,"size":20,"time_us":190,"frames":[]}],
[{"action":"alloc","addr":1,"size":5}]]})";

Profile imported(const std::string& text) {
  const TestFolder folder;
  write_bytes(folder / "s", text);
  return read_pytorch_snapshot(folder / "s");
}

TEST(PyTorchSnapshot, OpsAreRunsOfAllocationsFromOnePlace) {
  const auto p = imported(kSnapshot);
  ASSERT_EQ(p.ops.size(), 3u);
  EXPECT_EQ(p.ops[0].name, "linear.py:114 forward");
  EXPECT_EQ(p.ops[0].parent, "model.py:7 forward");
  EXPECT_EQ(p.ops[1].name, "backward");
  EXPECT_EQ(p.ops[2].name, "sgd.py:70 step");
  EXPECT_EQ(p.ops[1].phase, Phase::backward);
  EXPECT_EQ(p.ops[2].phase, Phase::optimizer);
  EXPECT_THAT((std::vector{p.ops[0].us, p.ops[1].us, p.ops[2].us}), ElementsAre(30, 20, 40));
}

TEST(PyTorchSnapshot, SizesAndLifetimes) {
  const auto p = imported(kSnapshot);
  ASSERT_EQ(p.tensors.size(), 6u);
  const auto life = [&](std::size_t t, std::uint64_t bytes, int alloc, int free, TensorKind kind) {
    const auto& tensor = p.tensors[t];
    const auto at = [](const auto& op) { return op ? static_cast<int>(op->value) : -1; };
    EXPECT_EQ(tensor.bytes, bytes) << t;
    EXPECT_EQ(at(tensor.alloc_op), alloc) << t;
    EXPECT_EQ(at(tensor.free_op), free) << t;
    EXPECT_EQ(tensor.kind, kind) << t;
  };
  life(0, 1000, 0, 1, TensorKind::intermediate);
  life(1, 10, 0, 0, TensorKind::workspace);
  life(2, 500, 1, -1, TensorKind::intermediate);  // outlives the step
  life(3, 20, 2, 2, TensorKind::workspace);
  life(4, 8192, -1, 2, TensorKind::intermediate);  // was there before
  life(5, 64, -1, -1, TensorKind::global);         // and this one stays
  EXPECT_EQ(p.tensors[2].name, "backward:0");
  EXPECT_THAT(p.ops[1].in, ElementsAre(TensorId(0)));
  EXPECT_THAT(p.ops[1].out, ElementsAre(TensorId(2)));
}

TEST(PyTorchSnapshot, SaysWhatIsWrong) {
  const auto wrong = [](std::string text) { return error_of([&] { imported(text); }); };
  EXPECT_THAT(wrong("{}"), HasSubstr("not a memory snapshot"));
  EXPECT_THAT(wrong("[1,"), HasSubstr("line 1"));
  EXPECT_THAT(wrong(R"({"segments":[],"device_traces":[[]]})"), HasSubstr("no allocation"));
  EXPECT_THAT(wrong(R"({"segments":[],"device_traces":[[{"action":"alloc","addr":1,"size":-5}]]})"),
              HasSubstr("\"size\" is not a whole number"));
  EXPECT_THAT(wrong(std::string(2000, '[')), HasSubstr("more than 32 deep"));
}

std::string text_of(std::string_view text) {
  std::string length;
  for (int byte = 0; byte < 4; ++byte) length += static_cast<char>(text.size() >> 8 * byte);
  return "X" + length + std::string(text);
}
std::string times(int count, const std::string& text) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}
// `shared` begins the file: "q" keeps a value of it at a place, "h" names that one again.
std::string pickled(const std::string& shared, const std::string& traces,
                    const std::string& segments) {
  return "\x80\x04" + shared + "}(" + text_of("device_traces") + "](" + traces + "e" +
         text_of("segments") + "](" + segments + "eu.";
}
std::string allocation(int number, const std::string& frames) {
  const std::string address{'M', static_cast<char>(number), static_cast<char>(number >> 8)};
  return "}(" + text_of("action") + text_of("alloc") + text_of("addr") + address + text_of("size") +
         "K\x01" + text_of("frames") + frames + "u";
}

// A long name of a file that 4 stacks of 1000 frames share: it is searched once.
TEST(PyTorchSnapshot, SharedFramesMultiplyNoWork) {
  const auto file = "}(" + text_of("filename") + text_of(std::string(2'000'000, '/') + "a.py") +
                    text_of("name") + text_of(std::string(100'000, 'n')) + "uq\x01";
  std::string events;
  for (int i = 0; i < 4; ++i) events += allocation(i, "](" + times(1000, "h\x01") + "e");
  const auto begin = std::chrono::steady_clock::now();
  const auto p = imported(pickled(file, "](" + events + "e", ""));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_EQ(p.tensors.size(), 4u);
  EXPECT_EQ(p.ops.at(0).name, "a.py:0 " + std::string(64, 'n'));
}

TEST(PyTorchSnapshot, SharedEventsAndBlocksAreRefused) {
  const auto refused = [](const std::string& bytes) {
    EXPECT_THAT(error_of([&] { imported(bytes); }), HasSubstr("listed twice"));
  };
  const auto trace = "](" + allocation(1, "]") + "eq\x01";
  refused(pickled(trace, times(3, "h\x01"), ""));
  const auto segment = "}(" + text_of("address") + "K\x01" + text_of("blocks") + "](}(" +
                       text_of("state") + text_of("active_allocated") + text_of("size") +
                       "K\x01ueuq\x02";
  refused(pickled(trace + segment, "h\x01", times(3, "h\x02")));
}

std::string unpickled(std::string_view bytes) {
  PlainData data;
  const auto r = unpickle(bytes, data);
  if (const auto number = data.number(r)) return std::to_string(*number);
  return std::string(data.text(r));
}

// As pickle.dumps() of Python writes them.
TEST(Pickle, Values) {
  using namespace std::string_view_literals;
  EXPECT_EQ(unpickled("\x80\x04K\x07."sv), "7.000000");
  EXPECT_EQ(unpickled("\x80\x04J\xfe\xff\xff\xff."sv), "-2.000000");
  EXPECT_EQ(unpickled("\x80\x04\x8a\x06\x00\x00\x00\x00\x00\x7f."sv), "139637976727552.000000");
  EXPECT_EQ(unpickled("\x80\x04\x8a\x05\x00\x00\x00\x00\xff."sv), "-4294967296.000000");
  EXPECT_EQ(unpickled("\x80\x04G\x3f\xf8\x00\x00\x00\x00\x00\x00."sv), "1.500000");
  EXPECT_EQ(unpickled("\x80\x04\x8c\x02hi\x94."sv), "hi");
}

// What is memorized is shared, not copied.
TEST(Pickle, SharedValues) {
  using namespace std::string_view_literals;
  PlainData data;
  const auto list = unpickle(
      "\x80\x04]\x94(\x8c\x01x\x94h\x01h\x00"
      "e."sv,
      data);
  const auto items = data.list(list);
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0], items[1]);
  EXPECT_EQ(items[2], list);
}

// os.system("true") as pickle.dumps() encodes the call.
// Each byte would make a value of many bytes.
TEST(Pickle, TakesNoMoreMemoryThanItsLengthExplains) {
  EXPECT_THAT(error_of([] { unpickled("\x80\x04" + std::string(10'000, ']') + "."); }),
              HasSubstr("more values than a snapshot of its length"));
  EXPECT_THAT(error_of([] { unpickled("\x80\x04Nr\xff\xff\xff\x7f."); }),
              HasSubstr("out of reach"));
}

TEST(Pickle, RunsNothing) {
  using namespace std::string_view_literals;
  EXPECT_THAT(error_of([] { unpickled("cposix\nsystem\n(\x8c\x04truetR."sv); }),
              StartsWith("byte 0: instruction 0x63 would make an object or run code"));
}

TEST(Pickle, Damaged) {
  using namespace std::string_view_literals;
  EXPECT_THAT(error_of([] { unpickled("\x80\x04\x8c\x09hi"sv); }),
              HasSubstr("byte 2: the file ends"));
  EXPECT_THAT(error_of([] {
                unpickled(
                    "\x80\x04"
                    "e."sv);
              }),
              HasSubstr("no mark"));
  EXPECT_THAT(error_of([] { unpickled("\x80\x04."sv); }), HasSubstr("stack is empty"));
  EXPECT_THAT(error_of([] {
                unpickled(
                    "\x80\x04K\x01K\x02"
                    "a."sv);
              }),
              HasSubstr("no container"));
  EXPECT_THAT(error_of([] { unpickled("\x80\x04}(K\x01u."sv); }), HasSubstr("no value"));
  EXPECT_THAT(error_of([] { unpickled("\x80\x09."sv); }), HasSubstr("protocol 9"));
}

}  // namespace
}  // namespace sentinel
