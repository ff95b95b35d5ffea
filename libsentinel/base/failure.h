#pragma once

#include <exception>
#include <string>

namespace sentinel {

// Why something failed, in our words: an Error's own text; of anything else what it means, for a
// library's text helps nobody who did not call the library.
std::string in_words(const std::exception&);

}  // namespace sentinel
