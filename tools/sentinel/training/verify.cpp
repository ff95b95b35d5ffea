// `sentinel verify`: runs a command twice without Sentinel and once under it, and compares all
// parameters, gradients and optimizer states after each step, bit by bit.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "runtime/limit/tally.h"
#include "sentinel/error.h"
#include "training/launch.h"
#include "training/outcome.h"
#include "training/stdout_aside.h"
#include "training/temporary_folder.h"
#include "training/testimony.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

enum Status { kSame = 0, kDifferent = 1, kNotComparable = 3 };

struct Verification {
  Launch launch;
  std::uint64_t steps = 12;
  bool json = false;
};

struct Verdict {
  Status status = kSame;
  std::string why;  // in a line
  std::uint64_t steps = 0;
  std::size_t tensors = 0;
  int command = 0;  // its status, where it failed
  std::optional<Difference> first = {};
};

class Runs {
 public:
  explicit Runs(const Verification& verification) : verification_(verification) {}

  Verdict compare() {
    const auto plain = run("plain", "without Sentinel", true);
    if (status_ != 0) return failed("without Sentinel");
    if (plain.empty())
      return {kNotComparable,
              "no step of a PyTorch optimizer was seen, and others cannot be compared"};
    const auto again = run("again", "without Sentinel, once more", true);
    if (status_ != 0) return failed("without Sentinel, the second time");
    if (const auto difference = first_difference(plain, again))
      return {
          .status = kNotComparable,
          .why = fmt::format("the program differs from itself without Sentinel, first at {}. Seed "
                             "what it draws, and try one thread",
                             in_words(*difference, several(plain))),
          .first = difference};
    const auto tally = Tally::make();
    const auto under = run("under", "under Sentinel", false);
    if (status_ != 0) return failed("under Sentinel");
    if (const auto difference = first_difference(plain, under))
      return {.status = kDifferent,
              .why = in_words(*difference, several(plain)),
              .steps = plain.steps(),
              .tensors = plain.tensors(),
              .first = difference};
    const auto missed = shortfall(tally.counts(), true, verification_.launch.command);
    if (!missed.empty())
      return {kNotComparable,
              fmt::format("{}. --steps {} are perhaps too few", missed, verification_.steps)};
    return {kSame, "", plain.steps(), plain.tensors()};
  }

 private:
  static bool several(const Testimony& testimony) { return testimony.processes.size() > 1; }

  Verdict failed(const std::string& when) const {
    return {.status = kNotComparable,
            .why = fmt::format("the program ends with status {} {}", status_, when),
            .command = status_};
  }

  Testimony run(const char* name, const char* how, bool plain) {
    say(fmt::format("{} steps {}", verification_.steps, how));
    const auto prefix = folder_.path() / name;
    setenv("SENTINEL_WITNESS", prefix.c_str(), 1);
    setenv("SENTINEL_WITNESS_STEPS", std::to_string(verification_.steps).c_str(), 1);
    plain ? setenv("SENTINEL_PLAIN", "1", 1) : unsetenv("SENTINEL_PLAIN");
    const StdoutAside aside;
    status_ = run_command(verification_.launch.command);
    return read_testimony(prefix);
  }

  const Verification& verification_;
  const TemporaryFolder folder_{"verify"};
  int status_ = 0;
};

int tell(const Verdict& verdict, bool json) {
  const auto* word = verdict.status == kSame        ? "same"
                     : verdict.status == kDifferent ? "different"
                                                    : "not comparable";
  // A signal or Sentinel itself has ended it; any other status would read as a verdict.
  const bool ended = verdict.command >= kOwnFailure;
  const int status = ended ? verdict.command : verdict.status;
  if (json) {
    nlohmann::ordered_json object{{"verdict", word}};
    if (!verdict.why.empty()) object["why"] = verdict.why;
    if (verdict.first)
      object["first"] = {{"step", verdict.first->step},
                         {"tensor", verdict.first->tensor},
                         {"process", verdict.first->process}};
    object["steps"] = verdict.steps;
    object["tensors"] = verdict.tensors;
    print(object.dump(2) + "\n");
    return status;
  }
  const auto detail =
      verdict.status == kSame
          ? fmt::format(
                "after each of {} steps all {} tensors have the bits that they have without "
                "Sentinel",
                verdict.steps, verdict.tensors)
      : verdict.status == kDifferent ? fmt::format("first at {}", verdict.why)
                                     : verdict.why;
  print(fmt::format("{}: {}\n", word, detail));
  return status;
}

}  // namespace

Action declare_verify(Form& form) {
  const auto verification = std::make_shared<Verification>();
  verification->launch.mode = Mode::run;
  form.rows = launch_rows(verification->launch);
  form.rows.push_back(
      {"--steps", "N", "of an optimizer, each time; 12 if absent", &verification->steps});
  form.rows.push_back({"--json", "", "the verdict as JSON", &verification->json});
  form.takes_command = true;
  return [verification, &form] {
    verification->launch.command = form.command;
    if (verification->steps == 0) throw UsageError("--steps 1 or more");
    prepare_run(verification->launch);
    return tell(Runs(*verification).compare(), verification->json);
  };
}

}  // namespace sentinel::cli
