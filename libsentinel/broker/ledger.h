// The ledger: which job may hold how much of a total. Pure and deterministic: it has no clock, no
// file and no socket; whoever drives it says what happened, at what time, and sends its orders.
//
//   held     what the job last said that it holds at most
//   ordered  what the last order allows it
//   leased   what it may hold beyond that for a while
//   counted  the greater of the first two, and what is leased
//
// Ranks of a training are admitted together: none of them is before all fit, and once one is, what
// those that are still to come need at least is kept for them.
//
// Invariant: the sum of what is counted is at most the total.
// (It is more only where a job comes back that says it holds more than was known; nobody grows
// then.) A job has one order at a time. Nobody waits for growth, nor for a lease, so the ledger is
// never stuck: see docs/design/broker.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "broker/division.h"

namespace sentinel {

using JobId = std::uint64_t;  // in the order of their arrival; never used twice

class Ledger {
 public:
  static constexpr std::uint64_t kMost = 1ull << 50;  // bytes of a job: sums do not overflow

  struct Settings {
    std::uint64_t total = 0;
    std::uint64_t grain = 2u << 20;      // in which memory is held
    std::uint64_t ignored = 8u << 20;    // a change of less is not ordered, nor one of a 32nd
    std::uint64_t patience_ms = 10'000;  // for an answer
    std::uint64_t pause_ms = 30'000;     // before one that could not shrink is asked again
  };

  struct Order {
    JobId job = 0;
    std::uint64_t number = 0, bytes = 0;
    std::uint64_t most = 0;  // what it may plan for; beyond `bytes` by leases
  };
  struct Lease {
    JobId job = 0;
    std::uint64_t number = 0, bytes = 0;  // all that it may hold beyond its base
  };

  enum class State : std::uint8_t {
    waiting,  // not admitted
    settled,  // has answered its last order
    ordered,  // has one to answer
    silent,   // has not answered for too long
    absent,   // lives, and cannot be reached
  };

  struct Job {
    Need need;
    State state = State::waiting;
    std::uint64_t held = 0, ordered = 0, number = 0;  // number: of its last order
    std::uint64_t most = 0;                           // the same order's
    std::uint64_t since_ms = 0;                       // when it was sent
    std::uint64_t keeps_until_ms = 0;                 // it could not shrink
    bool freezes = false;  // absent since the restart: nothing is granted meanwhile

    struct Asked {
      std::uint64_t number = 0, bytes = 0;
      std::uint64_t turn = 0;  // who asked first gets first
    } asked;                   // beyond its base
    std::uint64_t leased = 0;

    std::uint64_t base() const { return held > ordered ? held : ordered; }
    std::uint64_t counted() const { return base() + leased; }
    bool admitted() const { return state != State::waiting; }
  };

  explicit Ledger(Settings);

  // A job asks to be admitted. Whether it ever can be is the caller's question: could_fit().
  JobId joins(const Need&);
  bool could_fit(const Need&) const;
  // From the ledger's file: it may hold so much, and has not come back yet.
  JobId remember(const Need&, std::uint64_t counted);
  // It has come back, and holds at most so much.
  void returns(JobId, const Need&, std::uint64_t holds);
  void goes_away(JobId);  // it lives, and cannot be reached
  void ends(JobId);       // it holds nothing any more: has died, or said so
  void needs(JobId, const Need&);
  // Beyond its base it now holds so much at most, and wants so much; 0: nothing any more. That is
  // withdrawn by its next answer, with which all that was leased is back.
  void asks(JobId, std::uint64_t number, std::uint64_t wants, std::uint64_t holds);
  // The answer to that order; of one that is not its last it says nothing.
  void answers(JobId, std::uint64_t number, std::uint64_t holds, std::uint64_t now_ms);
  // In the place of division.h, as long as the same jobs are admitted or waiting; or nothing.
  void suggest(std::map<JobId, std::uint64_t> shares);

  // What is to be sent now; it is counted already.
  std::vector<Order> orders(std::uint64_t now_ms);
  // The same of leases: of what nobody's base is meant to be. After orders().
  std::vector<Lease> lends();
  // When orders() is to be called again though nothing happens.
  std::optional<std::uint64_t> wakes_at() const;

  const std::map<JobId, Job>& jobs() const { return jobs_; }
  std::uint64_t total() const { return settings_.total; }
  std::uint64_t counted() const;
  std::uint64_t leased() const;
  bool frozen() const;
  // Why it is not admitted, for a person.
  std::string why_waiting(JobId) const;

 private:
  using Targets = std::map<JobId, Share>;

  Need bounded(Need) const;
  Need as_rank(Need) const;
  void arrives(const Need&);
  std::uint32_t ranks_of(std::uint64_t training) const;  // that are here
  bool is_in(std::uint64_t training) const;
  // Bytes, at least: of ranks that have not asked yet, and with those that wait.
  std::uint64_t to_come(std::uint64_t training) const;
  std::uint64_t to_admit(std::uint64_t training) const;
  std::uint64_t kept_beside(JobId) const;
  static bool is_asked(const Job&);  // once mark_silent() was called
  bool matters(std::uint64_t now, std::uint64_t then) const;
  std::uint64_t free() const;
  std::uint64_t promised() const;
  void mark_silent(std::uint64_t now_ms);
  const Targets& targets();
  Targets divided();
  std::vector<JobId> queue() const;
  void shrink(const Targets&, std::uint64_t now_ms, std::vector<Order>&);
  void grow(const Targets&, std::uint64_t now_ms, std::vector<Order>&);
  void tell_most(const Targets&, std::uint64_t now_ms, std::vector<Order>&);
  Order order(JobId, Job&, Share, std::uint64_t now_ms);

  Settings settings_;
  std::map<JobId, Job> jobs_;
  // Of each training with a rank here: how many ranks have not asked yet.
  std::map<std::uint64_t, std::uint32_t> trainings_;
  std::map<JobId, std::uint64_t> suggested_;
  std::optional<Targets> targets_;  // as long as nothing changes that they depend on
  std::uint64_t to_come_ = 0;       // kept beside these
  JobId next_ = 1;
  std::uint64_t turns_ = 0;
};

}  // namespace sentinel
