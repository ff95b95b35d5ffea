// Runs the helper threads' loops: departures, arrivals from the file, prefetches, late blocks.
#include "engine/gpu/pool/helpers.h"

namespace sentinel::gpu::pool {

Helpers::Helpers(Monitor& monitor, Places& places, Departures& departures, Unwanted& unwanted,
                 Arrivals& arrivals, Prefetches& prefetches)
    : monitor_(monitor),
      places_(places),
      departures_(departures),
      unwanted_(unwanted),
      arrivals_(arrivals),
      prefetches_(prefetches) {}

void Helpers::see_copies_out() {
  Guard guard = monitor_.hold();
  const auto late_may_leave = [this] {
    return !monitor_.program_ending() && unwanted_.may_leave() && !places_.store().wanted();
  };
  while (true) {
    while (!monitor_.over() && !departures_.any_copied() && !places_.arrivals_matter() &&
           !late_may_leave())
      monitor_.await_work(guard);
    if (monitor_.over()) return;
    if (late_may_leave()) {
      places_.have(unwanted_.count(), guard);
      unwanted_.leave_at_last();
    } else if (departures_.any_copied()) {
      departures_.copied_gone(guard);
      places_.collect_arrivals();
      prefetches_.fetch(guard);
    } else {
      monitor_.wait_for(places_.next_arrival(), guard);
      places_.collect_arrivals();
    }
    monitor_.wake_waiting();
  }
}

void Helpers::see_dead_out() {
  Guard guard = monitor_.hold();
  while (true) {
    while (!monitor_.over() && !departures_.any_dead()) monitor_.await_work(guard);
    if (monitor_.over()) return;
    departures_.dead_gone(guard);
    look_again(guard);
  }
}

void Helpers::see_queue_drain() {
  Guard guard = monitor_.hold();
  while (true) {
    while (!monitor_.over() && !arrivals_.queue_is_full()) monitor_.await_work(guard);
    if (monitor_.over()) return;
    arrivals_.drain_queue(guard);
    look_again(guard);
  }
}

// What is asked for may have room now, and so may whoever waits.
void Helpers::look_again(Guard& guard) {
  prefetches_.fetch(guard);
  monitor_.wake_waiting();
}

void Helpers::has_room() {
  unwanted_.note_room();
  monitor_.wake_waiting();
  monitor_.wake_helpers();
}

void Helpers::came_near(Index index, Guard& guard) {
  if (monitor_.over()) return;
  prefetches_.came_near(index);
  look_again(guard);
}

void Helpers::written(Index index, Guard& guard) {
  if (monitor_.over()) return;
  departures_.written(index, guard);
  look_again(guard);
}

void Helpers::filled(Index index, Guard& guard) {
  if (monitor_.over()) return;
  arrivals_.filled(index);
  look_again(guard);
}

}  // namespace sentinel::gpu::pool
