#include "capture/samples/sample_buffer.h"

#include <gtest/gtest.h>

#include <random>

#include "unit/capture/recorded_ring.h"

namespace sentinel {
namespace {

using Kind = SampleRecord::Kind;
constexpr std::uint64_t kAddress = 0x7f3a1c402040;

// As bytes of a recording, not as our own structs: type 9, misc 2 (user), size 32.
constexpr std::uint64_t kPebsRecording[] = {
    0x0020000200000009, 0x0000138800001388, 0x00007f3a1c402040, 0x0000000068100142,
    0x0020000200000009, 0x0000138900001388, 0x00007f3a1c600000, 0x0000000005080184,
    0x0018000000000002, 0x0000000000000011, 0x0000000000000007,  // seven were lost
    0x0020000000000005, 0x00000000000f4240, 0x0000000000000011, 0x0000000000000011,  // throttled
    0x0020000000000006, 0x00000000001e8480, 0x0000000000000011, 0x0000000000000011,
};
// misc 1: in the kernel; the second op had no memory operand.
constexpr std::uint64_t kIbsRecording[] = {
    0x0020000100000009, 0x0000138800001388, 0xffff888012345678, 0x0000000429080442,
    0x0020000200000009, 0x0000138800001388, 0x0000000000000000, 0x0000001e05080021,
    0x0020000200000009, 0x0000138900001388, 0x00007f3a1c402ff8, 0x0000000229080144,
    0x001000020000000d, 0x0000000000000003,  // PERF_RECORD_LOST_SAMPLES
};

std::vector<SampleRecord> replay(std::span<const std::uint64_t> words) {
  RecordedRing ring;
  for (const std::uint64_t word : words) ring.put(word);
  return ring.records();
}

std::vector<Kind> kinds(const std::vector<SampleRecord>& records) {
  std::vector<Kind> all;
  for (const SampleRecord& record : records) all.push_back(record.kind);
  return all;
}

TEST(SampleBuffer, ReadsARecordingOfPebs) {
  const auto records = replay(kPebsRecording);
  ASSERT_EQ(kinds(records),
            (std::vector{Kind::sample, Kind::sample, Kind::lost, Kind::throttled, Kind::other}));
  EXPECT_EQ(records[0].sample.pid, 5000u);
  EXPECT_EQ(records[1].sample.tid, 5001u);
  EXPECT_EQ(records[0].sample.address, kAddress);
  EXPECT_EQ(access_of(records[0].sample.data_src), SampledAccess::read);
  EXPECT_EQ(access_of(records[1].sample.data_src), SampledAccess::write);
  EXPECT_EQ(records[2].lost, 7u);
}

TEST(SampleBuffer, ReadsARecordingOfIbs) {
  const auto records = replay(kIbsRecording);
  ASSERT_EQ(kinds(records), (std::vector{Kind::sample, Kind::sample, Kind::sample, Kind::lost}));
  EXPECT_EQ(records[0].sample.address, 0xffff888012345678u);
  EXPECT_EQ(records[1].sample.address, 0u);
  EXPECT_EQ(access_of(records[2].sample.data_src), SampledAccess::write);
  EXPECT_EQ(records[3].lost, 3u);
}

TEST(SampleBuffer, PrefetchesAndCodeAreNoAccesses) {
  EXPECT_EQ(access_of(PERF_MEM_OP_PFETCH), SampledAccess::none);
  EXPECT_EQ(access_of(PERF_MEM_OP_EXEC), SampledAccess::none);
  EXPECT_EQ(access_of(PERF_MEM_OP_LOAD | PERF_MEM_OP_PFETCH), SampledAccess::read);
  EXPECT_EQ(access_of(PERF_MEM_OP_LOAD | PERF_MEM_OP_STORE), SampledAccess::write);
  for (const auto load : {kPebsLoadL1, kPebsLoadRam, kIbsLoadL2, kNotAvailable})
    EXPECT_EQ(access_of(load), SampledAccess::read) << load;
  for (const auto store : {kPebsStoreL1, kPebsStoreMiss, kIbsStore})
    EXPECT_EQ(access_of(store), SampledAccess::write) << store;
}

TEST(SampleBuffer, RecordsGoRoundTheRingsEnd) {
  for (std::uint64_t position = 0; position < 256; position += 8) {
    RecordedRing ring(128, position);
    for (int round = 0; round < 8; ++round) {
      ring.sample(kAddress, kPebsLoadL1, 7, 8);
      ring.sample(kAddress + 64, kPebsStoreL1, 7, 9);
      const auto records = ring.records();
      ASSERT_EQ(kinds(records), (std::vector{Kind::sample, Kind::sample})) << position;
      EXPECT_EQ(records[1].sample.address, kAddress + 64);
      EXPECT_EQ(records[1].sample.tid, 9u);
    }
  }
}

TEST(SampleBuffer, WhatWasReadMakesRoom) {
  RecordedRing ring;
  ring.sample(kAddress, kPebsLoadL1);
  EXPECT_EQ(ring.records().size(), 1u);
  EXPECT_EQ(ring.page().data_tail, ring.page().data_head);
  EXPECT_TRUE(ring.records().empty());
}

// What follows a record of unknown length cannot be found again.
TEST(SampleBuffer, DamageEndsTheReading) {
  for (const std::uint64_t size : {0u, 4u, 7u, 33u, 96u, 65528u}) {
    RecordedRing ring;
    ring.sample(kAddress, kPebsLoadL1);
    ring.put(PERF_RECORD_SAMPLE | size << 48);
    for (int word = 0; word < 7; ++word) ring.put(0);
    const auto records = ring.records();
    ASSERT_EQ(kinds(records), (std::vector{Kind::sample, Kind::damaged})) << size;
    EXPECT_EQ(records[1].lost, 2u);
    ring.sample(kAddress, kPebsLoadL1);
    EXPECT_EQ(kinds(ring.records()), std::vector{Kind::sample});
  }
}

TEST(SampleBuffer, ShortRecordsAreLostAlone) {
  RecordedRing ring;
  ring.append(PERF_RECORD_SAMPLE, {});
  ring.append(PERF_RECORD_SAMPLE, {1, 2});
  ring.append(PERF_RECORD_LOST, {1});
  ring.append(PERF_RECORD_LOST_SAMPLES, {});
  ring.append(77, {});
  ring.append(PERF_RECORD_SAMPLE, {1, kAddress, kPebsLoadL1, 4, 5});  // with fields unasked for
  EXPECT_EQ(kinds(ring.records()), (std::vector{Kind::damaged, Kind::damaged, Kind::damaged,
                                                Kind::damaged, Kind::other, Kind::sample}));
}

TEST(SampleBuffer, PositionsThatCannotBeAreDamage) {
  for (const std::uint64_t head : {std::uint64_t{4}, std::uint64_t{65544}, ~std::uint64_t{0}}) {
    RecordedRing ring;
    ring.page().data_head = head;
    EXPECT_EQ(kinds(ring.records()), std::vector{Kind::damaged}) << head;
  }
  RecordedRing overtaken(64, 1000);
  overtaken.page().data_head = 992;
  EXPECT_EQ(kinds(overtaken.records()), std::vector{Kind::damaged});
  SampleReader nothing({}, 0, 8);
  SampleRecord record;
  EXPECT_TRUE(nothing.next(record));
  EXPECT_FALSE(nothing.next(record));
}

void check_ends(RecordedRing& ring) {
  std::size_t visited = 0;
  ring.view().take([&](const SampleRecord&) { ++visited; });
  ASSERT_LE(visited, ring.ring().size() + 1);  // no record is shorter than a word
  EXPECT_EQ(ring.page().data_tail, ring.page().data_head);
}

TEST(SampleBuffer, SurvivesRandomBytes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    RecordedRing ring(256, random() & ~7ull);
    for (auto& word : ring.ring()) word = random() >> (random() % 64);
    ring.page().data_head += random() % 2 ? random() % 300 : random();
    check_ends(ring);
  }
}

TEST(SampleBuffer, SurvivesDamagedRecordings) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 20000; ++round) {
    RecordedRing ring(512, 8 * (random() % 1000));
    for (const std::uint64_t word : kPebsRecording) ring.put(word);
    for (int flips = 0; flips < 3; ++flips)
      ring.ring()[random() % ring.ring().size()] ^= std::uint64_t{1} << random() % 64;
    check_ends(ring);
  }
}

}  // namespace
}  // namespace sentinel
