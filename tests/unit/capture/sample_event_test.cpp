#include "capture/samples/sample_event.h"

#include <gmock/gmock.h>
#include <perfmon/pfmlib.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

namespace sentinel {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

// libpfm4 tells the events of processors that are not here as well, if asked when it starts.
class ChosenEvents : public testing::Test {
 protected:
  void SetUp() override {
    setenv("LIBPFM_ENCODE_INACTIVE", "1", 1);
    pfm_terminate();
  }
  void TearDown() override {
    unsetenv("LIBPFM_ENCODE_INACTIVE");
    pfm_terminate();
  }
  SampleFacts intel{.vendor = "GenuineIntel", .paranoid = 2, .core_pmu = true, .max_precise = 3};
  SampleFacts amd{.vendor = "AuthenticAMD",
                  .paranoid = 2,
                  .core_pmu = true,
                  .ibs_op_type = 11,
                  .ibs_counts_ops = true};
};

TEST_F(ChosenEvents, IntelSamplesLoadLatencyAndStores) {
  for (const char* pmu : {"hsw::", "skx::", "clx::", "icx::", "spr::"}) {
    const auto chosen = choose_sample_events(intel, pmu);
    ASSERT_EQ(chosen.events.size(), 2u) << pmu << chosen.reason;
    const auto& loads = chosen.events[0].attr;
    EXPECT_EQ(loads.type, unsigned{PERF_TYPE_RAW});
    EXPECT_EQ(loads.config, 0x1cdu);
    EXPECT_EQ(loads.config1, 3u);  // the latency from which on loads are sampled
    EXPECT_EQ(chosen.events[1].attr.config, 0x82d0u);
    for (const auto& event : chosen.events) {
      EXPECT_GT(event.attr.precise_ip, 0u);
      EXPECT_EQ(event.attr.sample_period, chosen.period);
      EXPECT_TRUE(event.attr.exclude_kernel);
      EXPECT_FALSE(event.leader);
    }
  }
  EXPECT_EQ(choose_sample_events(intel, "skx::").names(),
            "MEM_TRANS_RETIRED:LOAD_LATENCY:ldlat=3 and MEM_INST_RETIRED:ALL_STORES");
}

TEST_F(ChosenEvents, OlderIntelHasOtherNames) {
  const auto chosen = choose_sample_events(intel, "ivb::");
  ASSERT_EQ(chosen.events.size(), 2u);
  EXPECT_EQ(chosen.names(),
            "MEM_TRANS_RETIRED:LATENCY_ABOVE_THRESHOLD:ldlat=3 and "
            "MEM_TRANS_RETIRED:PRECISE_STORE");
  EXPECT_EQ(chosen.events[1].attr.config, 0x2cdu);
}

TEST_F(ChosenEvents, WhereLoadLatencyNeedsALeaderItGetsOne) {
  intel.loads_aux = true;
  const auto chosen = choose_sample_events(intel, "spr::");
  ASSERT_EQ(chosen.events.size(), 2u);
  ASSERT_TRUE(chosen.events[0].leader);
  EXPECT_EQ(chosen.events[0].leader->config, 0x8203u);
  EXPECT_FALSE(chosen.events[1].leader);
}

TEST_F(ChosenEvents, AmdSamplesOps) {
  const auto chosen = choose_sample_events(amd);
  ASSERT_EQ(chosen.events.size(), 1u);
  const auto& attr = chosen.events[0].attr;
  EXPECT_EQ(attr.type, 11u);
  EXPECT_EQ(attr.config, 1u << 19);
  EXPECT_EQ(attr.sample_period % 16, 0u);  // its lower four bits cannot be set
  EXPECT_FALSE(attr.exclude_kernel);       // IBS refuses to leave anything out
  EXPECT_EQ(chosen.names(), "ibs_op/cnt_ctl=1/");
  amd.ibs_counts_ops = false;
  EXPECT_EQ(choose_sample_events(amd).events[0].attr.config, 0u);
}

TEST_F(ChosenEvents, WhereThereIsNoneItSaysWhyAndWhatToDo) {
  const SampleFacts guest{.vendor = "AuthenticAMD", .virtual_machine = true, .paranoid = 2};
  SampleFacts no_perf = intel, no_pebs = intel, hybrid = intel, no_ibs = amd, arm = intel;
  no_perf.paranoid.reset();
  no_pebs.max_precise = 0;
  no_pebs.virtual_machine = true;
  hybrid.hybrid = true;
  no_ibs.ibs_op_type = -1;
  arm.vendor = "";
  const std::pair<SampleFacts, const char*> expected[] = {
      {guest, "virtual machine has no performance counters"},
      {no_perf, "no perf events"},
      {no_pebs, "virtual machine's counters have no PEBS"},
      {hybrid, "two kinds"},
      {no_ibs, "has no IBS"},
      {arm, "only Intel's PEBS and AMD's IBS"}};
  for (const auto& [facts, reason] : expected) {
    const auto none = choose_sample_events(facts, "skx::");
    EXPECT_TRUE(none.events.empty()) << reason;
    EXPECT_THAT(none.reason, HasSubstr(reason));
    EXPECT_FALSE(none.remedy.empty());
  }
  EXPECT_THAT(choose_sample_events(intel, "no_such::").reason, HasSubstr("libpfm4 knows no event"));
}

TEST_F(ChosenEvents, ARefusalNamesWhatWouldHelp) {
  intel.paranoid = 4;
  EXPECT_THAT(refused_sample_events(intel, EACCES).remedy, HasSubstr("perf_event_paranoid=2"));
  EXPECT_THAT(refused_sample_events(amd, EACCES).remedy, HasSubstr("perf_event_paranoid=0"));
  intel.paranoid = 1;
  EXPECT_THAT(refused_sample_events(intel, EPERM).remedy, HasSubstr("seccomp"));
  EXPECT_THAT(refused_sample_events(intel, ENOSYS).remedy, HasSubstr("seccomp"));
  EXPECT_THAT(refused_sample_events(intel, EMFILE).remedy, HasSubstr("ulimit -n"));
  EXPECT_THAT(refused_sample_events(intel, ENOMEM).remedy, HasSubstr("ulimit -l"));
  EXPECT_THAT(refused_sample_events(intel, EBUSY).remedy, HasSubstr("another program"));
  for (const int error : {EACCES, EPERM, ENOSYS, EBUSY, EMFILE, ENOENT, EOPNOTSUPP, EINVAL}) {
    const auto refused = refused_sample_events(intel, error);
    EXPECT_TRUE(refused.events.empty());
    EXPECT_THAT(refused.reason, testing::Not(IsEmpty()));
    EXPECT_THAT(refused.remedy, testing::Not(IsEmpty()));
  }
}

class FactsOfATree : public testing::Test {
 protected:
  void SetUp() override {
    root = fs::path(testing::TempDir()) / ("sample-facts-" + std::to_string(getpid()));
  }
  void TearDown() override { fs::remove_all(root); }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  fs::path root;
};

TEST_F(FactsOfATree, AnIntelServer) {
  file("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu pebs dtes64\n");
  file("proc/sys/kernel/perf_event_paranoid", "-1\n");
  file("sys/bus/event_source/devices/cpu/caps/max_precise", "3\n");
  file("sys/bus/event_source/devices/cpu/events/mem-loads-aux", "event=0x03,umask=0x82\n");
  const auto facts = read_sample_facts(root);
  EXPECT_EQ(facts.vendor, "GenuineIntel");
  EXPECT_FALSE(facts.virtual_machine);
  EXPECT_EQ(facts.paranoid, -1);
  EXPECT_TRUE(facts.core_pmu);
  EXPECT_FALSE(facts.hybrid);
  EXPECT_EQ(facts.max_precise, 3);
  EXPECT_TRUE(facts.loads_aux);
  EXPECT_EQ(facts.ibs_op_type, -1);
}

TEST_F(FactsOfATree, AnAmdServer) {
  file("proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu ibs\n");
  file("proc/sys/kernel/perf_event_paranoid", "2\n");
  file("sys/bus/event_source/devices/cpu/type", "4\n");
  file("sys/bus/event_source/devices/ibs_op/type", "11\n");
  file("sys/bus/event_source/devices/ibs_op/format/cnt_ctl", "config:19\n");
  const auto facts = read_sample_facts(root);
  EXPECT_EQ(facts.ibs_op_type, 11);
  EXPECT_TRUE(facts.ibs_counts_ops);
  EXPECT_EQ(choose_sample_events(facts).events.size(), 1u);
}

TEST_F(FactsOfATree, AGuestWithoutCounters) {
  file("proc/cpuinfo", "vendor_id\t: AuthenticAMD\nflags\t\t: fpu hypervisor\n");
  file("proc/sys/kernel/perf_event_paranoid", "2\n");
  file("sys/bus/event_source/devices/software/type", "1\n");
  const auto facts = read_sample_facts(root);
  EXPECT_TRUE(facts.virtual_machine);
  EXPECT_FALSE(facts.core_pmu);
}

TEST_F(FactsOfATree, AnEmptyTreeIsNoPerf) {
  EXPECT_THAT(choose_sample_events(read_sample_facts(root)).reason, HasSubstr("no perf events"));
}

}  // namespace
}  // namespace sentinel
