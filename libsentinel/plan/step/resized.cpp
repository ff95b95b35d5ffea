// Scales page counts and op times by the tensors' new sizes.
#include "plan/step/resized.h"

#include <cmath>

namespace sentinel::plan {
namespace {

// What the op names, in bytes.
double named(const Op& op, const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const auto* list : {&op.in, &op.out})
    for (const auto id : *list) bytes += static_cast<double>(tensors[id.index()].bytes);
  return bytes;
}

double all_us(const Profile& profile) {
  double us = 0;
  for (const auto& op : profile.ops) us += op.us;
  return us;
}

std::uint64_t scaled(std::uint64_t count, double by) {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(count) * by));
}

}  // namespace

Profile resized(Profile profile, const std::vector<std::uint64_t>& bytes) {
  const auto before = profile.tensors;
  const double us = all_us(profile);
  for (std::size_t t = 0; t < bytes.size(); ++t) profile.tensors[t].bytes = bytes[t];
  for (auto& access : profile.accesses) {
    const auto t = access.tensor.index();
    const double by = static_cast<double>(bytes[t]) / static_cast<double>(before[t].bytes);
    access.reads = scaled(access.reads, by);
    access.writes = scaled(access.writes, by);
  }
  for (auto& op : profile.ops)
    if (const double was = named(op, before); was > 0) op.us *= named(op, profile.tensors) / was;
  if (us > 0) profile.meta.step_us *= all_us(profile) / us;
  profile.natural.clear();
  return profile;
}

}  // namespace sentinel::plan
