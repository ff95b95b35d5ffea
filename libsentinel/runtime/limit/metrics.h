// What a session tells those who watch many machines: a file in Prometheus's text format, as
// node_exporter's textfile collector reads it (https://prometheus.io/docs/instrumenting/
// exposition_formats). It is replaced as a whole, so nobody reads a part. No server runs in the
// training. Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "runtime/limit/summary.h"
#include "runtime/limit/voice.h"

namespace sentinel {

class Metrics {
 public:
  // Nothing is written where `path` is empty. All outlive it but the texts.
  Metrics(std::string path, const Voice&);

  // A step has ended, with that much fast memory in use now. Writes at most once a second. What
  // cannot be written is said once, and tried no more.
  void step_ended(const std::string& framework, const Summary&, std::uint64_t fast_bytes);
  // The last state, whenever the file was written before.
  void end();

 private:
  struct Totals {
    std::uint64_t steps = 0, in = 0, out = 0, faults = 0, ssd_written = 0, replays = 0;
    double stall_s = 0;
  };
  std::string text(const std::string& framework, const Summary&, std::uint64_t fast_bytes) const;
  void write();

  std::string path_, text_;  // text_: not yet written; empty: nothing new
  const Voice& voice_;
  Totals totals_;
  double written_us_ = 0;  // when the file was last written
};

}  // namespace sentinel
