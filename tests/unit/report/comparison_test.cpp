#include "report/view/comparison.h"

#include <gmock/gmock.h>

#include <sstream>

#include "report_fixture.h"

namespace sentinel {
namespace {

using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

Machine joined() {
  Machine machine{.name = "joined"};
  machine.tiers = {{.name = "fast"}, {.name = "slow"}};
  machine.links = {{.name = "pcie", .bw = 1e9, .tiers = {"fast", "slow"}}};
  return machine;
}

Machine ports() {
  Machine machine{.name = "ports"};
  machine.tiers = {{.name = "hbm"}, {.name = "host"}, {.name = "ssd", .read_bw = 2e9}};
  machine.links = {{.name = "gpu", .bw = 16e9, .tiers = {"hbm"}}};
  return machine;
}

TEST(Lanes, OfALinkThatJoins) {
  const auto lanes = lanes_of(joined());
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0].name, "pcie: away from fast memory");
  EXPECT_THAT(lanes[0].ways, ElementsAre(Pair(0, 1)));
  EXPECT_EQ(lanes[1].name, "pcie: towards fast memory");
  EXPECT_TRUE(lanes[1].inward);
  EXPECT_EQ(lanes[1].bw, 1e9);
}

TEST(Lanes, OfPortsAndOfTiersThatNoLinkJoins) {
  const auto lanes = lanes_of(ports());
  ASSERT_EQ(lanes.size(), 4u);
  EXPECT_EQ(lanes[0].name, "gpu: out of hbm");
  EXPECT_THAT(lanes[0].ways, ElementsAre(Pair(0, 1), Pair(0, 2)));
  EXPECT_EQ(lanes[1].name, "gpu: into hbm");
  EXPECT_THAT(lanes[1].ways, ElementsAre(Pair(1, 0), Pair(2, 0)));
  EXPECT_EQ(lanes[2].name, "host to ssd");
  EXPECT_EQ(lanes[3].name, "ssd to host");
  EXPECT_EQ(lanes[3].bw, 2e9);
}

TEST(Lanes, OfAPortThatHasItsTiersName) {
  auto machine = ports();
  machine.links = {{.name = "host", .bw = 16e9, .tiers = {"host"}}};
  const auto lanes = lanes_of(machine);
  EXPECT_THAT(lanes, Contains(Field(&Lane::name, "host memory, writing")));
  EXPECT_THAT(lanes, Contains(Field(&Lane::name, "host memory, reading")));
}

// Ten microseconds in five parts of two. 400 bytes in four microseconds from 1 on: 100 in the first
// part, 200 in the second, 100 in the third. A wait from 5 to 8: half of the third part and all of
// the fourth.
TEST(Strip, PartsOfATimeline) {
  sim::Timeline timeline;
  timeline.samples = {{0, 100}, {3, 300}, {5, 200}};
  timeline.transfers = {{1, 5, 1, 0, 400, TensorId(0)}};
  timeline.waits = {{5, 8, OpId(0)}};
  const auto strip = strip_of(timeline, 10, lanes_of(joined()), 5);
  EXPECT_THAT(strip.fast_bytes, ElementsAre(100, 300, 300, 200, 200));
  EXPECT_THAT(strip.stalled, ElementsAre(0, 0, DoubleNear(0.5, 1e-9), DoubleNear(1, 1e-9), 0));
  EXPECT_TRUE(strip.moved[0].empty());
  EXPECT_THAT(strip.moved[1],
              ElementsAre(DoubleNear(100, 1e-9), DoubleNear(200, 1e-9), DoubleNear(100, 1e-9),
                          DoubleNear(0, 1e-9), DoubleNear(0, 1e-9)));
}

// What goes on when the step ends is counted up to there, what has no duration where it is.
TEST(Strip, EndsAndInstants) {
  sim::Timeline timeline;
  timeline.samples = {{10, 7}};
  timeline.transfers = {{8, 12, 0, 1, 80, TensorId(0)}, {3, 3, 0, 1, 5, TensorId(0)}};
  const auto strip = strip_of(timeline, 10, lanes_of(joined()), 5);
  EXPECT_THAT(strip.fast_bytes, ElementsAre(0, 0, 0, 0, 7));
  EXPECT_THAT(strip.moved[0], ElementsAre(0, 5, 0, 0, DoubleNear(80, 1e-9)));
  EXPECT_TRUE(strip_of(timeline, 0, lanes_of(joined()), 5).fast_bytes.empty());
}

std::string page(const std::string& model, const std::string& swept) {
  auto profile = testing::small_profile();
  profile.meta.model = model;
  const auto machine = joined();
  sim::SimResult result{.step_us = 10, .ideal_us = 8, .traffic = {{"slow", "fast", 400}}};
  sim::Timeline timeline;
  timeline.samples = {{0, 100}};
  timeline.transfers = {{1, 5, 1, 0, 400, TensorId(0)}};
  const auto strip = strip_of(timeline, 10, lanes_of(machine), 4);
  const Comparison comparison{profile,
                              machine,
                              1 << 20,
                              swept,
                              {{.policy = "one", .result = &result, .strip = &strip},
                               {.policy = "two", .reason = "why </script> not"}}};
  std::ostringstream text;
  comparison_html(comparison, text);
  return text.str();
}

// 400 bytes over 4 us at a rate of 1000 a us: 100, and of 2.5 us a part 2500: 60 of 1000 at most.
TEST(ComparisonPage, HoldsTheFigures) {
  const auto html = page("net", "");
  EXPECT_THAT(html, HasSubstr(R"("model":"net")"));
  EXPECT_THAT(html, HasSubstr(R"("use":[60,100,0,0])"));
  EXPECT_THAT(html, HasSubstr(R"("held":[1000,1000,1000,1000])"));
  EXPECT_THAT(html, HasSubstr(R"("throughput":0.8)"));
}

TEST(ComparisonPage, NamesCannotLeaveTheirElement) {
  const auto html = page("</script><img src=x onerror=alert(1)>", "fast");
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, HasSubstr("\\u003c/script\\u003e\\u003cimg"));
  EXPECT_THAT(html, HasSubstr("why \\u003c/script\\u003e not"));
}

TEST(ComparisonPage, LoadsNothing) {
  const auto html = page("net", "");
  for (const char* outside : {"src=\"http", "href=\"http", "@import", "url(", "fetch("})
    EXPECT_THAT(html, Not(HasSubstr(outside))) << outside;
}

}  // namespace
}  // namespace sentinel
