#include "sim/machine_file.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/units.h"
#include "plan/step/rates.h"
#include "sentinel/error.h"
#include "unit/places.h"

namespace sentinel::sim {
namespace {

using ::testing::HasSubstr;

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string failure(const std::string& toml) {
  try {
    parse_machine(toml, "m.toml");
    return "no error";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(MachineFile, BuiltinMachinesAreTheFilesInTools) {
  for (const BuiltinMachine& m : builtin_machines()) {
    const auto path =
        std::string(test::kProject) + "/tools/machines/" + std::string(m.name) + ".toml";
    EXPECT_EQ(m.toml, file_text(path)) << path << " and what is embedded differ";
    const Machine machine = find_machine(std::string(m.name));
    EXPECT_EQ(machine.name, m.name);
    EXPECT_FALSE(machine.source.empty()) << m.name << " does not say where its figures are from";
  }
}

// Any number anywhere is refused with its line, or is one of which all times come out as numbers.
TEST(MachineFile, ExtremeNumbersAreRefusedOrFinite) {
  const std::string good = R"(name = "m"
fault_us = 10
fault_batch = 4096
granule = 4096
cpu_s_per_gb = 0.5
[[tier]]
name = "fast"
capacity = 1048576
read_bw = 1e9
write_bw = 1e9
latency_us = 1
[[tier]]
name = "slow"
capacity = 1099511627776
read_bw = 1e9
write_bw = 1e9
latency_us = 5
[[link]]
name = "way"
bw = 1e9
tiers = ["slow"]
half_duplex = true
)";
  const auto machine = parse_machine(good, "m.toml");
  int read = 0, refused = 0;
  for (std::size_t at = good.find(" = "); at != good.npos; at = good.find(" = ", at + 1))
    for (const char* value :
         {"-1", "-0.0", "nan", "inf", "-inf", "1e308", "1e-308", "1e17", "9223372036854775807",
          "0x7fffffffffffffff", "1099511627776", "0", "1", "\"\"", "\"1e30GB/s\"", "\"8388607T\"",
          "[]", "true", "1979-05-27"}) {
      auto text = good;
      text.replace(at + 3, text.find('\n', at) - at - 3, value);
      try {
        const Machine m = parse_machine(text, "m.toml");
        ++read;
        for (const double number :
             {m.fault_us, m.cpu_s_per_gb, m.tiers[1].latency_us, plan::moving_us(m, 0x1p60),
              0x1p60 / plan::rate(m, 0, 1), 0x1p60 / plan::rate(m, 1, 0),
              plan::turns_us(m, 1, 0x1p60, 0x1p60)})
          EXPECT_TRUE(std::isfinite(number) && number >= 0) << text;
        EXPECT_LE(m.granule_bytes, std::uint64_t{1} << 40);
        for (const TierSpec& t : m.tiers) EXPECT_LE(t.capacity, std::uint64_t{1} << 60);
      } catch (const Error& e) {
        ++refused;
        EXPECT_THAT(e.what(), HasSubstr("m.toml:")) << text;
      }
    }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 150);
}

TEST(MachineFile, SaysWhereItIsNoTomlInItsOwnWords) {
  EXPECT_EQ(failure("name = \n"), "m.toml:1: this is not TOML from column 8 on");
  EXPECT_THAT(failure("name = \"\x1b[2J\"\n"), ::testing::Not(HasSubstr("\x1b")));
}

TEST(MachineFile, EveryFileInToolsIsBuiltIn) {
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(test::kProject) + "/tools/machines"))
    files += entry.path().extension() == ".toml";
  EXPECT_EQ(files, builtin_machines().size());
}

TEST(MachineFile, G10CountsBothLinks) {
  const Machine m = find_machine("a100-g10");
  EXPECT_DOUBLE_EQ(plan::rate(m, 0, 1), 15754);  // GPU and host link
  EXPECT_DOUBLE_EQ(plan::rate(m, 2, 0), 3200);   // the SSD limits
  EXPECT_EQ(plan::links_between(m, 0, 2).size(), 1u);
  EXPECT_EQ(plan::links_between(m, 0, 1).size(), 2u);
}

TEST(MachineFile, WritesWhatItReads) {
  for (const BuiltinMachine& b : builtin_machines()) {
    const Machine m = find_machine(std::string(b.name));
    EXPECT_EQ(machine_to_toml(parse_machine(machine_to_toml(m), "again")), machine_to_toml(m));
  }
}

TEST(MachineFile, KeepsWhichLinksAreHalfDuplex) {
  Machine m = find_machine("a100-g10");
  m.links[0].half_duplex = true;
  const Machine again = parse_machine(machine_to_toml(m), "again");
  EXPECT_TRUE(again.links[0].half_duplex);
  EXPECT_FALSE(again.links[1].half_duplex);
  EXPECT_DOUBLE_EQ(plan::rate(again, 0, 2), std::min(plan::rate(m, 0, 2), m.links[0].bw / 2e6));
}

TEST(MachineFile, KeepsWhetherCopiesStay) {
  Machine m = find_machine("a100-g10");
  EXPECT_FALSE(m.exclusive);
  m.exclusive = true;
  EXPECT_TRUE(parse_machine(machine_to_toml(m), "again").exclusive);
}

TEST(MachineFile, KeepsWhatMovingCostsTheProcessors) {
  Machine m = find_machine("a100-g10");
  EXPECT_EQ(m.cpu_s_per_gb, 0);
  m.cpu_s_per_gb = 0.05;
  EXPECT_EQ(parse_machine(machine_to_toml(m), "again").cpu_s_per_gb, 0.05);
}

TEST(MachineFile, KeepsWhatItComputes) {
  const Machine m = find_machine("a100-g10");
  EXPECT_EQ(m.compute.flops, 19.5e12);
  const auto again = parse_machine(machine_to_toml(m), "again").compute;
  EXPECT_EQ(again.flops, m.compute.flops);
  EXPECT_EQ(again.conv_flops, m.compute.conv_flops);
  EXPECT_EQ(again.half_flops, m.compute.half_flops);
  EXPECT_EQ(again.op_us, m.compute.op_us);
  for (const BuiltinMachine& each : builtin_machines())
    EXPECT_GT(find_machine(std::string(each.name)).compute.flops, 0) << each.name;
}

TEST(MachineFile, LocalIsReadFromTheCacheAndItsAbsenceExplained) {
  const auto dir = std::filesystem::temp_directory_path() / "sentinel-machine-file-test";
  std::filesystem::remove_all(dir);
  ::setenv("XDG_CACHE_HOME", dir.c_str(), 1);
  try {
    find_machine("local");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("sentinel bench --tiers"));
  }
  Machine m = find_machine("v100-16gb");
  m.name = "local";
  write_local_machine("local", m);
  EXPECT_EQ(find_machine("local").name, "local");
  ::unsetenv("XDG_CACHE_HOME");
  std::filesystem::remove_all(dir);
}

TEST(MachineFile, ErrorsNameLineAndCause) {
  EXPECT_THAT(failure("name = \"x\"\nspeed = 3\n"), HasSubstr("m.toml:2: unknown key \"speed\""));
  EXPECT_THAT(failure("name = \n"), HasSubstr("m.toml:1"));
  EXPECT_THAT(failure(""), HasSubstr("\"name\" is missing"));
  EXPECT_THAT(failure("name = \"x\""), HasSubstr("two tiers"));
  const std::string tiers = "name = \"x\"\n[[tier]]\nname = \"a\"\n[[tier]]\nname = \"b\"\n";
  EXPECT_EQ(failure(tiers), "no error");
  EXPECT_THAT(failure(tiers + "read_bw = \"3 apples\"\n"), HasSubstr("m.toml:6: \"read_bw\""));
  EXPECT_THAT(failure(tiers + "read_bw = -1\n"), HasSubstr("not negative"));
  EXPECT_THAT(failure(tiers + "[[link]]\nname = \"l\"\ntiers = [\"a\", \"c\"]\n"),
              HasSubstr("tier \"c\""));
  EXPECT_THAT(failure("tier = 3\nname = \"x\""), HasSubstr("[[tier]]"));
  EXPECT_THROW(find_machine("cray-1"), Error);
  EXPECT_THROW(find_machine("/no/such/file.toml"), Error);
}

TEST(ParseBandwidth, DecimalUnits) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("3.2GB/s"), 3.2e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("500MB/s"), 5e8);
  for (const char* bad : {"", "GB/s", "3", "3 GB", "-1GB/s", "nanGB/s"})
    EXPECT_THROW(parse_bandwidth(bad), Error) << bad;
}

}  // namespace
}  // namespace sentinel::sim
