// An engine of pools on a device that does its work late, and trainings by chance on both.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "engine/gpu/gpu_engine.h"
#include "unit/engine/gpu/fake_gpu.h"

namespace sentinel::gpu {

constexpr std::uint64_t kUnit = FakeGpu::kUnit;
constexpr std::uint64_t kWords = kUnit / 8;

class GpuEngineFixture : public ::testing::Test {
 protected:
  void make(unsigned seed, std::uint64_t device_chunks = 1000, const HostOptions& host = {},
            std::uint64_t spare_chunks = 0) {
    end();
    gpu = std::make_unique<FakeGpu>(seed, device_chunks);
    engine = std::make_unique<GpuEngine>(*gpu, PoolOptions{.arena_bytes = 256 * kUnit,
                                                           .granule_bytes = kUnit,
                                                           .spare_bytes = spare_chunks * kUnit,
                                                           .host = host});
    gpu->has_started();
    stream = gpu->make_stream();
    engine->compute_on(stream);
  }
  void end() {
    if (!engine) return;
    gpu->hold(false);  // where a test ended early: the engine's end waits for its helpers
    engine.reset();
    EXPECT_THAT(gpu->complaints(), ::testing::IsEmpty());
  }
  void TearDown() override { end(); }

  std::uintptr_t at(std::uint64_t block) const { return engine->arena() + block * kUnit; }
  std::uint64_t* words(std::uint64_t block) const {
    return reinterpret_cast<std::uint64_t*>(at(block));
  }
  // Kernels that fill a tensor, and that look at it.
  void fill(std::uint64_t block, std::uint64_t blocks, std::uint64_t value, Stream on) {
    gpu->launch(on, {{at(block), blocks * kUnit}},
                [=, this] { std::fill_n(words(block), blocks * kWords, value); });
  }
  void expect(std::uint64_t block, std::uint64_t blocks, std::uint64_t value, Stream on) {
    gpu->launch(on, {{at(block), blocks * kUnit}}, [=, this] {
      for (std::uint64_t i = 0; i < blocks * kWords; ++i) wrong += words(block)[i] != value;
    });
  }

  std::unique_ptr<FakeGpu> gpu;
  std::unique_ptr<GpuEngine> engine;
  Stream stream = nullptr;
  std::uint64_t wrong = 0;
};

// Tensors of one to six halves of a granule, so that neighbours share one, on two streams; what
// uses a tensor waits for what used it before, and for nothing else. They are born, also in the
// place of those that died, read, changed, sent away, asked for ahead or not, and die; under a
// budget, with the device's work done in every order that is allowed. The second stream may come
// late, and streams end while they have work to do. Some granules are a pool's, now these, now
// those.
class RandomTraining {
 public:
  RandomTraining(unsigned seed, FakeGpu& gpu, GpuEngine& engine, std::size_t tensors = 12)
      : random_(seed), gpu_(gpu), engine_(engine), tensors_(tensors), alone_(seed % 2 * 30) {
    for (Stream& stream : streams_) stream = gpu.make_stream();
    engine_.hold_pool(pool_, 9 * kUnit);
  }
  ~RandomTraining() {
    gpu_.finish();
    for (Event event : events_) gpu_.destroy_event(event);
  }

  std::uint64_t wrong() const { return wrong_; }

  void op() {
    engine_.tick();
    alone_ -= alone_ > 0;
    Stream& any = streams_[alone_ > 0 ? 0 : random_() % 2];
    if (random_() % 16 == 0) {
      std::swap(pool_, other_pool_);
      engine_.hold_pool(pool_, 9 * kUnit);
      engine_.let_pool_go(other_pool_, 9 * kUnit);
    }
    if (random_() % 32 == 0) {
      engine_.forget(any);
      any = gpu_.make_stream();
    }
    stream_ = any;
    engine_.compute_on(stream_);
    if (live_.size() < tensors_ && random_() % 3 != 0)
      begin();
    else if (!live_.empty())
      change(live_[random_() % live_.size()]);
    if (live_.empty()) return;
    const auto t = live_.begin() + static_cast<std::ptrdiff_t>(random_() % live_.size());
    switch (random_() % 4) {
      case 0:
        return want(*t, false);
      case 1:
        return want(*t, true);
      case 2:
        engine_.on_free(t->address, t->bytes, t->wanted);
        free_.push_back(*t);
        live_.erase(t);
        return;
      default:
        return;
    }
  }

 private:
  struct Tensor {
    std::uintptr_t address;
    std::uint64_t bytes, value;
    Event used;
    bool wanted = true;
  };

  void begin() {
    Tensor t{engine_.arena() + next_, (1 + random_() % 6) * kUnit / 2, 0, nullptr};
    if (!free_.empty() && random_() % 2 == 0) {
      t.address = free_.back().address;
      t.bytes = free_.back().bytes;
      free_.pop_back();
    } else {
      next_ += t.bytes;
    }
    t.value = random_();
    events_.push_back(t.used = gpu_.make_event());
    ASSERT_TRUE(engine_.on_allocate(t.address, t.bytes));
    gpu_.launch(stream_, {{t.address, t.bytes}}, [t] {
      std::fill_n(reinterpret_cast<std::uint64_t*>(t.address), t.bytes / 8, t.value);
    });
    gpu_.record(t.used, stream_);
    live_.push_back(t);
  }
  void want(Tensor& t, bool wanted) {
    if (wanted && !t.wanted) engine_.promote(t.address, t.bytes);
    if (!wanted && t.wanted) {
      if (random_() % 3 == 0)
        engine_.sink(t.address, t.bytes);
      else
        engine_.demote(t.address, t.bytes);
    }
    t.wanted = wanted;
  }
  void change(Tensor& t) {
    want(t, true);
    engine_.await(t.address, t.bytes);
    gpu_.wait(stream_, t.used);
    gpu_.launch(stream_, {{t.address, t.bytes}}, [t, this] {
      auto* words = reinterpret_cast<std::uint64_t*>(t.address);
      for (std::uint64_t i = 0; i < t.bytes / 8; ++i) wrong_ += words[i]++ != t.value;
    });
    gpu_.record(t.used, stream_);
    ++t.value;
  }

  std::mt19937 random_;
  FakeGpu& gpu_;
  GpuEngine& engine_;
  const std::size_t tensors_;  // alive at once, at most
  unsigned alone_;             // ops until the second stream comes
  Stream streams_[2] = {}, stream_ = nullptr;
  std::vector<Tensor> live_, free_;
  std::vector<Event> events_;
  std::uint64_t next_ = 0, wrong_ = 0;
  std::uintptr_t pool_ = engine_.arena() + 3 * kUnit, other_pool_ = engine_.arena() + 8 * kUnit;
};

}  // namespace sentinel::gpu
