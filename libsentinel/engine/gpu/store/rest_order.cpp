// Keeps resting places in the order in which they go down.
#include "engine/gpu/store/rest_order.h"

#include <algorithm>
#include <utility>

namespace sentinel::gpu {

void RestOrder::enter(HostPlace* place) {
  place->resting = true;
  place->at = places_.insert(place->sinks ? places_.begin() : places_.end(), place);
  sinking_ += place->sinks;
}

void RestOrder::leave(HostPlace* place) {
  places_.erase(place->at);
  place->resting = false;
  sinking_ -= place->sinks;
}

void RestOrder::sink(HostPlace* place) {
  place->sinks = true;
  ++sinking_;
  places_.splice(places_.begin(), places_, place->at);
}

void RestOrder::spare(HostPlace* place) {
  sinking_ -= std::exchange(place->sinks, false);
  places_.splice(places_.end(), places_, place->at);
}

HostPlace* RestOrder::next(bool any, bool urgent) const {
  if (!any && sinking_ == 0) return nullptr;
  const auto next = std::ranges::find_if(places_, [=](const HostPlace* p) {
    return !p->kept && (any || p->sinks) && (urgent || !p->staged);
  });
  return next == places_.end() ? nullptr : *next;
}

}  // namespace sentinel::gpu
