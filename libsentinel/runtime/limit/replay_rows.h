// What plans make again, for the summary and for people: by name, as planned and as measured.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "options/options.h"
#include "runtime/limit/summary.h"
#include "runtime/step/bucket.h"
#include "sentinel/machine.h"
#include "sentinel/plan.h"

namespace sentinel {

// Why nothing can be made again here, whatever the plan; empty: it can. `can`: the adaptor and the
// engine.
std::string no_replays(const SessionOptions&, bool can);

// The rows of one kind of step, whose plan has this number.
std::vector<ReplayRow> replay_rows(const Bucket&, std::size_t plan, const Machine&);

// Of a step of the first plan that has rows and was not given up, else of one that was: the sum,
// then the dearest ones. Empty: no rows.
std::vector<std::string> in_words(const std::vector<ReplayRow>&);
// Of the trials: which ops give other bytes when they are run again. Empty: none.
std::string in_words(const ReplayTrials&);

}  // namespace sentinel
