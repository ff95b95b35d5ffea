#pragma once

#include <string>

#include "verbs.h"

namespace sentinel::cli {

std::string overview();
std::string verb_help(const Verb&);
std::string similar_verb(std::string_view wrong);  // "; did you mean run?", or nothing

}  // namespace sentinel::cli
