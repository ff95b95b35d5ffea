// What holds for every profile that trace/ reads or writes, whatever it came from. Files are
// input from outside: nothing after this stage checks an index again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sentinel/profile.h"

namespace sentinel {

constexpr std::size_t max_records = std::size_t{1} << 26;           // of one kind, in one profile
constexpr std::size_t max_text = std::size_t{1} << 20;              // bytes of one description
constexpr std::size_t max_name = std::size_t{64} << 10;             // of an op, tensor or layer
constexpr std::uint64_t max_tensor_bytes = std::uint64_t{1} << 48;  // what processors address
constexpr std::uint64_t max_total_bytes = std::uint64_t{1} << 60;   // of all tensors together

// Each throws Error, saying which record is wrong and how.
void validate_text(std::string_view text, std::string_view what, std::size_t longest = max_text);
void validate(const ProfileMeta&);
void validate(const Op&, std::size_t k);      // what it says of itself, not what it refers to
void validate(const Tensor&, std::size_t t);  // likewise
void validate(const Profile&);                // everything

}  // namespace sentinel
