// A small training that is computed on plain memory, on a session's, or on a device whose kernels
// run late: wherever its tensors lie, the weights come out the same.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/session.h"
#include "sentinel/adaptor.h"
#include "unit/engine/gpu/fake_gpu.h"
#include "unit/engine/gpu/second_thread.h"

namespace sentinel::rig {

constexpr std::size_t kLayers = 14;
constexpr std::size_t kBytes = 6u << 20, kWords = kBytes / sizeof(std::uint64_t);
constexpr std::size_t kEach = 512;  // words: one of each page is computed with

using Tensor = std::uint64_t*;

// Where tensors come from, what is told of ops, and where kernels run.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual Tensor allocate(std::size_t words) = 0;
  virtual void release(Tensor) = 0;
  virtual void op(const std::string& name, Phase, std::vector<Tensor> inputs,
                  const std::function<void()>& run) = 0;
  virtual void launch(const std::vector<Tensor>& uses, const std::function<void()>& kernel) = 0;
  virtual void step_end() {}
};

class PlainMemory final : public Memory {
 public:
  Tensor allocate(std::size_t words) override {
    auto* tensor = new std::uint64_t[words];
    living_[tensor].reset(tensor);
    return tensor;
  }
  void release(Tensor tensor) override { living_.erase(tensor); }
  void op(const std::string&, Phase, std::vector<Tensor>,
          const std::function<void()>& run) override {
    run();
  }
  void launch(const std::vector<Tensor>&, const std::function<void()>& kernel) override {
    kernel();
  }

 private:
  std::map<Tensor, std::unique_ptr<std::uint64_t[]>> living_;
};

class ManagedMemory final : public Memory {
 public:
  // `device`: whose kernels run when it pleases; none: they run at once.
  explicit ManagedMemory(Session& session, gpu::FakeGpu* device = nullptr)
      : session_(session), device_(device), stream_(device ? device->make_stream() : nullptr) {}
  Tensor allocate(std::size_t words) override {
    session_.compute_on(stream_);
    auto* tensor = static_cast<Tensor>(session_.allocate(words * sizeof(std::uint64_t)));
    sizes_[tensor] = words * sizeof(std::uint64_t);
    return tensor;
  }
  void release(Tensor tensor) override { session_.release(tensor); }
  void op(const std::string& name, Phase phase, std::vector<Tensor> inputs,
          const std::function<void()>& run) override {
    const char* kept = names_.insert(name).first->c_str();
    session_.op_start(kept, phase, kept);
    for (Tensor tensor : inputs) session_.op_tensor(tensor, sizes_[tensor], SENTINEL_READ);
    session_.compute_on(stream_);
    session_.op_run();
    run();
    session_.op_end();
  }
  void launch(const std::vector<Tensor>& uses, const std::function<void()>& kernel) override {
    if (device_ == nullptr) return kernel();
    std::vector<std::pair<std::uintptr_t, std::uint64_t>> ranges;
    for (Tensor tensor : uses)
      ranges.emplace_back(reinterpret_cast<std::uintptr_t>(tensor), sizes_[tensor]);
    device_->launch(stream_, std::move(ranges), kernel);
  }
  void step_end() override { session_.step_end(); }
  // As of a program that makes and destroys streams of its own.
  void change_stream() {
    session_.forget_stream(stream_);
    device_->finish();
    device_->destroy_stream(stream_);
    stream_ = device_->make_stream();
  }

 private:
  Session& session_;
  gpu::FakeGpu* device_;
  gpu::Stream stream_;
  std::map<Tensor, std::size_t> sizes_;
  std::set<std::string> names_;
};

// A chain of layers: forward keeps what backward needs; weights are updated in the end.
class Training {
 public:
  explicit Training(Memory& memory) : memory_(memory) {
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const Tensor weights = memory_.allocate(kWords);
      weights_.push_back(weights);
      compute("begin", Phase::forward, {weights}, [=] {
        for (std::size_t i = 0; i < kWords; i += kEach) weights[i] = layer * 0x9e3779b9 + i;
      });
    }
  }

  // `share`: of the words, as a smaller batch has fewer. `two_threads`: backward has its own,
  // one for all steps.
  // `together`: one op updates all weights.
  void step(std::uint64_t number, double share = 1, bool two_threads = false,
            bool together = false) {
    const auto words = static_cast<std::size_t>(kWords * share);
    std::vector<Tensor> kept;
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      kept.push_back(forward(layer, layer > 0 ? kept.back() : nullptr, words, number));
    const auto backward = [&] {
      for (std::size_t layer = kLayers; layer-- > 1;) {
        const Tensor weights = weights_[layer], made = kept[layer], from = kept[layer - 1];
        compute("backward " + std::to_string(layer), Phase::backward, {weights, made, from}, [=] {
          for (std::size_t i = 0; i < words; i += kEach) {
            weights[i] += made[i] ^ from[i];
            from[i] += weights[i];
          }
        });
        memory_.release(made);
      }
      memory_.release(kept[0]);
    };
    if (two_threads && second_ == nullptr) second_ = std::make_unique<SecondThread>();
    two_threads ? second_->run(backward) : backward();
    if (together)
      compute("update", Phase::optimizer, weights_, [all = weights_, number] {
        for (Tensor weights : all) weights[0] += number;
      });
    memory_.step_end();
  }

  // Where kernels run late: once they have run.
  std::shared_ptr<std::uint64_t> sum() {
    auto sum = std::make_shared<std::uint64_t>(0);
    for (Tensor weights : weights_)
      compute("sum", Phase::forward, {weights}, [=] {
        for (std::size_t i = 0; i < kWords; i += kEach) *sum = *sum * 31 + weights[i];
      });
    return sum;
  }

 private:
  Tensor forward(std::size_t layer, Tensor from, std::size_t words, std::uint64_t number) {
    const Tensor weights = weights_[layer];
    std::vector<Tensor> uses{weights};
    if (from != nullptr) uses.push_back(from);
    Tensor made = nullptr;
    memory_.op("forward " + std::to_string(layer), Phase::forward, uses, [&] {
      made = memory_.allocate(words);
      uses.push_back(made);
      memory_.launch(uses, [=] {
        for (std::size_t i = 0; i < words; i += kEach)
          made[i] = weights[i] * 31 + (from != nullptr ? from[i] : number + i);
      });
    });
    return made;
  }

  void compute(const std::string& name, Phase phase, const std::vector<Tensor>& uses,
               const std::function<void()>& kernel) {
    memory_.op(name, phase, uses, [&] { memory_.launch(uses, kernel); });
  }

  Memory& memory_;
  std::vector<Tensor> weights_;
  std::unique_ptr<SecondThread> second_;
};

}  // namespace sentinel::rig
