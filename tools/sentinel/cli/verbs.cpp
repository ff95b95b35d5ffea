// Holds the verbs, and starts the one that the first argument names.
#include "cli/verbs.h"

#include <algorithm>
#include <cstdlib>

#include "base/failure.h"
#include "cli/help.h"
#include "cli/terminal.h"
#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

constexpr Verb kVerbs[] = {
    {"doctor",
     "[--json]",
     "what this machine can do, and how to get the rest",
     {"sentinel doctor", "sentinel doctor --slow /mnt/ssd --json"},
     declare_doctor},
    {"record",
     "[-o FILE] [options] -- CMD",
     "profile one steady training step of CMD",
     {"sentinel record -o resnet.sentinel -- python3 train.py",
      "sentinel record --exact -- python3 train.py --batch 8"},
     declare_record,
     kOwnFailure},
    {"run",
     "[--fast N%|BYTES] [options] -- CMD",
     "profile, plan, go on training under the plan",
     {"sentinel run --fast 20% -- python3 train.py",
      "sentinel run --fast 2G --profile resnet.sentinel --summary run.json -- python3 train.py"},
     declare_run,
     kOwnFailure},
    {"verify",
     "[--fast N%|BYTES] [--steps N] [options] -- CMD",
     "train with and without Sentinel, and compare all weights bit by bit",
     {"sentinel verify --fast 25% -- python3 train.py",
      "sentinel verify --fast 2G --steps 20 --json -- torchrun --nproc_per_node 2 train.py"},
     declare_verify,
     kOwnFailure},
    {"fit",
     "--fast BYTES [options] -- CMD with {}",
     "the largest batch that trains within a budget",
     {"sentinel fit --fast 2G -- python3 train.py --steps 8 --batch {}",
      "sentinel fit --fast 8G --tiers fast=gpu0,slow=host -- python3 train.py --batch {}"},
     declare_fit},
    {"broker",
     "--fast BYTES [--socket PATH]",
     "one amount of fast memory for several trainings",
     {"sentinel broker --fast 8G", "sentinel run --broker --share 8G -- python3 train.py"},
     declare_broker},
    {"jobs",
     "[--socket PATH] [--json]",
     "who has what of a broker's memory, and who waits",
     {"sentinel jobs", "sentinel jobs --json"},
     declare_jobs},
    {"report",
     "FILE [VIEW] [options]",
     "what a profile says",
     {"sentinel report profile.sentinel heatmap",
      "sentinel report profile.sentinel --format html > profile.html"},
     declare_report},
    {"plan",
     "FILE -o PLAN [options]",
     "where each tensor lies and when it moves, within a budget",
     {"sentinel plan profile.sentinel --fast 20% -o plan.json",
      "sentinel plan profile.sentinel --fast 2G --machine optane -o plan.json"},
     declare_plan},
    {"explain",
     "PLAN [TENSOR]",
     "why a plan is as it is, or why a tensor lies and moves as it does",
     {"sentinel explain plan.json", "sentinel explain plan.json 17"},
     declare_explain},
    {"simulate",
     "FILE|TRACE --machine NAME|FILE [options]",
     "the step time to expect on a machine, before it is bought",
     {"sentinel simulate profile.sentinel --machine v100-16gb --fast 20%",
      "sentinel simulate trace.jsonl.gz --machine a100-g10 --policy all --json"},
     declare_simulate},
    {"compare",
     "FILE|TRACE --machine NAME|FILE [--fast N%|BYTES] [options]",
     "every policy in one table, the best first, with the bounds",
     {"sentinel compare profile.sentinel --machine optane --fast 20%",
      "sentinel compare trace.jsonl.gz --machine a100-g10 --html comparison.html"},
     declare_compare},
    {"import",
     "TRACE -o FILE [options]",
     "a trace taken elsewhere, as a profile",
     {"sentinel import trace.jsonl.gz -o model.sentinel",
      "sentinel import snapshot.pickle --format pytorch-snapshot -o model.sentinel"},
     declare_import},
    {"export",
     "FILE -o TRACE [options]",
     "a profile, for other programs",
     {"sentinel export profile.sentinel -o trace.jsonl.gz",
      "sentinel export profile.sentinel --format perfetto -o step.json"},
     declare_export},
    {"bench",
     "[--tiers | --live] [options]",
     "measure the tiers and mechanisms of this machine",
     {"sentinel bench --slow /mnt/ssd",
      "sentinel bench --live --models ResNet-110 --shares 20 --rounds 1"},
     declare_bench},
    {"clean",
     "[--dry-run] [DIR...]",
     "remove what a killed run left behind",
     {"sentinel clean --dry-run", "sentinel clean profiles/"},
     declare_clean},
    {"completion",
     "bash|zsh|fish",
     "a completion script for your shell",
     {"eval \"$(sentinel completion bash)\"",
      "sentinel completion fish > ~/.config/fish/completions/sentinel.fish"},
     declare_completion},
    {"help",
     "[VERB | --man | --markdown]",
     "this text, or what a verb accepts",
     {"sentinel help run", "sentinel help --man | man -l -"},
     declare_help},
};

bool asks_for_help(std::span<const std::string> arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  return std::any_of(arguments.begin(), end,
                     [](const auto& text) { return text == "--help" || text == "-h"; });
}

int start(const Verb& verb, std::span<const std::string> arguments) {
  Form form;
  const auto action = verb.declare(form);
  form.parse({arguments.begin(), arguments.end()});
  return action();
}

int run_verb(const Verb& verb, std::span<const std::string> arguments) {
  try {
    return asks_for_help(arguments) ? print(verb_help(verb)) : start(verb, arguments);
  } catch (const UsageError& error) {
    say(error.what());
    say(std::string("see: sentinel help ") + verb.name);
    return kWrongUsage;
  } catch (const std::exception& error) {
    say(in_words(error));
    return verb.failure;
  }
}

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

const Verb* find_verb(std::string_view name) {
  const auto* found = std::find_if(std::begin(kVerbs), std::end(kVerbs),
                                   [&](const Verb& verb) { return verb.name == name; });
  return found == std::end(kVerbs) ? nullptr : found;
}

int dispatch(std::span<const std::string> arguments) {
  const std::string first = arguments.empty() ? "" : arguments.front();
  try {
    if (first == "--version") return print("sentinel " SENTINEL_VERSION "\n");
    if (first == "--help" || first == "-h") return print(overview());
    if (arguments.empty()) return print(overview()) == kDone ? kWrongUsage : kFailed;
  } catch (const Error& error) {
    say(in_words(error));
    return EXIT_FAILURE;
  }
  if (const auto* verb = find_verb(first)) return run_verb(*verb, arguments.subspan(1));
  say("there is no \"" + first + "\"" + similar_verb(first));
  say("see: sentinel help");
  return kWrongUsage;
}

}  // namespace sentinel::cli
