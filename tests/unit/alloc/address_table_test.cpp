#include "alloc/address_table.h"

#include <gmock/gmock.h>

#include <random>
#include <unordered_map>
#include <vector>

namespace sentinel {
namespace {

LiveTensor tensor_at(std::uintptr_t address, std::uint64_t bytes = 64) {
  return {.address = address, .bytes = bytes};
}

TEST(AddressTableTest, FindsWhatWasInsertedAndNothingElse) {
  AddressTable table;
  table.insert(tensor_at(0x1000, 1));
  table.insert(tensor_at(0x1040, 2));
  ASSERT_NE(table.find(0x1000), nullptr);
  EXPECT_EQ(table.find(0x1000)->bytes, 1u);
  EXPECT_EQ(table.find(0x1040)->bytes, 2u);
  EXPECT_EQ(table.find(0x1080), nullptr);
  EXPECT_EQ(table.size(), 2u);
}

TEST(AddressTableTest, TheReferenceFromInsertIsTheEntry) {
  AddressTable table;
  table.insert(tensor_at(0x1000)).record = 7;
  EXPECT_EQ(table.find(0x1000)->record, 7u);
}

TEST(AddressTableTest, AnErasedAddressCanComeAgain) {
  AddressTable table;
  for (std::uint64_t round = 1; round <= 100; ++round) {
    table.insert(tensor_at(0x2000, round));
    EXPECT_EQ(table.find(0x2000)->bytes, round);
    table.erase(0x2000);
    EXPECT_EQ(table.find(0x2000), nullptr);
  }
  EXPECT_EQ(table.size(), 0u);
}

TEST(AddressTableTest, GrowsWithoutLosingAny) {
  AddressTable table;
  for (std::uint64_t i = 1; i <= 50000; ++i) table.insert(tensor_at(i * 64, i));
  EXPECT_EQ(table.size(), 50000u);
  for (std::uint64_t i = 1; i <= 50000; ++i) ASSERT_EQ(table.find(i * 64)->bytes, i);
}

TEST(AddressTableTest, VisitsEachOnce) {
  AddressTable table;
  for (std::uint64_t i = 1; i <= 1000; ++i) table.insert(tensor_at(i * 4096, i));
  std::uint64_t count = 0, sum = 0;
  table.for_each([&](const LiveTensor& tensor) { ++count, sum += tensor.bytes; });
  EXPECT_EQ(count, 1000u);
  EXPECT_EQ(sum, 1000u * 1001 / 2);
}

using Reference = std::unordered_map<std::uintptr_t, std::uint64_t>;

void expect_same(AddressTable& table, const Reference& reference) {
  ASSERT_EQ(table.size(), reference.size());
  Reference seen;
  table.for_each([&](const LiveTensor& tensor) { seen.emplace(tensor.address, tensor.bytes); });
  ASSERT_EQ(seen, reference);
  for (const auto& [address, bytes] : reference) {
    ASSERT_NE(table.find(address), nullptr) << address;
    ASSERT_EQ(table.find(address)->bytes, bytes);
  }
}

struct Pattern {
  const char* name;
  std::uintptr_t stride;  // between the addresses that may occur
};

class RandomAddressTableTest : public ::testing::TestWithParam<Pattern> {};
INSTANTIATE_TEST_SUITE_P(Strides, RandomAddressTableTest,
                         ::testing::Values(Pattern{"Lines", 64}, Pattern{"Pages", 4096},
                                           Pattern{"Frames", 2 << 20},
                                           Pattern{"Large", 1ull << 32}),
                         [](const auto& info) { return info.param.name; });

// Long runs of occupied entries, gaps torn into them and closed again: backward-shift deletion.
TEST_P(RandomAddressTableTest, AgreesWithAnUnorderedMap) {
  constexpr std::size_t kAddresses = 3000;
  std::mt19937_64 random(GetParam().stride);
  AddressTable table;
  Reference reference;
  for (int i = 0; i < 60000; ++i) {
    const auto address = (1 + random() % kAddresses) * GetParam().stride;
    const bool present = reference.contains(address);
    ASSERT_EQ(table.find(address) != nullptr, present);
    if (present) {
      table.erase(address);
      reference.erase(address);
    } else {
      table.insert(tensor_at(address, random()));
      reference.emplace(address, table.find(address)->bytes);
    }
    if (i % 5000 == 0) expect_same(table, reference);
  }
  expect_same(table, reference);
}

}  // namespace
}  // namespace sentinel
