// A training of very many small parameters, as table models have: each has its gradient, two
// moments, and the temporaries of its own Adam update. One more tensor is as large as all others.
#pragma once

#include <vector>

#include "unit/plan/profiles.h"

namespace sentinel::bench {

struct TinyParameter {
  TensorId value, mean, square, gradient;
};

// Some nine tensors a parameter. Backward is one layer, and the optimizer another.
inline Profile tiny_training(std::uint64_t parameters) {
  constexpr std::uint64_t kLarge = 24_MiB;
  constexpr std::size_t kTemporaries = 5;  // of an update, an op each
  testing::ProfileBuilder b;
  const std::size_t backward = 2, update = backward + parameters + 1;
  const std::size_t ops = update + (parameters + 1) * kTemporaries;
  std::vector<TinyParameter> all;
  for (std::uint64_t p = 0; p <= parameters; ++p) {
    const std::uint64_t bytes = p == parameters ? kLarge : 4 * (3 + p % 5);
    TinyParameter one{b.persistent(bytes), b.persistent(bytes), b.persistent(bytes), {}};
    one.gradient = b.temporary(bytes, backward + p, ops - 1);
    b.profile.tensors[one.gradient.index()].free_op.reset();
    all.push_back(one);
  }
  std::vector<TensorId> values;
  for (const auto& one : all) values.push_back(one.value);
  const TensorId joined = b.temporary(parameters * 20, 0, update - 1);
  b.op(0, 2000, values, {joined});
  b.op(0, 500, {joined});
  for (const auto& one : all) b.op(1, 5, {one.value, joined}, {one.gradient});
  for (const auto& one : all)
    for (std::size_t i = 0; i < kTemporaries; ++i) {
      const std::size_t k = b.profile.ops.size();
      const TensorId scratch = b.temporary(b.profile.tensors[one.value.index()].bytes, k,
                                           i + 1 < kTemporaries ? k + 1 : k);
      b.op(2, 5, {one.gradient, one.mean, one.square},
           {scratch, i + 1 < kTemporaries ? one.mean : one.value});
    }
  return b.profile;
}

}  // namespace sentinel::bench
