// The formats' structure, and what every report must survive.
#include "report/report.h"

#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "report/view/provenance.h"
#include "report_fixture.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::large_profile;
using ::testing::Not;
using testing::rendered;
using testing::small_profile;

const std::string nasty = "</script><img src=x onerror=alert(1)>";

json parsed(const Profile& profile, std::string_view view, std::string_view format = "json") {
  return json::parse(rendered(profile, view, format));
}

void render_everything(const Profile& profile) {
  for (const auto view : report_views())
    for (const auto format : report_formats(view)) {
      SCOPED_TRACE(std::string(view) + " " + std::string(format));
      const auto text = rendered(profile, view, format);
      EXPECT_FALSE(text.empty());
      if (format == "json" || format == "perfetto") {
        EXPECT_TRUE(json::accept(text));
      }
    }
}

// Fields of RFC 4180 text, by the letter.
std::vector<std::vector<std::string>> csv(const std::string& text) {
  std::vector<std::vector<std::string>> lines{{""}};
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto& field = lines.back().back();
    if (quoted && text[i] == '"' && i + 1 < text.size() && text[i + 1] == '"')
      field += text[i++];
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted && text[i] == ',')
      lines.back().emplace_back();
    else if (!quoted && text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n')
      lines.push_back({""}), ++i;
    else
      field += text[i];
  }
  lines.pop_back();
  return lines;
}

TEST(MakeReporter, UnsupportedNamesWhatIsSupported) {
  try {
    make_reporter("sharing", "html");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("text, json, csv"));
  }
  try {
    make_reporter("nonsense", "text");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("summary, heatmap, tensors, layers, sharing"));
  }
}

TEST(MakeReporter, SortKeys) {
  EXPECT_EQ(parse_sort_key("bytes"), SortKey::bytes);
  EXPECT_THROW(parse_sort_key("colour"), Error);
}

TEST(Summary, CommandsAtTheEnd) {
  const auto text = rendered(small_profile(), "summary", "text", {.file = "p.db"});
  EXPECT_THAT(text, HasSubstr("sentinel report p.db heatmap --format html > heatmap.html"));
  EXPECT_THAT(text, HasSubstr("sentinel run --fast 20% --profile p.db -- python3 train.py"));
}

TEST(Summary, PartialComesFirst) {
  auto profile = small_profile();
  profile.meta.complete = false;
  profile.meta.incomplete_reason = "interrupted";
  EXPECT_EQ(rendered(profile, "summary", "text").find("Partial profile: interrupted"), 0u);
}

TEST(Summary, SamplesAreNotTakenForOpenings) {
  auto profile = small_profile();
  profile.meta.source = "samples";
  profile.meta.exact = false;
  profile.meta.window_pages = 0;
  profile.meta.sample_error = 0.02;
  EXPECT_THAT(rendered(profile, "summary", "text"),
              HasSubstr("samples, sampled loads and stores, not openings, stated error ±2 %"));
}

TEST(Summary, AGpusOpeningsAreSaidToBeUnverified) {
  auto profile = small_profile();
  profile.meta.exact = false;
  for (const auto& [source, how] : {std::pair("kernel-hmm", "(HMM)"), {"kernel-ats", "(ATS)"}}) {
    profile.meta.source = source;
    const auto counts = fidelity(StepView(profile));
    EXPECT_THAT(counts, HasSubstr(std::string(source) + ": a GPU's openings of the host's memory"));
    EXPECT_THAT(counts, HasSubstr(how));
    EXPECT_THAT(counts, HasSubstr("not verified on hardware"));
    EXPECT_THAT(counts, HasSubstr("window of"));
  }
}

TEST(Summary, AGpusPageFaultsAreNoSamples) {
  auto profile = small_profile();
  profile.meta.source = "cupti";
  profile.meta.exact = false;
  profile.meta.window_pages = 0;
  const auto counts = fidelity(StepView(profile));
  EXPECT_THAT(counts, HasSubstr("cupti: a GPU's page faults in managed memory"));
  EXPECT_THAT(counts, HasSubstr("not verified on hardware"));
  EXPECT_THAT(counts, HasSubstr("a page at most once an op, error not stated"));
  EXPECT_THAT(counts, Not(HasSubstr("sampled")));
  EXPECT_THAT(counts, HasSubstr("no window"));
}

// A complete profile in which the source refused some tensors says so where it says how far to
// trust it.
TEST(Summary, WhatWasNotCountedIsStated) {
  auto profile = small_profile();
  profile.meta.complete = true;
  profile.meta.exact = false;
  profile.meta.incomplete_reason =
      "2 of 40 tensors were not counted, or not to their end: No space left on device";
  EXPECT_THAT(rendered(profile, "summary", "text"), HasSubstr("2 of 40 tensors were not counted"));
}

TEST(Summary, ObservationsInJson) {
  const auto summary = parsed(small_profile(), "summary");
  EXPECT_EQ(summary["tensors"], 8);  // of nine, one is foreign
  EXPECT_EQ(summary["observation_1"]["short_lived"], 2);
  EXPECT_EQ(summary["observation_1"]["short_lived_peak_bytes"], 8192);
  EXPECT_EQ(summary["observation_2"]["bands"]["over_100"]["bytes"], 600);
  EXPECT_EQ(summary["observation_2"]["bands"]["none"]["bytes"], 500);
  // 2000 and 500 cold bytes lie on the scratch tensor's page, the latter while it is alive.
  EXPECT_EQ(summary["observation_3"]["falsely_shared_bytes"], 2500);
  EXPECT_EQ(summary["observation_3"]["falsely_shared_at_once_bytes"], 500);
  EXPECT_EQ(summary["observation_3"]["shared_pages"], 1);
}

TEST(Sharing, PageAndTensorTotals) {
  const auto sharing = parsed(small_profile(), "sharing");
  // By tensor the 2000 bytes count as cold; by page they vanish into a hot page.
  const std::uint64_t large = (1 << 20) + (256 << 10) + (256 << 10) + (1 << 20);
  EXPECT_EQ(sharing["by_tensor"]["1_10"], large + 2000);
  EXPECT_EQ(sharing["by_page"]["1_10"], large);
  EXPECT_EQ(sharing["by_page"]["over_100"], 4096);
}

TEST(Heatmap, JsonCells) {
  const auto map = parsed(small_profile(), "heatmap");
  ASSERT_EQ(map["columns"].size(), 5u);
  ASSERT_EQ(map["rows"].size(), 9u);
  for (const auto& row : map["rows"])
    if (row["name"] == "fc1/linear:0") {
      EXPECT_EQ(row["cells"][0], json::array({0, 128, 256, 3.0}));
      EXPECT_EQ(row["cells"][1], json::array({1, 1280, 0, 10.0}));
    }
}

TEST(Heatmap, CsvTellsAbsentFromAlive) {
  for (const auto& line : csv(rendered(small_profile(), "heatmap", "csv"))) {
    ASSERT_EQ(line.size(), 9u);
    if (line[1] == "fc1/linear:0") {
      EXPECT_THAT(line, ::testing::ElementsAre("3", "fc1/linear:0", "intermediate", "524288", "3",
                                               "10", "0", "0", ""));
    }
  }
}

TEST(Heatmap, FoldsToTheRowsAndColumnsGiven) {
  const auto text =
      rendered(large_profile(3000, 400), "heatmap", "text", {.heatmap_rows = 10}, {.width = 80});
  const auto lines = std::ranges::count(text, '\n');
  EXPECT_LE(lines, 2 + 10 + 6);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line) && !line.empty();) EXPECT_LE(line.size(), 80u);
}

TEST(Csv, QuotesAndDefusesFormulas) {
  auto profile = small_profile();
  profile.tensors[0].name = "a,\"b\"\nc";
  profile.tensors[1].name = "=HYPERLINK(\"x\")";
  std::vector<std::string> names;
  for (const auto& line : csv(rendered(profile, "tensors", "csv"))) names.push_back(line[0]);
  EXPECT_THAT(names, ::testing::Contains("a,\"b\"\\x0ac"));
  EXPECT_THAT(names, ::testing::Contains("'=HYPERLINK(\"x\")"));
}

// Where a semicolon or a tab divides cells, the second one would be a formula.
TEST(Csv, QuotesWhatDividesCellsElsewhere) {
  auto profile = small_profile();
  profile.tensors[0].name = "x;=HYPERLINK(1)";
  EXPECT_THAT(rendered(profile, "tensors", "csv"), HasSubstr("\"x;=HYPERLINK(1)\""));
}

TEST(Csv, NoNameIsAFormulaOrSteersATerminal) {
  auto profile = small_profile();
  const std::string names[] = {"=1+1",
                               "+1",
                               "-1",
                               "@x",
                               " =1",
                               "\t=1",
                               "\n=1",
                               "＝1",
                               "\x1b]0;t\x07",
                               "\xc2\x9b"
                               "31m"};
  for (std::size_t i = 0; i < std::size(names); ++i) {
    auto& name = profile.tensors[i % profile.tensors.size()].name;
    name = names[i];
    profile.layers[0].name = names[i];
    for (const auto view : {"tensors", "layers", "heatmap"}) {
      const auto text = rendered(profile, view, "csv");
      EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << view;
      EXPECT_THAT(text, Not(HasSubstr("\xc2\x9b"))) << view;
      for (const auto& line : csv(text))
        for (const auto& field : line) {
          const auto begin = field.find_first_not_of(" \t\r\n");
          if (begin != field.npos &&
              std::string_view("=+@").find(field[begin]) != std::string_view::npos)
            ADD_FAILURE() << view << ": " << field;
          EXPECT_FALSE(field.starts_with("＝")) << view;
        }
    }
  }
}

TEST(Json, NamesSteerNoTerminal) {
  auto profile = small_profile();
  const std::string steering =
      "\x1b[2J\x7f\xc2\x9b"
      "31m\u202e\xff";
  profile.tensors[0].name = profile.layers[0].name = profile.ops[0].name = profile.meta.model =
      steering;
  for (const auto view : report_views())
    for (const auto format : report_formats(view)) {
      if (format == "text" || format == "html") continue;
      const auto text = rendered(profile, view, format);
      for (const char* bad : {"\x1b", "\x7f", "\xc2\x9b", "\u202e", "\xff"})
        EXPECT_THAT(text, Not(HasSubstr(bad))) << view << ' ' << format;
      if (format != "csv") EXPECT_TRUE(json::accept(text)) << view;
    }
}

TEST(Sharing, ATensorOfAnySizeIsNotListedPageByPage) {
  auto profile = small_profile();
  profile.tensors[0].bytes = std::uint64_t{1} << 48;
  profile.natural = {{TensorId(0), 0}};
  EXPECT_THAT(rendered(profile, "sharing", "json"), HasSubstr("more pages than can be looked at"));
}

TEST(Tables, SortedByTheKeyGiven) {
  const auto first = [](SortKey key) {
    std::ostringstream out;
    make_reporter("tensors", "json", {.sort = key})->render(small_profile(), out, {});
    return json::parse(out.str())["rows"][0]["name"].get<std::string>();
  };
  EXPECT_EQ(first(SortKey::hotness), "fc1/scratch:0");
  EXPECT_EQ(first(SortKey::bytes), "fc1.weight");
  EXPECT_EQ(first(SortKey::first_use), "fc1/scratch:0");
}

TEST(Tables, TextOfAsManyRowsAsAskedFor) {
  const auto text = rendered(large_profile(100, 10), "tensors", "text", {.table_rows = 5});
  EXPECT_THAT(text, HasSubstr("… and 95 more"));
}

TEST(Perfetto, SlicesFollowEachOtherAndCountersCount) {
  const auto trace = parsed(small_profile(), "summary", "perfetto");
  double end = 0;
  int ops = 0, layers = 0, live = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] != "layer") {
      EXPECT_DOUBLE_EQ(event["ts"].get<double>(), end);
      end = event["ts"].get<double>() + event["dur"].get<double>();
      ++ops;
    }
    layers += event["ph"] == "X" && event["cat"] == "layer";
    live += event["ph"] == "C" && event["name"] == "live bytes";
  }
  EXPECT_EQ(ops, 6);
  EXPECT_EQ(layers, 5);
  EXPECT_EQ(live, 6);
  EXPECT_DOUBLE_EQ(end, 6500);
}

TEST(Html, NamesAreHarmless) {
  auto profile = small_profile();
  profile.tensors[0].name = profile.meta.command = profile.meta.model = nasty;
  profile.layers[0].name = profile.ops[0].name = nasty;
  profile.meta.complete = false;
  profile.meta.incomplete_reason = nasty;
  const auto html = rendered(profile, "heatmap", "html");
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, HasSubstr("\\u003c/script\\u003e\\u003cimg"));
  std::size_t ends = 0;
  for (auto at = html.find("</script"); at != std::string::npos; at = html.find("</script", at + 1))
    ++ends;
  EXPECT_EQ(ends, 2u);  // the figures' and the script's own
}

TEST(Html, LoadsNothing) {
  const auto html = rendered(small_profile(), "summary", "html");
  for (const char* outside : {"http:", "https:", "src=", "@import", "url(", "innerHTML"})
    EXPECT_THAT(html, Not(HasSubstr(outside))) << outside;
}

TEST(Html, OpensWhereAskedTo) {
  EXPECT_THAT(rendered(small_profile(), "tensors", "html"), HasSubstr("\"open\":\"tensors\""));
}

TEST(Text, NamesCannotMoveTheCursor) {
  auto profile = small_profile();
  profile.tensors[0].name =
      "evil\x1b[2J\n\xc2\x9b"
      "1m\xff";
  profile.meta.model = profile.meta.command = profile.layers[0].name = "m\x1b]0;t\x07";
  for (const auto view : report_views()) {
    const auto text = rendered(profile, view, "text");
    EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << view;
    EXPECT_THAT(text, Not(HasSubstr("\x07"))) << view;
  }
}

TEST(Everything, SurvivesBrokenAndWideNames) {
  auto profile = small_profile();
  profile.tensors[0].name = "\xff\xfe broken";
  profile.tensors[1].name = "层一/卷积:0 – λ 🚀";
  profile.ops[0].name = profile.layers[0].name = profile.meta.model = "\xc3(";
  render_everything(profile);
  EXPECT_THAT(rendered(profile, "tensors", "text"), HasSubstr("层一/卷积:0 – λ 🚀"));
}

TEST(Everything, SurvivesEmptiness) {
  render_everything({});
  Profile only_tensors;
  only_tensors.tensors.push_back({.name = "alone", .bytes = 1});
  render_everything(only_tensors);
  Profile only_ops;
  only_ops.layers.push_back({});
  only_ops.ops.push_back({.name = "nothing"});
  render_everything(only_ops);
}

TEST(Everything, OneTensorOfNoBytes) {
  Profile profile;
  profile.layers.push_back({"only", Phase::forward});
  profile.ops.push_back({.name = "op", .in = {testing::id(0)}});
  profile.tensors.push_back({.name = "one"});
  render_everything(profile);
}

TEST(Everything, NarrowTerminals) {
  for (const int width : {-5, 0, 1, 40, 500})
    for (const auto view : report_views())
      EXPECT_FALSE(rendered(small_profile(), view, "text", {}, {.width = width}).empty());
}

TEST(Everything, TenThousandTensorsInSeconds) {
  const auto profile = large_profile(10'000, 300);
  const auto start = std::chrono::steady_clock::now();
  render_everything(profile);
  // About a second when optimised; the bound leaves room for sanitizers and busy machines.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace sentinel
