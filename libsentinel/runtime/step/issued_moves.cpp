// Turns moves into the engine's calls, and keeps those that are put off.
#include "runtime/step/issued_moves.h"

#include <system_error>
#include <utility>

#include "runtime/step/trial.h"

namespace sentinel {

IssuedMoves::IssuedMoves(Engine& engine, Space& space, std::size_t most_borders)
    : engine_(engine), space_(space), borders_(engine, most_borders) {}

// A tensor that is not where the plan thinks, because this step differs, is left alone. What the
// program may still write is not copied ahead.
void IssuedMoves::issue(Bucket& bucket, std::span<const Move> moves, OpId at,
                        std::vector<GivenUp>* discards) {
  bucket_ = &bucket;
  at_ = at;
  for (const auto& move : moves) {
    if (move.direction == Direction::copy) continue;
    if (move.delay_us > 0 && timer_ != nullptr) {
      put_off_.add(move, now_us() + move.delay_us);
      continue;
    }
    auto* tensor = bucket.live(move.tensor, space_);
    const bool wanted = move.direction == Direction::promote;
    if (tensor == nullptr || tensor->wanted == wanted || tensor->held) continue;
    const bool planned = tensor->in_its_place() && tensor->plan == bucket.space_plan();
    if (move.direction == Direction::discard && discards != nullptr) {
      const auto ends = planned ? bucket.borders().own_ends(move.tensor) : Engine::Ends{};
      discards->push_back({&bucket, at, move.tensor, *tensor, ends});
      continue;
    }
    tensor->wanted = wanted;
    if (!wanted && planned && engine_.in_place() == nullptr)
      borders_.keep(*tensor, bucket.borders(), at.value, move.tier > 1);
    if (wanted)
      engine_.promote(tensor->address, tensor->bytes);
    else if (move.tier > 1)
      engine_.sink(tensor->address, tensor->bytes);
    else if (move.direction == Direction::release)
      engine_.release(tensor->address, tensor->bytes);
    else
      engine_.demote(tensor->address, tensor->bytes);
  }
  if (put_off_.empty()) return;
  try {
    timer_->at(put_off_.next_us());
  } catch (const std::system_error&) {  // no thread can be had
    timer_ = nullptr;
    issue_now(put_off_.all());
  }
}

void IssuedMoves::issue_now(std::vector<Move> moves) {
  for (auto& move : moves) move.delay_us = 0;
  if (!moves.empty()) issue(*bucket_, moves, at_);
}

void IssuedMoves::issue_due() {
  if (!put_off_.empty()) issue_now(put_off_.due(now_us()));
}

}  // namespace sentinel
