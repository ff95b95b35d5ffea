#include "contract/engine.h"
#include "engine/gpu/gpu_engine.h"
#include "engine/numa/numa_engine.h"
#include "engine/ssd/ssd_engine.h"
#include "sentinel/error.h"
#include "unit/engine/gpu/fake_gpu.h"
#include "unit/engine/numa/fake_nodes.h"

namespace sentinel {
namespace {

struct Frames {
  static std::unique_ptr<Engine> make(std::uint64_t arena_bytes) {
    try {
      return std::make_unique<SsdEngine>(
          EngineOptions{.slow_directory = "/var/tmp", .arena_bytes = arena_bytes});
    } catch (const Error&) {
      return nullptr;
    }
  }
};

template <std::uint64_t granule>
struct FakeNodesOf {
  static std::unique_ptr<Engine> make(std::uint64_t arena_bytes) {
    return std::make_unique<NumaEngine>(
        NumaEngineOptions{.granule_bytes = granule, .arena_bytes = arena_bytes},
        std::make_unique<FakeNodes>(granule == kGranule));
  }
};

struct KernelNodes {
  static std::unique_ptr<Engine> make(std::uint64_t arena_bytes) {
    if (numa_nodes().size() < 2) return nullptr;
    return std::make_unique<NumaEngine>(
        NumaEngineOptions{.granule_bytes = 4096, .arena_bytes = arena_bytes}, make_node_calls());
  }
};

// The device outlives the engine, and so the test.
struct Pools {
  static std::unique_ptr<Engine> make(std::uint64_t arena_bytes) {
    auto& device = *new gpu::FakeGpu(1, 1000, kGranule);
    auto engine = std::make_unique<gpu::GpuEngine>(
        device, gpu::PoolOptions{.arena_bytes = arena_bytes, .granule_bytes = kGranule});
    engine->compute_on(device.make_stream());
    return engine;
  }
};

using Engines =
    ::testing::Types<Frames, FakeNodesOf<4096>, FakeNodesOf<kGranule>, KernelNodes, Pools>;

struct Names {
  template <class Made>
  static std::string GetName(int) {
    if (std::is_same_v<Made, Frames>) return "Frames";
    if (std::is_same_v<Made, Pools>) return "GpuPools";
    return std::is_same_v<Made, KernelNodes>         ? "Kernel4K"
           : std::is_same_v<Made, FakeNodesOf<4096>> ? "Fake4K"
                                                     : "Fake2M";
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(All, EngineContract, Engines, Names);

}  // namespace
}  // namespace sentinel
