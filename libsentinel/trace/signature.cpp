// Hashes a step's shape: op names, operands and sizes.
#include "trace/signature.h"

#include <string_view>

namespace sentinel {
namespace {

// FNV-1a over the shape of the step: op names, operands, sizes.
class Signature {
 public:
  void add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i, number >>= 8) byte(number & 0xff);
  }
  void add(std::string_view text) {
    for (const char c : text) byte(static_cast<unsigned char>(c));
    byte(0);
  }
  std::uint64_t value() const { return hash_; }

 private:
  void byte(std::uint64_t b) { hash_ = (hash_ ^ b) * 0x100000001b3; }
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

std::uint64_t step_signature(const Profile& profile) {
  Signature signature;
  for (const Tensor& tensor : profile.tensors) signature.add(tensor.bytes);
  for (const Op& op : profile.ops) {
    signature.add(op.name);
    for (const auto* operands : {&op.in, &op.out}) {
      signature.add(operands->size());
      for (const TensorId t : *operands) signature.add(t.value);
    }
  }
  return signature.value();
}

}  // namespace sentinel
