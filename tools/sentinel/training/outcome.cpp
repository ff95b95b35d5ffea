// Names the reason for which a run went without its limit, from the tally of its trainings.
#include "training/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace sentinel::cli {
namespace {

// "-I" of `python3 -I train.py`; empty where Python loads Sentinel. Options with a word of their
// own
// (-c, -m) end Python's.
std::string isolating_option(const std::vector<std::string>& command) {
  const auto python = std::ranges::find_if(command, [](const auto& word) {
    return std::filesystem::path(word).filename().string().starts_with("python");
  });
  if (python == command.end()) return "";
  for (auto word = python + 1; word != command.end(); ++word) {
    if (word->size() < 2 || word->front() != '-' || word->starts_with("--")) return "";
    const auto at = word->find_first_of("IESXWcm");
    if (at == word->npos) continue;
    const char letter = (*word)[at];
    if (std::string_view("IES").find(letter) != std::string_view::npos)
      return fmt::format("-{}", letter);
    if (letter == 'c' || letter == 'm') return "";
    if (at + 1 == word->size()) ++word;  // -X and -W take the next word
    if (word == command.end()) return "";
  }
  return "";
}

std::string no_training(const std::vector<std::string>& command) {
  if (const auto option = isolating_option(command); !option.empty())
    return fmt::format("Python does not load Sentinel with {}; leave {} out", option, option);
  return "no process of the command imported torch or keras with Sentinel's folder on Python's "
         "path; `sentinel doctor` tells about PyTorch and TensorFlow";
}

}  // namespace

std::string shortfall(const Tally::Counts& counts, bool limited,
                      const std::vector<std::string>& command) {
  const auto so = [&](const char* otherwise) {
    if (!limited) return "";
    return counts.limited > 0 ? otherwise : ", so no limit held";
  };
  constexpr const char* kByDemand = ", so the limit held by demand alone, without a plan";
  if (counts.trainings == 0)
    return fmt::format("no training was seen{}: {}", so(""), no_training(command));
  if (counts.with_steps == 0 && counts.gave_up > 0) return "";  // it has said why
  if (counts.with_steps == 0)
    return fmt::format(
        "no training step was seen{}: a step ends where an optimizer steps; `import sentinel` and "
        "sentinel.step() mark the end of any other",
        so(kByDemand));
  if (counts.planned >= counts.with_steps) return "";
  const auto without = counts.with_steps - counts.planned;
  return fmt::format("{} ended before the first planned step{}: that is the fifth at the earliest",
                     counts.with_steps == 1
                         ? std::string("the training")
                         : fmt::format("{} of {} trainings", without, counts.with_steps),
                     so(kByDemand));
}

}  // namespace sentinel::cli
