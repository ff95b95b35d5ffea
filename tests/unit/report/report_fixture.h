// A small training step written by hand: two layers forward, two backward, one of the optimizer;
// every kind of tensor, lifetime and access band, and pages that tensors share.
#pragma once

#include <sstream>
#include <string>

#include "report/report.h"
#include "sentinel/profile.h"

namespace sentinel::testing {

inline OpId op(std::size_t i) { return OpId(i); }
inline TensorId id(std::size_t i) { return TensorId(i); }

inline ProfileMeta small_meta() {
  ProfileMeta meta;
  meta.source = "userfaultfd";
  meta.exact = meta.read_write = meta.complete = true;
  meta.model = "tiny-mlp";
  meta.command = "python3 train.py --epochs 1";
  meta.framework = "torch 2.5.1";
  meta.batch = 32;
  meta.window_pages = 8192;
  meta.step_us = 12'500;
  meta.profiled_step_us = 100'000;
  meta.machine = {"box", "Example CPU", "6.1.0", 8, 64ull << 30, 32ull << 20};
  meta.created = "2024-05-01T12:00:00Z";
  return meta;
}

inline Profile small_profile() {
  Profile p;
  p.meta = small_meta();
  p.layers = {{"fc1", Phase::forward},
              {"fc2", Phase::forward},
              {"fc2", Phase::backward},
              {"fc1", Phase::backward},
              {"SGD", Phase::optimizer}};
  const auto ids = [](std::initializer_list<std::size_t> list) {
    std::vector<TensorId> all;
    for (const auto i : list) all.emplace_back(i);
    return all;
  };
  p.ops = {{"linear", LayerId(0), Phase::forward, 1000, ids({0, 2}), ids({3}), "fc1"},
           {"relu", LayerId(0), Phase::forward, 100, ids({3, 7}), ids({3}), "fc1"},
           {"linear", LayerId(1), Phase::forward, 900, ids({1, 3}), ids({4}), "fc2"},
           {"linear_backward", LayerId(2), Phase::backward, 2000, ids({1, 3, 4}), ids({5}), ""},
           {"linear_backward", LayerId(3), Phase::backward, 2100, ids({0, 3}), ids({6}), ""},
           {"sgd", LayerId(4), Phase::optimizer, 400, ids({5, 6}), ids({0, 1}), "SGD"}};
  const auto step = [](std::string name, std::uint64_t bytes, std::size_t alloc, std::size_t free,
                       TensorKind kind = TensorKind::intermediate) {
    return Tensor{.name = std::move(name),
                  .bytes = bytes,
                  .kind = kind,
                  .alloc_op = op(alloc),
                  .free_op = op(free)};
  };
  p.tensors = {{.name = "fc1.weight", .bytes = 1 << 20, .kind = TensorKind::global},
               {.name = "fc2.weight", .bytes = 256 << 10, .kind = TensorKind::global},
               {.name = "input", .bytes = 128 << 10, .foreign = true},
               step("fc1/linear:0", 512 << 10, 0, 4),
               step("fc2/linear:0", 2000, 2, 3),
               step("fc2/grad:0", 256 << 10, 3, 5),
               step("fc1/grad:0", 1 << 20, 4, 5),
               step("fc1/scratch:0", 600, 1, 1, TensorKind::workspace),
               step("fc1/mask:0", 500, 1, 1)};
  p.accesses = {{id(0), op(0), 512, 0},  {id(0), op(4), 512, 0}, {id(0), op(5), 256, 256},
                {id(1), op(2), 64, 0},   {id(1), op(3), 64, 0},  {id(1), op(5), 64, 64},
                {id(2), op(0), 32, 0},   {id(3), op(0), 0, 128}, {id(3), op(1), 128, 128},
                {id(3), op(2), 1280, 0}, {id(4), op(2), 0, 3},   {id(4), op(3), 3, 0},
                {id(5), op(3), 0, 64},   {id(5), op(5), 64, 0},  {id(6), op(4), 0, 256},
                {id(6), op(5), 256, 0},  {id(7), op(1), 90, 60}};
  // The hot scratch tensor has two cold ones on its page, of which only the mask lives beside it.
  p.natural = {{id(4), 0x10000}, {id(7), 0x10800}, {id(8), 0x10c00}};
  return p;
}

inline std::string rendered(const Profile& profile, std::string_view view, std::string_view format,
                            ReportOptions options = {}, RenderStyle style = {}) {
  std::ostringstream out;
  make_reporter(view, format, std::move(options))->render(profile, out, style);
  return out.str();
}

// `layers` layers of one op and `tensors` tensors, of varied sizes and lifetimes.
inline Profile large_profile(std::size_t tensors, std::size_t layers) {
  Profile p;
  p.meta = small_meta();
  for (std::size_t l = 0; l < layers; ++l) {
    const auto phase = l * 2 < layers ? Phase::forward : Phase::backward;
    p.layers.push_back({"layer" + std::to_string(l), phase});
    p.ops.push_back({.name = "op", .layer = LayerId(l), .phase = phase, .us = 10});
  }
  for (std::size_t t = 0; t < tensors; ++t) {
    const auto first = t * 7919 % layers, last = std::min(layers - 1, first + t % 5);
    p.tensors.push_back({.name = "tensor" + std::to_string(t),
                         .bytes = 64 + t * 131 % 100'000,
                         .alloc_op = op(first),
                         .free_op = op(last)});
    p.accesses.push_back({id(t), op(first), t % 300 + 1, 0});
    p.natural.push_back({id(t), t * 640});
  }
  return p;
}

}  // namespace sentinel::testing
