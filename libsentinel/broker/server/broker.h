// The broker: moves messages between jobs and the ledger, tells deaths, keeps the ledger's file.
// One thread, in libuv's loop; planning goes beside it. See docs/design/broker.md.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "broker/ledger.h"
#include "broker/server/connection.h"
#include "broker/server/loop.h"
#include "broker/server/member.h"
#include "broker/server/studies.h"

namespace sentinel {

struct BrokerOptions {
  std::uint64_t total = 0;
  std::string path;                     // of the socket
  Descriptor listening = {};            // a socket that listens there already: systemd's
  std::uint32_t sample_ms = 1000;       // between two looks at what is held
  std::optional<std::uint32_t> idle_s;  // ends when there was no job for so long
  std::string metrics;                  // a file for node_exporter; empty: none
  std::function<void(const std::string&)> say;
};

class Broker final : private StudiesListener {
 public:
  explicit Broker(BrokerOptions);  // throws Error
  ~Broker() override;

  void run();  // until SIGTERM, SIGINT, or nobody is there any more. Throws Error

 private:
  void begin();
  void listen();
  void watch_arrivals();
  void accept_all();
  void came(Connection&, const Message&, Descriptor file);
  void hello(Connection&, const Message&, const Descriptor& file);
  void admit(Connection&, const Message&, const Descriptor& page);
  void needs(Member&, const Message&, Descriptor file);
  void send_listing(Connection&);
  void disconnected(Connection&);
  void remember(pid_t process, std::uint64_t begun, const std::string& name, JobId id,
                Descriptor life);
  void forget(JobId);
  Member* of(const Connection&);
  Member* of(pid_t process, std::uint64_t begun);
  void leaves(Connection&, const Message&);
  void settle();  // sends what is due
  void lend();
  void share_drives();
  static void tell_drive(Member&, double part);
  bool store() noexcept;  // false: it cannot be, and the broker ends
  void tell_waiting();
  std::size_t jobs() const override { return members_.size(); }
  Need need_of(JobId) const override;
  void learned(JobId, std::vector<CurvePoint>) override;
  void suggested(std::map<JobId, std::uint64_t> shares) override;
  void unreadable(JobId, const std::string& why) override;
  void unknown(const std::string& why) override;
  void studied() override { settle(); }
  void sample();  // what is held
  void look();    // at the socket's file, and whether anybody is here
  void write_metrics() noexcept;
  std::string metrics() const;
  std::string listing() const;

  BrokerOptions options_;
  Loop loop_;
  Ledger ledger_;
  Descriptor lock_;
  std::map<JobId, Member> members_;
  Studies studies_;
  std::list<Connection> connections_;
  std::unique_ptr<Readiness> arrivals_;
  std::vector<std::unique_ptr<Signal>> signals_;
  std::unique_ptr<Timer> wake_, sample_, check_;
  struct Seen {
    std::uint64_t held = 0, most = 0;  // of all jobs together
    std::uint64_t leases = 0;          // that were given
    std::uint64_t idle_since_ms = 0;
    std::set<uid_t> strangers;     // users that were refused, and told of
    std::uint64_t metrics_ms = 0;  // when they were written last
    ino_t inode = 0;               // the socket's file; 0: it is somebody else's
  } seen_;
  std::string failure_;  // why the loop ends; empty: it was asked to
};

}  // namespace sentinel
