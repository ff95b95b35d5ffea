// What swapping policies' plans cost: hand-computed steps.
#include <gmock/gmock.h>

#include "sim/simulator.h"
#include "unit/plan/swaps.h"

namespace sentinel::sim {
namespace {

using namespace sentinel::testing;

constexpr std::uint64_t kPage = 4096;

SimResult run(std::string_view policy, const Profile& profile, std::uint64_t pages,
              std::vector<std::string> without = {}) {
  const Machine machine = host_and_ssd();
  return simulate(profile, machine,
                  plan_of(policy, profile, machine,
                          {.fast_bytes = pages * kPage, .without = std::move(without)}));
}

// Ops of 100 us. a and c, 10 pages each, leave after op 0; d's 20 pages come at op 3. By SSD and
// host (100 and 20 us) both are gone at 200; by SSD alone at 300, when d comes. Both are back,
// fetched from op 5 (500) on, at 600 and 520, or by SSD alone c at 600, when op 6 needs it, and a
// at 700, when op 7 needs it. Nothing waits.
TEST(Swapping, G10HidesWhatItPlans) {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 7), c = b.temporary(10 * kPage, 0, 6),
                 d = b.temporary(20 * kPage, 3, 4);
  in_order(b, {{{}, {a, c}}, {}, {}, {{}, {d}}, {{d}, {}}, {}, {{c}, {}}, {{a}, {}}});
  for (const char* policy : {"g10", "g10-host", "g10-gds"})
    EXPECT_NEAR(run(policy, b.profile, 20).step_us, 800, 1e-3) << policy;
  EXPECT_THAT(run("g10", b.profile, 20).traffic,
              ::testing::UnorderedElementsAre(
                  Traffic{"fast", "host", 10 * kPage}, Traffic{"host", "fast", 10 * kPage},
                  Traffic{"fast", "ssd", 10 * kPage}, Traffic{"ssd", "fast", 10 * kPage}));
}

// FlashNeuron's plan (see swapping_baselines_test.cpp) fetches b at op 5 and a at op 6, which need
// them: 100 us each are waited for, 700 us become 900. LMS swaps a alone with the host and has it
// back (20 us) during op 5.
TEST(Swapping, BaselinesWaitForWhatTheyFetchLate) {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 6), x = b.temporary(10 * kPage, 1, 5),
                 c = b.temporary(10 * kPage, 2, 4), loss = b.temporary(kPage, 3, 4);
  in_order(b,
           {{{}, {a}}, {{}, {x}}, {{}, {c}}, {{}, {loss}}, {{c, loss}, {}}, {{x}, {}}, {{a}, {}}});
  for (std::size_t k = 4; k < b.profile.ops.size(); ++k) b.profile.ops[k].phase = Phase::backward;
  EXPECT_NEAR(run("flashneuron", b.profile, 30).step_us, 900, 1e-3);
  EXPECT_NEAR(run("lms", b.profile, 30).step_us, 700, 1e-3);
  const SimResult ideal = run("ideal", b.profile, 1);
  EXPECT_NEAR(ideal.step_us, 700, 1e-3);
  EXPECT_EQ(ideal.peak_fast_bytes, 31 * kPage);
}

}  // namespace
}  // namespace sentinel::sim
