// Cuts large tensors of a profile into parts, and divides their counts.
#include "plan/step/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

constexpr std::uint64_t kPage = 4096;
// Beyond those of the whole profile: in all, and as operands and counts of ops.
constexpr double kMostParts = 1 << 20, kMostNamed = 1 << 24;

// Of one tensor, before rounding to pages.
double parts_of(const Tensor& tensor, std::uint64_t part_bytes) {
  if (tensor.foreign || tensor.bytes <= part_bytes) return 1;
  return std::ceil(static_cast<double>(tensor.bytes) /
                   static_cast<double>(std::max(part_bytes, kPage)));
}

struct Cut {
  std::uint32_t first = 0, parts = 1;  // new ids
  std::uint64_t part_bytes = 0;        // of all but the last
};

class Cutter {
 public:
  Cutter(const Profile& whole, std::uint64_t part_bytes) : whole_(whole) {
    std::uint32_t next = 0;
    for (const Tensor& t : whole.tensors) {
      Cut cut{.first = next, .part_bytes = t.bytes};
      if (!t.foreign && t.bytes > part_bytes) {
        const std::uint64_t wanted = (t.bytes + part_bytes - 1) / part_bytes;
        cut.part_bytes = ((t.bytes + wanted - 1) / wanted + kPage - 1) / kPage * kPage;
        cut.parts = static_cast<std::uint32_t>((t.bytes + cut.part_bytes - 1) / cut.part_bytes);
      }
      next += cut.parts;
      cuts_.push_back(cut);
    }
  }

  Profile cut() const {
    Profile result{.meta = whole_.meta, .layers = whole_.layers, .ops = whole_.ops};
    for (std::size_t i = 0; i < cuts_.size(); ++i)
      for (std::uint32_t p = 0; p < cuts_[i].parts; ++p) result.tensors.push_back(part(i, p));
    for (Op& op : result.ops) {
      op.in = named(op.in);
      op.out = named(op.out);
    }
    for (const AccessCount& a : whole_.accesses) divide(a, result.accesses);
    std::ranges::sort(result.accesses, {},
                      [](const AccessCount& a) { return std::pair(a.tensor, a.op); });
    for (const NaturalPlacement& n : whole_.natural)
      for (std::uint32_t p = 0; p < cuts_[n.tensor.index()].parts; ++p)
        result.natural.push_back({TensorId(cuts_[n.tensor.index()].first + p),
                                  n.address + p * cuts_[n.tensor.index()].part_bytes});
    return result;
  }

  std::vector<std::uint32_t> first_parts() const {
    std::vector<std::uint32_t> first;
    for (const Cut& cut : cuts_) first.push_back(cut.first);
    first.push_back(cuts_.empty() ? 0 : cuts_.back().first + cuts_.back().parts);
    return first;
  }

 private:
  Tensor part(std::size_t i, std::uint32_t p) const {
    Tensor t = whole_.tensors[i];
    const Cut& cut = cuts_[i];
    if (cut.parts == 1) return t;
    const std::uint64_t begin = p * cut.part_bytes;
    t.name = fmt::format("{}[{}/{}]", t.name, p, cut.parts);
    t.bytes = std::min(cut.part_bytes, t.bytes - begin);
    if (t.offset) *t.offset += begin;
    return t;
  }

  std::vector<TensorId> named(const std::vector<TensorId>& ids) const {
    std::vector<TensorId> all;
    for (TensorId id : ids)
      for (std::uint32_t p = 0; p < cuts_[id.index()].parts; ++p)
        all.push_back(TensorId(cuts_[id.index()].first + p));
    return all;
  }

  // What division leaves over goes to the first parts.
  void divide(const AccessCount& a, std::vector<AccessCount>& out) const {
    const Cut& cut = cuts_[a.tensor.index()];
    const auto share = [&](std::uint64_t count, std::uint32_t p) {
      return count / cut.parts + (p < count % cut.parts ? 1 : 0);
    };
    for (std::uint32_t p = 0; p < cut.parts; ++p)
      if (share(a.reads, p) + share(a.writes, p) > 0)
        out.push_back({TensorId(cut.first + p), a.op, share(a.reads, p), share(a.writes, p)});
  }

  const Profile& whole_;
  std::vector<Cut> cuts_;
};

}  // namespace

std::vector<std::uint32_t> first_parts(const Profile& profile, std::uint64_t part_bytes) {
  return Cutter(profile, part_bytes == 0 ? UINT64_MAX : part_bytes).first_parts();
}

std::optional<std::string> parts_refused(const Profile& profile, std::uint64_t part_bytes) {
  if (part_bytes == 0) return std::nullopt;
  double parts = 0, named = 0;
  for (const Tensor& t : profile.tensors) parts += parts_of(t, part_bytes) - 1;
  const auto name = [&](TensorId t) {
    named += parts_of(profile.tensors[t.index()], part_bytes) - 1;
  };
  for (const Op& op : profile.ops) {
    std::ranges::for_each(op.in, name);
    std::ranges::for_each(op.out, name);
  }
  for (const AccessCount& a : profile.accesses) name(a.tensor);
  if (parts <= kMostParts && named <= kMostNamed) return std::nullopt;
  return fmt::format("parts of {} bytes would cut the step's {} tensors into {:.3g}", part_bytes,
                     profile.tensors.size(), parts + static_cast<double>(profile.tensors.size()));
}

Profile in_parts(const Profile& profile, std::uint64_t part_bytes) {
  if (const auto refused = parts_refused(profile, part_bytes)) throw Error(*refused);
  return part_bytes == 0 ? profile : Cutter(profile, part_bytes).cut();
}

}  // namespace sentinel::plan
