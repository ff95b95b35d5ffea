// Profiles for tests: built by hand op by op, or at random from a seed in the shape of training
// (forward, backward over what forward saved, optimizer over the weights).
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "base/units.h"
#include "sentinel/analysis.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::testing {

class ProfileBuilder {
 public:
  TensorId persistent(std::uint64_t bytes) {
    profile.tensors.push_back({.name = "w" + std::to_string(profile.tensors.size()),
                               .bytes = bytes,
                               .kind = TensorKind::global,
                               .offset = arena_});
    arena_ += round_up(bytes, 64);
    return last_tensor();
  }
  TensorId temporary(std::uint64_t bytes, std::size_t alloc, std::size_t free) {
    profile.tensors.push_back({.name = "t" + std::to_string(profile.tensors.size()),
                               .bytes = bytes,
                               .alloc_op = OpId(alloc),
                               .free_op = OpId(free)});
    return last_tensor();
  }
  void op(std::uint32_t layer, double us, std::vector<TensorId> in,
          std::vector<TensorId> out = {}) {
    while (profile.layers.size() <= layer)
      profile.layers.push_back({"layer" + std::to_string(profile.layers.size())});
    for (auto* list : {&in, &out}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    profile.ops.push_back({.name = "op" + std::to_string(profile.ops.size()),
                           .layer = LayerId(layer),
                           .us = us,
                           .in = std::move(in),
                           .out = std::move(out)});
  }
  Profile profile{.meta = {.source = "synthetic", .model = "test", .signature = 42}};

 private:
  TensorId last_tensor() const { return TensorId(profile.tensors.size() - 1); }
  std::uint64_t arena_ = 0;
};

inline Machine two_tiers(std::uint64_t granule, double gb_per_s = 1) {
  const double bw = gb_per_s * 1e9;
  return {.name = "test",
          .tiers = {{.name = "fast", .read_bw = 100e9, .write_bw = 100e9, .byte_addressable = true},
                    {.name = "slow", .read_bw = bw, .write_bw = bw}},
          .fault_us = 10,
          .fault_batch_bytes = granule,
          .granule_bytes = granule};
}

struct RandomShape {
  std::uint32_t layers = 12;
  std::uint32_t ops_per_layer = 3;
  std::uint64_t largest = 6_MiB;
};

// Forward layer l saves an activation and reads weight l; backward layer l reads both and leaves a
// gradient; the optimizer updates every weight with its moment. Short-lived scratch everywhere.
inline Profile random_training(std::uint64_t seed, RandomShape shape = {}) {
  std::mt19937_64 random(seed);
  const auto size = [&] {
    return 1 + static_cast<std::uint64_t>(
                   std::pow(static_cast<double>(shape.largest),
                            0.5 + 0.5 * static_cast<double>(random() % 1000) / 1000.0));
  };
  ProfileBuilder b;
  const std::uint32_t n = shape.ops_per_layer, layers = shape.layers;
  const std::size_t back = std::size_t{layers} * n, optim = 2 * back;
  const auto backward_op = [&](std::uint32_t l) { return back + std::size_t{layers - 1 - l} * n; };
  std::vector<TensorId> weight, moment, saved, grad;
  for (std::uint32_t l = 0; l < layers; ++l) {
    weight.push_back(b.persistent(size()));
    moment.push_back(b.persistent(size()));
  }
  for (std::uint32_t l = 0; l < layers; ++l) {
    saved.push_back(b.temporary(size(), std::size_t{l} * n, backward_op(l) + random() % n));
    grad.push_back(b.temporary(size(), backward_op(l), optim + l));
    // Every third gradient outlives the step and is freed in the next one.
    if (l % 3 == 0) {
      b.profile.tensors[grad.back().index()].free_op.reset();
      const TensorId older = b.temporary(b.profile.tensors[grad.back().index()].bytes, 0, l);
      b.profile.tensors[older.index()].alloc_op.reset();
    }
  }
  const auto scratch = [&](std::size_t k) { return b.temporary(size() / 2 + 1, k, k); };
  const auto us = [&] { return 50.0 + static_cast<double>(random() % 1000); };
  for (std::uint32_t l = 0; l < layers; ++l)
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::size_t k = b.profile.ops.size();
      b.op(l, us(), i == 0 && l > 0 ? std::vector{weight[l], saved[l - 1]} : std::vector{weight[l]},
           {saved[l], scratch(k)});
    }
  for (std::uint32_t l = layers; l-- > 0;)
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::size_t k = b.profile.ops.size();
      std::vector<TensorId> in{weight[l]};
      if (OpId(k) <= *b.profile.tensors[saved[l].index()].free_op) in.push_back(saved[l]);
      b.op(2 * layers - 1 - l, us(), in, {grad[l], scratch(k)});
    }
  for (std::uint32_t l = 0; l < layers; ++l)
    b.op(2 * layers + l, us(), {weight[l], moment[l], grad[l]}, {weight[l], moment[l]});
  return b.profile;
}

// No shape at all: tensors of any size and lifetime, used anywhere, named or not, persistent ones
// sharing granules, some carried over the step's end, some foreign, some empty.
inline Profile random_graph(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ProfileBuilder b;
  const std::size_t ops = 10 + random() % 60;
  std::vector<std::vector<TensorId>> in(ops), out(ops);
  const auto use = [&](TensorId t, std::size_t first, std::size_t last) {
    for (std::uint64_t n = random() % 5; n > 0; --n) {
      const std::size_t k = first + random() % (last - first + 1);
      (random() % 2 ? in : out)[k].push_back(t);
    }
  };
  const auto size = [&] { return random() % (std::uint64_t{1} << (random() % 24)); };
  for (std::uint64_t n = 3 + random() % 30; n > 0; --n) use(b.persistent(size()), 0, ops - 1);
  for (std::uint64_t n = 5 + random() % 80; n > 0; --n) {
    const std::size_t first = random() % ops, last = first + random() % (ops - first);
    const TensorId t = b.temporary(size(), first, last);
    use(t, first, last);
    Tensor& tensor = b.profile.tensors[t.index()];
    const std::uint64_t kind = random() % 16;
    if (kind == 0) tensor.foreign = true;
    if (kind == 1) tensor.alloc_op.reset();
    if (kind == 2 || kind == 3) tensor.free_op.reset();
    if (kind == 3 && first > 1) {
      const std::uint64_t bytes = tensor.bytes;
      const TensorId older = b.temporary(bytes, 0, random() % first);
      b.profile.tensors[older.index()].alloc_op.reset();
      use(older, 0, b.profile.tensors[older.index()].free_op->index());
    }
  }
  std::uint32_t layer = 0;
  for (std::size_t k = 0; k < ops; ++k) {
    layer += random() % 3 == 0 ? random() % 3 : 0;
    b.op(layer, static_cast<double>(random() % 2000), in[k], out[k]);
  }
  return b.profile;
}

}  // namespace sentinel::testing
