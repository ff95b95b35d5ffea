// Checksums by themselves; checked transfers are tested in slow_tier_test.cpp.
#include "engine/io/checksums.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kFrame = 2u << 20;

class ChecksumsTest : public testing::TestWithParam<ChecksumLevel> {
 protected:
  ChecksumsTest() : frame_(kFrame) {
    std::mt19937_64 random(7);
    for (std::uint64_t i = 0; i < kFrame; i += 8) {
      const auto word = random();
      std::memcpy(frame_.data() + i, &word, 8);
    }
  }
  bool match(std::int64_t slot) { return sums_.match(slot, 0, frame_.data(), kFrame); }

  Checksums sums_{GetParam(), kFrame};
  std::vector<char> frame_;
};

INSTANTIATE_TEST_SUITE_P(Levels, ChecksumsTest,
                         testing::Values(ChecksumLevel::sampled, ChecksumLevel::full));

TEST_P(ChecksumsTest, WhatIsUnchangedMatchesWholeAndInParts) {
  sums_.take(3, frame_.data());
  EXPECT_TRUE(match(3));
  for (std::uint64_t first = 0; first < kFrame; first += Checksums::kBytes)
    EXPECT_TRUE(sums_.match(3, first, frame_.data() + first, Checksums::kBytes));
}

TEST_P(ChecksumsTest, AnotherBlockAZeroedOneAndAZeroedPieceDiffer) {
  sums_.take(0, frame_.data());
  auto other = frame_;
  std::rotate(other.begin(), other.begin() + 4096, other.end());
  sums_.take(1, other.data());
  EXPECT_TRUE(match(0));
  EXPECT_FALSE(match(1));
  std::memset(frame_.data() + 5 * Checksums::kBytes, 0, Checksums::kBytes);
  EXPECT_FALSE(match(0));
  std::memset(frame_.data(), 0, kFrame);
  EXPECT_FALSE(match(0));
}

// Every flipped bit by all bytes; of samples the share that they are of all bytes, 64 of 4096.
TEST_P(ChecksumsTest, NoticesTheShareOfFlippedBitsThatItsBytesAre) {
  constexpr int kFlips = 20000;
  sums_.take(0, frame_.data());
  std::mt19937_64 random(11);
  int noticed = 0;
  for (int i = 0; i < kFlips; ++i) {
    const auto at = random() % kFrame;
    const auto piece = at / Checksums::kBytes * Checksums::kBytes;
    const char bit = static_cast<char>(1 << random() % 8);
    frame_[at] ^= bit;
    noticed += !sums_.match(0, piece, frame_.data() + piece, Checksums::kBytes);
    frame_[at] ^= bit;
  }
  if (GetParam() == ChecksumLevel::full) {
    EXPECT_EQ(noticed, kFlips);
    return;
  }
  const double expected = kFlips / 64.0;  // 312, give or take 18
  EXPECT_NEAR(noticed, expected, 80);
}

TEST(Checksums, OffComparesNothing) {
  Checksums sums(ChecksumLevel::off, kFrame);
  std::vector<char> frame(kFrame);
  sums.take(0, frame.data());
  frame[0] = 1;
  EXPECT_TRUE(sums.match(0, 0, frame.data(), kFrame));
}

// A frame need not be a multiple of what has a sum of its own.
TEST(Checksums, AFrameOfOddSizeEndsInAShorterPart) {
  constexpr std::uint64_t kOdd = Checksums::kBytes + 4096;
  Checksums sums(ChecksumLevel::full, kOdd);
  std::vector<char> frame(kOdd, 7);
  sums.take(2, frame.data());
  EXPECT_TRUE(sums.match(2, 0, frame.data(), kOdd));
  frame[kOdd - 1] = 8;
  EXPECT_FALSE(sums.match(2, 0, frame.data(), kOdd));
  EXPECT_TRUE(sums.match(2, 0, frame.data(), Checksums::kBytes));
}

TEST(Checksums, LevelsAreNamed) {
  EXPECT_EQ(parse_checksum_level("off"), ChecksumLevel::off);
  EXPECT_EQ(parse_checksum_level("sampled"), ChecksumLevel::sampled);
  EXPECT_EQ(parse_checksum_level("full"), ChecksumLevel::full);
  EXPECT_THROW(parse_checksum_level("some"), Error);
}

}  // namespace
}  // namespace sentinel
