// The largest batch that trains within a budget: the command is run with one batch after the other,
// twice as large each time until one fails, then halfway between the best and that.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string_view>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "runtime/limit/tally.h"
#include "sentinel/error.h"
#include "training/launch.h"
#include "training/stdout_aside.h"

namespace sentinel::cli {
namespace {

constexpr std::string_view kPlace = "{}";  // of the batch, in the command
constexpr int kNotExecutable = 126, kNotFound = 127, kSignalled = 128;

struct BatchSearch {
  std::uint64_t from = 1, most = 1u << 20, within = 16;
  Launch launch;
};

// Thrown when somebody has stopped the search.
struct Stopped {
  int status;
};

std::vector<std::string> with_batch(std::vector<std::string> command, std::uint64_t batch) {
  for (auto& word : command)
    for (auto at = word.find(kPlace); at != word.npos; at = word.find(kPlace, at))
      word.replace(at, kPlace.size(), std::to_string(batch));
  return command;
}

bool trains(const BatchSearch& search, std::uint64_t batch) {
  say(fmt::format("batch {} ...", batch));
  const StdoutAside aside;
  const int status = run_command(with_batch(search.launch.command, batch));
  if (status == kNotFound || status == kNotExecutable)
    throw Error(fmt::format("the command could not be started (status {})", status));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    if (status == kSignalled + signal) throw Stopped{status};
  say(fmt::format("batch {} {}", batch,
                  status == 0 ? "trains" : fmt::format("fails with status {}", status)));
  return status == 0;
}

std::uint64_t largest(const BatchSearch& search) {
  std::uint64_t good = search.from, bad = 0;
  if (!trains(search, good))
    throw Error(fmt::format("batch {} does not train; its messages are above", good));
  while (bad == 0 && good < search.most) {
    const auto next = std::min(2 * good, search.most);
    (trains(search, next) ? good : bad) = next;
  }
  while (bad > good + std::max<std::uint64_t>(1, good / search.within)) {
    const auto middle = good + (bad - good) / 2;
    (trains(search, middle) ? good : bad) = middle;
  }
  return good;
}

void check(const BatchSearch& search) {
  const auto has_place = [](const auto& word) { return word.find(kPlace) != word.npos; };
  if (std::ranges::none_of(search.launch.command, has_place))
    throw UsageError("write {} in the command where the batch goes, as in --batch {}");
  if (!search.launch.given("SENTINEL_FAST")) throw UsageError("--fast says within which budget");
  if (search.launch.values.at("SENTINEL_FAST").ends_with('%'))
    throw UsageError("a share of the peak grows with the batch: give --fast in bytes");
  for (const char* one : {"SENTINEL_PROFILE", "SENTINEL_PLAN"})
    if (search.launch.given(one)) throw UsageError("a stored profile or plan is of one batch");
  for (const char* one : {"SENTINEL_OUTPUT", "SENTINEL_SUMMARY"})
    if (search.launch.given(one))
      throw UsageError("each batch would overwrite -o and --summary: run the answer with them");
  if (search.from == 0 || search.from > search.most || search.within == 0)
    throw UsageError("--from 1 or more, --most not below it, --within 1 or more");
}

}  // namespace

Action declare_fit(Form& form) {
  const auto search = std::make_shared<BatchSearch>();
  search->launch.mode = Mode::run;
  form.rows = launch_rows(search->launch);
  form.rows.push_back({"--from", "N", "batch to begin with", &search->from});
  form.rows.push_back({"--most", "N", "batch to end with", &search->most});
  form.rows.push_back(
      {"--within", "N", "the answer is less than an Nth too small", &search->within});
  form.takes_command = true;
  return [search, &form] {
    search->launch.command = form.command;
    check(*search);
    prepare_run(search->launch);
    const auto tally = Tally::make();  // by which trainings know that we are killed
    try {
      return print(fmt::format("{}\n", largest(*search)));
    } catch (const Stopped& stopped) {
      return stopped.status;
    }
  };
}

}  // namespace sentinel::cli
