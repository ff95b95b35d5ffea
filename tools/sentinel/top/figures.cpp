// Names each figure as `run --summary` does, where both have it.
#include "top/figures.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "trace/json.h"

namespace sentinel::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const StatusFigures& figures) {
  return {{"ms", figures.us / 1e3},
          {"stall_ms", figures.stall_us / 1e3},
          {"promoted_bytes", figures.in_bytes},
          {"demoted_bytes", figures.out_bytes},
          {"demand_faults", figures.faults},
          {"replays", figures.replays},
          {"replayed_bytes", figures.replayed_bytes},
          {"replay_ms", figures.replay_us / 1e3},
          {"reading", {{"bytes", figures.read_bytes}, {"busy_ms", figures.read_us / 1e3}}},
          {"writing", {{"bytes", figures.written_bytes}, {"busy_ms", figures.written_us / 1e3}}}};
}

const char* word(Session::Life life) {
  constexpr std::array words{"begins", "runs", "over", "died", "other version"};
  return words[static_cast<std::size_t>(life)];
}

Json moves_of(const Status& status) {
  auto moves = Json::array();
  for (std::size_t i = 0; i < status.plan.tensors; ++i) {
    const auto& one = status.plan.moves[i];
    moves.push_back({{"name", std::string(one.name.view())},
                     {"bytes", one.bytes},
                     {"after_op", one.leaves},
                     {"before_op", one.returns},
                     {"times", one.times},
                     {"made_again", one.remade != 0}});
  }
  return moves;
}

Json json_of(const Session& session, double now_us) {
  const auto& status = session.status;
  Json json{{"pid", session.process}, {"state", word(session.life)}};
  if (session.life == Session::Life::other_version || session.life == Session::Life::begins)
    return json;
  constexpr std::array guides{"none", "plan", "pager"};
  json.update({{"command", std::string(status.program.command.view())},
               {"framework", std::string(status.program.framework.view())},
               {"policy", std::string(status.program.policy.view())},
               {"fast", std::string(status.program.fast.view())},
               {"slow", std::string(status.program.slow.view())},
               {"rank", status.program.rank},
               {"managed", status.state != StatusState::left},
               {"guide", guides[static_cast<std::size_t>(status.guide)]},
               {"plans", status.plan.kinds},
               {"steps", status.steps},
               {"phase", std::string(status.phase.view())},
               {"since_step_ms", std::max(0.0, now_us - status.step_ended_us) / 1e3},
               {"fast_limit_bytes", status.memory.limit_bytes},
               {"fast_bytes", status.memory.held_bytes},
               {"peak_fast_bytes", status.memory.peak_bytes},
               {"peak_unlimited_bytes", status.memory.unlimited_bytes},
               {"planned",
                {{"ms", status.plan.us / 1e3},
                 {"promoted_bytes", status.plan.in_bytes},
                 {"demoted_bytes", status.plan.out_bytes}}},
               {"last_step", json_of(status.last)},
               {"all_steps", json_of(status.total)},
               {"moved_tensors", status.plan.moved_tensors},
               {"moves", moves_of(status)}});
  return json;
}

}  // namespace

std::string json_of(const std::vector<Session>& sessions, double now_us) {
  Json json{{"sessions", Json::array()}};
  for (const auto& session : sessions) json["sessions"].push_back(json_of(session, now_us));
  return json_text(json, 2) + "\n";
}

}  // namespace sentinel::cli
