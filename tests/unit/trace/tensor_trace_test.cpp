#include "trace/tensor_trace.h"

#include <gmock/gmock.h>

#include <sstream>

#include "sample_profile.h"
#include "sentinel/analysis.h"
#include "trace/read_any.h"
#include "trace/store.h"

namespace sentinel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string header =
    R"({"format":"tensor-trace","version":1,"source":"s","model":"m","batch":8,"gpu":"any"})"
    "\n";

// Tensors 0 (global), 1 (an input), 2 (intermediate), 3 (workspace), 4 (unused).
const std::string tensors = R"({"t":0,"bytes":4096,"kind":"global"})"
                            "\n"
                            R"({"t":1,"bytes":4096,"kind":"intermediate","new":[1]})"
                            "\n"
                            R"({"t":2,"bytes":5000,"kind":"intermediate"})"
                            "\n"
                            R"({"t":3,"bytes":100,"kind":"workspace"})"
                            "\n"
                            R"({"t":4,"bytes":100,"kind":"intermediate"})"
                            "\n";

const std::string ops =
    R"({"k":0,"name":"a","us":1.25,"in":[0],"out":[2],"phase":"forward","op":"p"})"
    "\n"
    R"({"k":1,"name":"b","us":2,"in":[2,1,2],"out":[3],"phase":"forward","op":"p","acc":{"2":7,"1":0}})"
    "\n"
    R"({"k":2,"name":"c","us":3,"in":[2],"out":[0],"phase":"backward","op":"q","new":null})"
    "\n"
    R"({"k":3,"name":"d","us":0,"in":[],"out":[0],"phase":"optimizer","op":"p"})"
    "\n";

Profile parse(const std::string& text) {
  const TestFolder folder;
  write_bytes(folder / "t.jsonl", text);
  return read_tensor_trace(folder / "t.jsonl");
}

std::string export_of(const Profile& profile) {
  std::ostringstream out;
  write_tensor_trace(profile, out);
  return out.str();
}

std::string op_line(int k, const std::string& extra) {
  return R"({"k":)" + std::to_string(k) +
         R"(,"name":"n","us":1,"in":[0],"out":[],"phase":"forward")" + extra + "}\n";
}

TEST(TensorTrace, Import) {
  const Profile profile = parse(header + tensors + ops);
  EXPECT_EQ(profile.meta.source, "trace");
  EXPECT_EQ(profile.meta.command, "s");
  EXPECT_EQ(profile.meta.model, "m");
  EXPECT_EQ(profile.meta.batch, 8u);
  EXPECT_TRUE(profile.meta.complete);
  EXPECT_NE(profile.meta.signature, 0u);
  EXPECT_DOUBLE_EQ(ideal_us(profile), 6.25);
  EXPECT_THAT(profile.ops[1].in, ElementsAre(TensorId(1), TensorId(2)));
  EXPECT_THAT(profile.layers, ElementsAre(Layer{"p", Phase::forward}, Layer{"q", Phase::backward},
                                          Layer{"p", Phase::optimizer}));
  EXPECT_THAT(profile.accesses, ElementsAre(AccessCount{TensorId(1), OpId(1), 0, 0},
                                            AccessCount{TensorId(2), OpId(1), 7, 0}));
}

TEST(TensorTrace, LifetimesFromFirstToLastUse) {
  const Profile profile = parse(header + tensors + ops);
  const auto lives = lifetimes(profile);
  EXPECT_TRUE(lives[0].persistent);
  EXPECT_EQ(profile.tensors[1].alloc_op, std::nullopt);  // read before any write: an input
  EXPECT_EQ(profile.tensors[1].free_op, OpId(1));
  EXPECT_EQ(profile.tensors[2].alloc_op, OpId(0));
  EXPECT_EQ(profile.tensors[2].free_op, OpId(2));
  EXPECT_EQ(profile.tensors[3].alloc_op, OpId(1));
  EXPECT_TRUE(profile.tensors[4].foreign);
  EXPECT_THAT(live_bytes(profile), ElementsAre(4 * 4096, 5 * 4096, 3 * 4096, 4096));
}

TEST(TensorTrace, RoundTripOfAProfile) {
  const Profile profile = parse(header + tensors + ops);
  EXPECT_EQ(parse(export_of(profile)), profile);
}

TEST(TensorTrace, RoundTripOfText) {
  const std::string text =
      R"({"format":"tensor-trace","version":1,"source":"s","model":"m","batch":8,"page_bytes":4096})"
      "\n"
      R"({"t":7,"bytes":4096,"kind":"global"})"
      "\n"
      R"({"t":3,"bytes":1,"kind":"workspace"})"
      "\n"
      R"({"k":0,"name":"a","us":0.1,"in":[7],"out":[3],"phase":"forward","layer":4,"op":"p","acc":{"7":2}})"
      "\n"
      R"({"k":1,"name":"b","us":1e-05,"in":[7],"out":[],"phase":"backward","layer":2})"
      "\n";
  EXPECT_EQ(export_of(parse(text)), text);
}

TEST(TensorTrace, RoundTripThroughTheStore) {
  const TestFolder folder;
  const Profile profile = parse(header + tensors + ops);
  write_profile(folder / "p", profile);
  EXPECT_EQ(export_of(read_profile(folder / "p")), export_of(profile));
}

TEST(TensorTrace, ExportOfARecording) {
  const Profile recorded = sample_profile();
  const Profile read = parse(export_of(recorded));
  EXPECT_EQ(read.layers, recorded.layers);
  EXPECT_EQ(read.ops, recorded.ops);
  EXPECT_EQ(read.tensors[2].name, recorded.tensors[2].name);
  EXPECT_EQ(read.tensors[2].alloc_op, OpId(0));
  EXPECT_EQ(read.accesses[1].reads, 3u);  // the format does not tell writes from reads
  EXPECT_THAT(read.meta.command, HasSubstr("train.py"));
}

TEST(TensorTrace, LayersByIndexOrAloneWithoutAnyHint) {
  const Profile by_index =
      parse(header + tensors + op_line(0, R"(,"layer":5)") + op_line(1, R"(,"op":"x")") +
            op_line(2, R"(,"layer":5)") + op_line(3, R"(,"layer":1)"));
  EXPECT_THAT(by_index.layers, ElementsAre(Layer{"layer 5"}, Layer{"layer 1"}));
  EXPECT_EQ(parse(header + tensors + op_line(0, "") + op_line(1, "")).layers.size(), 2u);
}

TEST(TensorTrace, CompressedOrNotByContent) {
  const TestFolder folder;
  const Profile profile = parse(header + tensors + ops);
  write_tensor_trace(profile, folder / "t.gz");
  EXPECT_EQ(read_bytes(folder / "t.gz").substr(0, 2), "\x1f\x8b");
  std::filesystem::rename(folder / "t.gz", folder / "t.txt");
  EXPECT_EQ(read_any(folder / "t.txt"), profile);
  write_tensor_trace(profile, folder / "t.jsonl");
  EXPECT_EQ(read_any(folder / "t.jsonl"), profile);
  write_profile(folder / "p", profile);
  EXPECT_EQ(read_any(folder / "p"), profile);
}

TEST(TensorTrace, ReadAnySaysWhatIsWrong) {
  const TestFolder folder;
  write_bytes(folder / "x", "something");
  EXPECT_THAT(error_of([&] { read_any(folder / "x"); }), HasSubstr("not a Sentinel profile"));
  EXPECT_THAT(error_of([&] { read_any(folder / "none"); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { read_tensor_trace(folder / "none"); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { read_tensor_trace(folder / ""); }), HasSubstr("directory"));
  EXPECT_THAT(error_of([&] { write_tensor_trace({}, folder / "no/x"); }), HasSubstr("No such"));
  EXPECT_THAT(error_of([&] { write_tensor_trace({}, folder / "no/x.gz"); }), HasSubstr("No such"));
}

struct BadLine {
  const char* line;
  const char* message;
};

TEST(TensorTrace, BadLinesAreNamed) {
  constexpr BadLine cases[] = {
      {R"({"t":0,"bytes":1,"kind":"global"})", "defined twice"},
      {R"({"t":9,"bytes":-1,"kind":"global"})", "bytes"},
      {R"({"t":9,"bytes":1e30,"kind":"global"})", "bytes"},
      {R"({"t":9,"bytes":9999999999999999999,"kind":"global"})", "bytes"},
      {R"({"t":-1,"bytes":1,"kind":"global"})", "\"t\""},
      {R"({"t":"x","bytes":1,"kind":"global"})", "\"t\""},
      {R"({"t":9,"kind":"global"})", "\"bytes\" is missing"},
      {R"({"t":9,"bytes":1,"kind":"weird"})", "weird"},
      {R"({"t":9,"bytes":1,"kind":"global")", "JSON"},
      {R"([1])", "object"},
      {R"({"x":1})", "neither"},
      {R"({"k":0,"name":"n","us":1,"in":[9],"out":[],"phase":"forward"})", "tensor 9"},
      {R"({"k":0,"name":"n","us":1,"in":[-1],"out":[],"phase":"forward"})", "id"},
      {R"({"k":0,"name":"n","us":1,"in":3,"out":[],"phase":"forward"})", "list"},
      {R"({"k":0,"name":"n","us":-1,"in":[],"out":[],"phase":"forward"})", "\"us\""},
      {R"({"k":0,"name":"n","us":NaN,"in":[],"out":[],"phase":"forward"})", "JSON"},
      {R"({"k":0,"name":"n","us":1e999,"in":[],"out":[],"phase":"forward"})", "JSON"},
      {R"({"k":0,"name":"n","us":null,"in":[],"out":[],"phase":"forward"})", "\"us\""},
      {R"({"k":0,"name":"n","us":1,"in":[],"out":[],"phase":"sideways"})", "sideways"},
      {R"({"k":0,"name":"n","us":1,"in":[],"out":[]})", "\"phase\" is missing"},
      {R"({"k":0,"name":7,"us":1,"in":[],"out":[],"phase":"forward"})", "string"},
      {R"({"k":0,"name":"\u0000","us":1,"in":[],"out":[],"phase":"forward"})", "NUL"},
      {R"({"k":0,"name":"n","us":1,"in":[],"out":[],"phase":"forward","layer":-3})", "layer"},
      {R"({"k":0,"name":"n","us":1,"in":[],"out":[],"phase":"forward","acc":[1]})", "acc"},
      {R"({"k":0,"name":"n","us":1,"in":[],"out":[],"phase":"forward","acc":{"x":1}})", "acc"},
      {R"({"k":0,"name":"n","us":1,"in":[],"out":[],"phase":"forward","acc":{"0":-1}})", "acc"},
      {R"({"k":0,"name":"n","us":1,"in":[],"out":[],"phase":"forward","acc":{"8":1}})",
       "tensor 8"}};
  for (const auto& [line, message] : cases) {
    const std::string error = error_of([&] { parse(header + tensors + "\n" + line + "\n" + ops); });
    EXPECT_THAT(error, HasSubstr(message)) << line;
    EXPECT_THAT(error, HasSubstr("t.jsonl:8: ")) << line;
  }
}

TEST(TensorTrace, BadHeaders) {
  const auto error = [](const std::string& text) { return error_of([&] { parse(text); }); };
  EXPECT_THAT(error(""), HasSubstr("empty"));
  EXPECT_THAT(error("{}\n"), HasSubstr("not a tensor trace"));
  EXPECT_THAT(error(tensors), HasSubstr("not a tensor trace"));
  EXPECT_THAT(error(R"({"format":"tensor-trace","version":2})"), HasSubstr("version 2"));
  EXPECT_THAT(error(R"({"format":"tensor-trace"})"), HasSubstr("version"));
  EXPECT_THAT(error(header + tensors + op_line(1, "") + op_line(1, "")), HasSubstr("order"));
}

TEST(TensorTrace, LimitsAgainstGarbage) {
  EXPECT_THAT(error_of([&] { parse(header + std::string((16 << 20) + 1, ' ')); }),
              HasSubstr("4 MiB"));
  EXPECT_THAT(error_of([&] { parse(header + std::string(1 << 20, '[') + "\n"); }),
              HasSubstr("32 deep"));
}

// Of one op of three tensors: born before the step, in its op, and after that.
std::string living(const std::string& born, const std::string& dies) {
  return header + R"({"t":0,"bytes":4096,"kind":"global","born":null,"dies":null})" + "\n" +
         R"({"t":1,"bytes":10,"kind":"intermediate","born":)" + born + R"(,"dies":)" + dies +
         R"(,"ordinal":3})" + "\n" + op_line(0, "") + op_line(1, "") + op_line(2, "");
}

TEST(TensorTrace, LivesThatAreToldTakeThePlaceOfThoseOfUses) {
  const auto profile = parse(living("1", "2"));
  EXPECT_FALSE(profile.tensors[0].alloc_op || profile.tensors[0].free_op);
  EXPECT_EQ(profile.tensors[1].alloc_op, OpId(1));
  EXPECT_EQ(profile.tensors[1].free_op, OpId(2));
  EXPECT_EQ(profile.tensors[1].ordinal, 3u);
  EXPECT_FALSE(profile.tensors[1].foreign);
  const auto outlives = parse(living("1", "null"));
  EXPECT_TRUE(outlives.tensors[1].alloc_op && !outlives.tensors[1].free_op);
}

TEST(TensorTrace, LivesThatCannotBeAreRefused) {
  for (const auto& [text, says] : std::initializer_list<std::pair<std::string, const char*>>{
           {living("2", "1"), "freed before"},
           {living("3", "null"), "does not exist"},
           {living("4294967296", "null"), "does not exist"},
           {living("-1", "null"), "whole number"},
           {living("\"a\"", "null"), "whole number"},
           {header + R"({"t":0,"bytes":1,"kind":"global"})" + "\n" +
                R"({"t":1,"bytes":1,"kind":"global","born":0,"dies":0})" + "\n" + op_line(0, ""),
            "all tensors"},
           {header + R"({"t":0,"bytes":1,"kind":"global","born":0,"dies":0})" + "\n" +
                R"({"t":1,"bytes":1,"kind":"global"})" + "\n" + op_line(0, ""),
            "all tensors"},
           {header + R"({"t":0,"bytes":1,"kind":"global","born":0,"dies":0})" + "\n" +
                op_line(7, ""),
            "count from 0"}}) {
    try {
      parse(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(says)) << text;
    }
  }
}

}  // namespace
}  // namespace sentinel
