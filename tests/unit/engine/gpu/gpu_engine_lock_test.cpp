// The engine's lock is nobody's while the driver is in a call that takes long.
#include <chrono>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "unit/engine/gpu/gpu_engine_fixture.h"

namespace sentinel::gpu {
namespace {

using ::testing::IsEmpty;

// A device that asks whether another thread could use the engine while a call that takes long is
// under way.
class Waited : public FakeGpu {
 public:
  using FakeGpu::FakeGpu;
  std::optional<Chunk> create(std::uint64_t bytes) override {
    ask("create");
    return FakeGpu::create(bytes);
  }
  void map_all(std::uintptr_t address, std::uint64_t bytes,
               const std::vector<Chunk>& chunks) override {
    ask("map");
    FakeGpu::map_all(address, bytes, chunks);
  }
  void unmap_all(std::uintptr_t address, std::uint64_t bytes, std::uint64_t count) override {
    ask("unmap");
    FakeGpu::unmap_all(address, bytes, count);
  }
  void destroy(Chunk chunk) override {
    ask("destroy");
    FakeGpu::destroy(chunk);
  }
  void* pin(std::uint64_t bytes) override {
    ask("pin");
    return FakeGpu::pin(bytes);
  }
  void ask(const std::string& call) {
    if (engine == nullptr) return;
    if (const std::lock_guard guard(asked_lock); stuck.contains(call)) return;
    auto other = std::async(std::launch::async, [this] { engine->counters(); });
    const bool free = other.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
    const std::lock_guard guard(asked_lock);
    (free ? went_on : stuck).insert(call);
    if (!free) lost.push_back(std::move(other));
  }

  GpuEngine* engine = nullptr;
  std::mutex asked_lock;
  std::set<std::string> went_on, stuck;
  std::vector<std::future<void>> lost;  // end when the call has
};

TEST(GpuEngineLock, IsNobodysInCallsThatTakeLong) {
  for (const bool file : {false, true}) {
    Waited gpu(5, 1000);
    HostOptions host;
    if (file) host = {.bytes = 64 * kUnit, .directory = ::testing::TempDir(), .allow_memory = true};
    GpuEngine engine(gpu, {.arena_bytes = 256 * kUnit, .granule_bytes = kUnit, .host = host});
    const Stream stream = gpu.make_stream();
    engine.compute_on(stream);
    gpu.engine = &engine;
    const auto at = [&](std::uint64_t block) { return engine.arena() + block * kUnit; };
    engine.set_budget(40 * kUnit);
    for (std::uint64_t block = 0; block < 80; block += 20) {
      engine.tick();
      ASSERT_TRUE(engine.on_allocate(at(block), 20 * kUnit));
    }
    engine.tick();
    engine.await(at(0), 20 * kUnit);
    engine.on_free(at(60), 20 * kUnit, true);
    engine.demote(at(0), 20 * kUnit);
    engine.promote(at(20), 20 * kUnit);
    engine.settle();
    gpu.finish();
    engine.tick();
    engine.set_budget(20 * kUnit);
    gpu.engine = nullptr;
    EXPECT_THAT(gpu.stuck, IsEmpty());
    EXPECT_THAT(gpu.went_on,
                ::testing::UnorderedElementsAre("create", "map", "unmap", "destroy", "pin"));
  }
}

}  // namespace
}  // namespace sentinel::gpu
