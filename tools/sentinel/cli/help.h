#pragma once

#include <string>

#include "cli/verbs.h"

namespace sentinel::cli {

inline constexpr const char* kPurpose =
    "Trains models that do not fit into fast memory, and shows where their memory goes.";

std::string overview();
std::string verb_help(const Verb&);
std::string similar_verb(std::string_view wrong);  // "; did you mean run?", or nothing

}  // namespace sentinel::cli
