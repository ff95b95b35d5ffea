// Files with any number in any place: an Error, or a profile whose sums are right.
#include <gmock/gmock.h>
#include <sqlite3.h>

#include <chrono>
#include <cmath>
#include <fstream>

#include "sample_profile.h"
#include "sentinel/analysis.h"
#include "trace/pytorch_snapshot.h"
#include "trace/read_any.h"
#include "trace/store.h"
#include "trace/tensor_trace.h"
#include "trace/validate.h"

namespace sentinel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

enum class Outcome { refused, read };

// Sums in numbers that cannot wrap, beside ours.
void expect_sums(const Profile& profile) {
  validate(profile);
  long double all = 0;
  for (const Tensor& t : profile.tensors)
    all += static_cast<long double>(t.bytes) + profile.meta.page_bytes;
  for (const auto bytes : live_bytes(profile)) EXPECT_LE(bytes, all);
  for (const auto bytes : working_set_bytes(profile)) EXPECT_LE(bytes, all);
  EXPECT_TRUE(std::isfinite(ideal_us(profile)));
  for (const TensorCount& count : counts(profile)) EXPECT_TRUE(std::isfinite(count.hotness));
}

template <class Read>
Outcome outcome(const Read& read) {
  try {
    expect_sums(read());
    return Outcome::read;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("json.exception")));
    return Outcome::refused;
  }
}

// False where SQLite itself keeps such a value out of such a column.
bool run_sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  const int result = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  EXPECT_TRUE(result == SQLITE_OK || result == SQLITE_MISMATCH) << sql;
  sqlite3_close(db);
  return result == SQLITE_OK;
}

TEST(Numbers, OfAStoredProfile) {
  const TestFolder folder;
  write_profile(folder / "p", sample_profile());
  const std::string whole = read_bytes(folder / "p");
  const std::pair<const char*, std::vector<const char*>> tables[] = {
      {"layers", {"id", "phase"}},
      {"ops", {"id", "layer", "phase", "us"}},
      {"operands", {"op", "tensor", "mode"}},
      {"tensors",
       {"id", "bytes", "kind", "alloc_op", "free_op", "ordinal", "place", "stride", "is_foreign"}},
      {"accesses", {"tensor", "op", "reads", "writes"}},
      {"natural", {"tensor", "address"}},
      {"meta", {"value"}}};
  const char* values[] = {"-1",
                          "0",
                          "1",
                          "2147483648",
                          "4294967296",
                          "9007199254740992",
                          "9223372036854775807",
                          "-9223372036854775808",
                          "0.5",
                          "1e308",
                          "-1e308",
                          "9e999",
                          "-9e999",
                          "NULL",
                          "'text'",
                          "x'00ff1b'"};
  int refused = 0, read = 0;
  for (const auto& [table, columns] : tables)
    for (const char* column : columns)
      for (const char* value : values)
        for (const char* row : {"MIN", "MAX"}) {
          write_bytes(folder / "p", whole);
          const std::string first = std::string(table) == "meta" ? "key" : columns[0];
          if (!run_sql(folder / "p", std::string("UPDATE OR IGNORE ") + table + " SET " + column +
                                         " = " + value + " WHERE " + first + " = (SELECT " + row +
                                         "(" + first + ") FROM " + table + ")"))
            continue;
          const auto result = outcome([&] { return read_any(folder / "p"); });
          ++(result == Outcome::read ? read : refused);
        }
  EXPECT_GT(refused, 300);
  EXPECT_GT(read, 50);
}

const std::string kExtremes[] = {"-1",
                                 "0",
                                 "1",
                                 "2147483648",
                                 "4294967296",
                                 "9007199254740992",
                                 "9223372036854775807",
                                 "9223372036854775808",
                                 "18446744073707454464",
                                 "18446744073709551615",
                                 "18446744073709551616",
                                 "1e18",
                                 "1e308",
                                 "1e309",
                                 "-1e308",
                                 "0.5",
                                 "null",
                                 "\"1\"",
                                 "[]"};

// Each number of the text by each extreme.
template <class Read>
void each_number(const std::string& good, const Read& read, int least_refused, int least_read) {
  int refused = 0, fine = 0;
  constexpr const char* digits = "0123456789.";
  for (std::size_t at = good.find_first_of(digits); at != good.npos;) {
    const auto end = std::min(good.find_first_not_of(digits, at), good.size());
    for (const auto& extreme : kExtremes) {
      const auto bad = good.substr(0, at) + extreme + good.substr(end);
      ++(outcome([&] { return read(bad); }) == Outcome::read ? fine : refused);
    }
    at = good.find_first_of(digits, end);
  }
  EXPECT_GT(refused, least_refused);
  EXPECT_GT(fine, least_read);
}

TEST(Numbers, OfATensorTrace) {
  const TestFolder folder;
  each_number(
      R"({"format":"tensor-trace","version":1,"batch":2,"page_bytes":4096}
{"t":0,"bytes":8192,"kind":"global"}
{"t":1,"bytes":65536,"kind":"intermediate"}
{"k":0,"name":"a","us":10,"in":[0],"out":[1],"phase":"forward","layer":0,"acc":{"1":7}}
{"k":1,"name":"b","us":2.5,"in":[0,1],"out":[0],"phase":"backward","layer":1}
)",
      [&](const std::string& text) {
        write_bytes(folder / "t", text);
        return read_tensor_trace(folder / "t");
      },
      200, 20);
}

TEST(Numbers, OfASnapshot) {
  const TestFolder folder;
  each_number(
      R"({"segments":[{"device":0,"address":4096,"blocks":[{"size":512,"state":"active_allocated"},
{"size":7680,"state":"active_allocated"}]}],"device_traces":[[
{"action":"alloc","addr":8192,"size":512,"time_us":3,"frames":[]},
{"action":"free_requested","addr":8192,"size":512,"time_us":6,"frames":[]}]]})",
      [&](const std::string& text) {
        write_bytes(folder / "s", text);
        return read_pytorch_snapshot(folder / "s");
      },
      50, 50);
}

TEST(Numbers, ATensorIsNoLargerThanProcessorsAddress) {
  const TestFolder folder;
  const auto with = [&](const char* bytes) {
    write_bytes(folder / "t", std::string(R"({"format":"tensor-trace","version":1}
{"t":0,"bytes":)") + bytes + R"(,"kind":"global"}
{"k":0,"name":"a","us":1,"in":[0],"out":[],"phase":"forward"}
)");
    return read_tensor_trace(folder / "t");
  };
  EXPECT_NO_THROW(with("281474976710656"));
  try {
    with("100000000000000000");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("t:2: \"bytes\" is not a whole number from 0 to"));
  }
}

TEST(Numbers, SumsOfASegmentDoNotWrap) {
  const TestFolder folder;
  write_bytes(folder / "s",
              R"({"segments":[{"device":0,"address":9223372036854775807,"blocks":[
{"size":9223372036854775807,"state":"inactive"},{"size":9223372036854775807,"state":"inactive"}]}],
"device_traces":[[{"action":"alloc","addr":1,"size":1}]]})");
  try {
    read_pytorch_snapshot(folder / "s");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("beyond all addresses"));
  }
}

// A pickle shares values: the same list of many frames in each of many events.
TEST(Numbers, WhatIsSharedIsReadOnce) {
  const TestFolder folder;
  const auto text = [](std::string_view t) {
    return std::string("\x8c") + static_cast<char>(t.size()) + std::string(t);
  };
  std::string pickle = "\x80\x04](";
  for (int i = 0; i < 20'000; ++i) pickle += "}" + text("name") + text("f") + "s";
  pickle +=
      "eq" + std::string(1, '\0') + "}(" + text("segments") + "]" + text("device_traces") + "](](";
  for (int i = 0; i < 20'000; ++i) {
    for (const char* action : {"alloc", "free_requested"})
      pickle += "}(" + text("action") + text(action) + text("addr") + "K\x01" + text("size") +
                "K\x01" + text("frames") + "h" + std::string(1, '\0') + "u";
  }
  pickle += "eeu.";
  write_bytes(folder / "s", pickle);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(read_pytorch_snapshot(folder / "s").tensors.size(), 20'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Words, OfAFileSteerNoTerminal) {
  const TestFolder folder;
  for (const char* field : {"phase", "name"}) {
    std::string line = R"({"k":0,"name":"a","us":1,"in":[],"out":[],"phase":"forward"})";
    if (std::string(field) == "phase")
      line.replace(line.find("forward"), 7, "\\u001b]0;owned\\u0007\xc2\x9b\u202e");
    else
      line.replace(line.find("\"us\""), 4, "\"\x1b\"");
    write_bytes(folder / "t", "{\"format\":\"tensor-trace\",\"version\":1}\n" + line + "\n");
    try {
      read_tensor_trace(folder / "t");
      FAIL();
    } catch (const Error& error) {
      for (const char* bad : {"\x1b", "\x07", "\xc2\x9b", "\u202e", "syntax error"})
        EXPECT_THAT(error.what(), Not(HasSubstr(bad)));
    }
  }
}

}  // namespace
}  // namespace sentinel
