// How a total is divided, with and without leases.
#include "broker/division.h"

#include <gmock/gmock.h>

#include <random>
#include <utility>
#include <vector>

#include "base/units.h"

namespace sentinel {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Gt;

// It holds half of what it needs in peaks alone.
constexpr Need kPeaky{.least = 32_MiB, .most = 400_MiB, .usual = 200_MiB};

TEST(Division, GoesWhereMostIsGained) {
  const Need steep{.least = 32_MiB, .most = 256_MiB, .curve = {{32_MiB, 4}, {256_MiB, 1}}},
      flat{.least = 32_MiB, .most = 256_MiB, .curve = {{32_MiB, 1.2}, {256_MiB, 1}}};
  EXPECT_THAT(divide(320_MiB, std::vector{steep, flat}, 2_MiB), ElementsAre(256_MiB, 64_MiB));
  EXPECT_THAT(divide(320_MiB, std::vector{flat, steep}, 2_MiB), ElementsAre(64_MiB, 256_MiB));
  EXPECT_THAT(divide(320_MiB, std::vector{steep, steep}, 2_MiB), ElementsAre(160_MiB, 160_MiB));
}

TEST(Division, AStepIsWorthTheWayToIt) {  // nothing is gained before 200 MiB, and then all
  const Need step{
      .least = 32_MiB, .most = 200_MiB, .curve = {{32_MiB, 3}, {190_MiB, 3}, {200_MiB, 1}}},
      flat{.least = 32_MiB, .most = 200_MiB, .curve = {{32_MiB, 1.1}, {200_MiB, 1}}};
  EXPECT_THAT(divide(240_MiB, std::vector{flat, step}, 2_MiB), ElementsAre(40_MiB, 200_MiB));
}

TEST(Division, WithoutCurvesByWhatIsWantedAndPriority) {
  const Need plain{.least = 32_MiB, .most = 512_MiB}, little{.least = 32_MiB, .most = 64_MiB};
  EXPECT_THAT(divide(512_MiB, std::vector{plain, plain}, 2_MiB), ElementsAre(256_MiB, 256_MiB));
  EXPECT_THAT(divide(1024_MiB, std::vector{plain, little}, 2_MiB), ElementsAre(512_MiB, 64_MiB));
  Need urgent = plain;
  urgent.priority = 3;
  EXPECT_THAT(divide(128_MiB, std::vector{plain, urgent}, 2_MiB), ElementsAre(48_MiB, 80_MiB));
}

TEST(Division, WhatASimulatorCannotTellIsNoGain) {
  const auto flat = [](double most) {
    return Need{
        .least = 32_MiB, .most = 400_MiB, .curve = {{32_MiB, 1.5}, {200_MiB, most}, {400_MiB, 1}}};
  };
  EXPECT_THAT(divide(640_MiB, std::vector{flat(1.012), flat(1.015)}, 2_MiB),
              ElementsAre(320_MiB, 320_MiB));
  EXPECT_THAT(divide(640_MiB, std::vector{flat(1.2), flat(1.015)}, 2_MiB)[0], Gt(350_MiB));
}

TEST(Division, LeasesAreLentWhereMovesCostMore) {
  const auto peaky = [](double loss) {
    auto need = kPeaky;
    need.curve = {{need.least, 4}, {300_MiB, loss}, {need.most, 1}};
    return need;
  };
  const auto within = [&](std::uint64_t total, double loss) {
    return share(total, std::vector{peaky(loss), peaky(loss)}, 2_MiB)[1];
  };
  EXPECT_EQ(within(600_MiB, 1.05).beyond(), 0u);
  EXPECT_EQ(within(600_MiB, 1.05).most, 300_MiB);
  EXPECT_EQ(within(600_MiB, 1.3).base, 200_MiB);
  EXPECT_EQ(within(600_MiB, 1.3).most, 400_MiB) << "nothing moves";
  EXPECT_EQ(within(560_MiB, 1.3).most, 392_MiB) << "next to nothing does";
  EXPECT_LT(within(560_MiB, 1.3).base, 200_MiB) << "and more than peaks is lent";
}

TEST(Division, LeasesAreForPeaksAlone) {
  const auto of = [](std::uint64_t total, const std::vector<Need>& needs) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> shares;
    for (const auto& one : share(total, needs, 2_MiB))
      shares.emplace_back(one.base / 1_MiB, one.most / 1_MiB);
    return shares;
  };
  const Need flat{.least = 32_MiB, .most = 400_MiB};
  EXPECT_THAT(of(640_MiB, {flat, flat}), ElementsAre(std::pair(320, 320), std::pair(320, 320)));
  EXPECT_THAT(of(640_MiB, {flat, kPeaky}), ElementsAre(std::pair(320, 320), std::pair(320, 320)))
      << "nobody else lends";
  EXPECT_THAT(of(300_MiB, {kPeaky, kPeaky}), ElementsAre(std::pair(150, 150), std::pair(150, 150)));
  EXPECT_THAT(of(900_MiB, {kPeaky, kPeaky, kPeaky}),
              ElementsAre(std::pair(200, 400), std::pair(200, 400), std::pair(200, 400)));
  EXPECT_THAT(of(200_MiB, {kPeaky}), ElementsAre(std::pair(200, 200)));
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Need> needs(1 + random() % 5);
    std::uint64_t least = 0;
    for (auto& need : needs) {
      need.least = (1 + random() % 40) * 1_MiB;
      need.most = need.least + random() % 500 * 1_MiB;
      need.usual = random() % 3 == 0 ? 0 : need.least + random() % (need.most - need.least + 1);
      least += need.least;
    }
    const auto total = least + random() % 900 * 1_MiB;
    const auto shares = share(total, needs, 2_MiB);
    auto bytes = lease_pool(shares);
    for (std::size_t i = 0; i < needs.size(); ++i) {
      bytes += shares[i].base;
      EXPECT_GE(shares[i].base, needs[i].least);
      EXPECT_LE(shares[i].base, shares[i].most);
      EXPECT_LE(shares[i].most, needs[i].most);
    }
    EXPECT_LE(bytes, total);
  }
}

TEST(Division, JobsGetOfTheDriveWhatOthersLeave) {
  const auto user = [](double busy) {
    return Need{.least = 32_MiB, .most = 64_MiB, .curve = {{32_MiB, 2, busy}, {64_MiB, 1, 0}}};
  };
  const auto parts = [&](std::vector<Need> needs, std::vector<std::uint64_t> bytes) {
    return drive_parts(needs, bytes);
  };
  EXPECT_THAT(parts({user(0.9)}, {32_MiB}), ElementsAre(1));
  EXPECT_THAT(parts({user(0.2), user(0.6)}, {32_MiB, 32_MiB}),
              ElementsAre(DoubleNear(0.5, 1e-9), DoubleNear(0.8, 1e-9)));
  EXPECT_THAT(parts({user(0.2), user(0.6)}, {48_MiB, 32_MiB}),
              ElementsAre(DoubleNear(0.5, 1e-9), DoubleNear(0.9, 1e-9)));
  EXPECT_THAT(parts({user(1), user(1), user(1)}, {32_MiB, 32_MiB, 64_MiB}),
              ElementsAre(0.5, 0.5, DoubleNear(1. / 3, 1e-9)))
      << "the third would be one of three";
  EXPECT_THAT(parts({user(1), kPeaky}, {32_MiB, 200_MiB}), ElementsAre(1, 0.5));
  EXPECT_THAT(parts({}, {}), ElementsAre());
}

}  // namespace
}  // namespace sentinel
