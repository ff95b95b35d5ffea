#include "sim/job/wakeful.h"

#include <gmock/gmock.h>

namespace sentinel::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Operand> of(std::initializer_list<std::uint32_t> storages) {
  std::vector<Operand> operands;
  for (const auto s : storages) operands.push_back({StorageId(s), true, false, true});
  return operands;
}

std::vector<std::uint32_t> awake(const Wakeful& wakeful) {
  return {wakeful.awake().begin(), wakeful.awake().end()};
}

TEST(Wakeful, WhoSleepsIsNotVisitedUntilWoken) {
  Wakeful wakeful(10);
  wakeful.begin(of({7, 2, 5, 9}));
  EXPECT_THAT(awake(wakeful), ElementsAre(0, 1, 2, 3));
  wakeful.visit([](std::uint32_t operand) { return operand == 2; });
  EXPECT_THAT(awake(wakeful), ElementsAre(2));
  wakeful.wake(std::vector{StorageId(9), StorageId(7), StorageId(3), StorageId(9), StorageId(5)});
  EXPECT_THAT(awake(wakeful), ElementsAre(0, 2, 3)) << "once each, in order; 3 is no operand";
  wakeful.visit([](std::uint32_t) { return false; });
  EXPECT_THAT(awake(wakeful), IsEmpty());
  wakeful.wake_all();
  EXPECT_THAT(awake(wakeful), ElementsAre(0, 1, 2, 3));
}

TEST(Wakeful, AnotherTasksOperandsAreForgotten) {
  Wakeful wakeful(10);
  wakeful.begin(of({7, 2, 5}));
  wakeful.begin(of({1}));
  wakeful.visit([](std::uint32_t) { return false; });
  wakeful.wake(std::vector{StorageId(7), StorageId(2)});
  EXPECT_THAT(awake(wakeful), IsEmpty());
  wakeful.wake(std::vector{StorageId(1)});
  EXPECT_THAT(awake(wakeful), ElementsAre(0));
}

}  // namespace
}  // namespace sentinel::sim
