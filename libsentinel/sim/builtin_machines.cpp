// The machine descriptions of tools/machines/, word for word (a test compares them), so that the
// program needs no files beside it.
#include "sim/machine_file.h"

namespace sentinel::sim {
namespace {

constexpr std::string_view kA100G10 = R"toml(name = "a100-g10"
source = "configuration of the artifact of G10 (MICRO 2023, github.com/platformxlab/G10): capacities, links, fault handling and batches as its simulator uses them; HBM bandwidth from NVIDIA's A100 40GB data sheet"
fault_us = 45
fault_batch = "200KiB"  # 50 pages
granule = "4KiB"

[[tier]]
name = "hbm"
capacity = "40GiB"
read_bw = "1555GB/s"
write_bw = "1555GB/s"
byte_addressable = true

[[tier]]
name = "host"
capacity = "128GiB"

[[tier]]
name = "ssd"
read_bw = "3.2GB/s"
write_bw = "3.2GB/s"
latency_us = 20

[[link]]  # every transfer to or from the GPU
name = "gpu"
bw = "15.754GB/s"
tiers = ["hbm"]

[[link]]
name = "host"
bw = "15.754GB/s"
tiers = ["host"]
)toml";

constexpr std::string_view kA100G10Paper = R"toml(name = "a100-g10-paper"
source = "Table 2 of G10 (MICRO 2023); PCIe 3.0 x16 is 8 GT/s on 16 lanes with 128b/130b coding (PCI Express Base Specification 3.0); batches from the paper's artifact; HBM bandwidth from NVIDIA's A100 40GB data sheet"
fault_us = 45
fault_batch = "200KiB"
granule = "4KiB"

[[tier]]
name = "hbm"
capacity = "40GiB"
read_bw = "1555GB/s"
write_bw = "1555GB/s"
byte_addressable = true

[[tier]]
name = "host"
capacity = "128GiB"

[[tier]]
name = "ssd"
capacity = 3200000000000
read_bw = "3.2GB/s"
write_bw = "3.0GB/s"
latency_us = 20  # reading; writing 16

[[link]]
name = "gpu"
bw = "15.754GB/s"
tiers = ["hbm"]

[[link]]
name = "host"
bw = "15.754GB/s"
tiers = ["host"]
)toml";

constexpr std::string_view kV10016gb = R"toml(name = "v100-16gb"
source = "GPU-based platform of Table II of Sentinel (HPCA 2021); memory bandwidth from NVIDIA's V100 data sheet; PCIe 3.0 x16 from the PCI Express Base Specification 3.0; fault cost and batch from G10 (MICRO 2023), Table 2 and artifact"
fault_us = 45
fault_batch = "200KiB"
granule = "4KiB"

[[tier]]
name = "hbm"
capacity = "15.75GiB"
read_bw = "900GB/s"
write_bw = "900GB/s"
byte_addressable = true

[[tier]]
name = "host"
capacity = "128GiB"

[[link]]
name = "pcie"
bw = "15.754GB/s"
tiers = ["hbm", "host"]
)toml";

constexpr std::string_view kOptane = R"toml(name = "optane"
source = "Optane-based platform of Table II of Sentinel (HPCA 2021); latencies of random loads (PMM 305 ns, DRAM 101 ns) and bandwidth of six interleaved PMMs (39.4 GB/s reading, 13.9 GB/s writing) from Izraelevitz et al., Basic Performance Measurements of the Intel Optane DC Persistent Memory Module (arXiv:1903.05714); DRAM bandwidth is six channels of DDR4-2933, the processor's specification"
fault_us = 0  # nothing faults: slow memory is used in place
granule = "4KiB"

[[tier]]
name = "dram"
capacity = "96GiB"
read_bw = "140.8GB/s"
write_bw = "140.8GB/s"
latency_us = 0.101
byte_addressable = true

[[tier]]
name = "pmm"
capacity = "756GiB"
read_bw = "39.4GB/s"
write_bw = "13.9GB/s"
latency_us = 0.305
byte_addressable = true
)toml";

constexpr std::string_view kRtx2080ti = R"toml(name = "rtx2080ti"
source = "section 4.1 of HOME (RTX 2080Ti, 11 GB, 128 GB of host memory, PCIe 3.0 x16), the GPU also of TENSILE; memory bandwidth from NVIDIA's data sheet; PCIe 3.0 x16 from the PCI Express Base Specification 3.0; fault cost and batch from G10 (MICRO 2023), Table 2 and artifact"
fault_us = 45
fault_batch = "200KiB"
granule = "4KiB"

[[tier]]
name = "gddr6"
capacity = "11GiB"
read_bw = "616GB/s"
write_bw = "616GB/s"
byte_addressable = true

[[tier]]
name = "host"
capacity = "128GiB"

[[link]]
name = "pcie"
bw = "15.754GB/s"
tiers = ["gddr6", "host"]
)toml";

constexpr BuiltinMachine kMachines[] = {
    {"a100-g10", kA100G10}, {"a100-g10-paper", kA100G10Paper}, {"v100-16gb", kV10016gb},
    {"optane", kOptane},    {"rtx2080ti", kRtx2080ti},
};

}  // namespace

std::span<const BuiltinMachine> builtin_machines() { return kMachines; }

}  // namespace sentinel::sim
