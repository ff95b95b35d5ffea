// A job as the broker knows it: a process, its connection, its profile, and the page in which it
// tells what it holds.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "broker/ledger.h"
#include "broker/server/connection.h"
#include "broker/server/loop.h"

namespace sentinel {

// Shared memory of one job, which writes it from time to time.
class HeldPage {
 public:
  explicit HeldPage(const Descriptor& file);  // none where it is no such page
  ~HeldPage();
  HeldPage(const HeldPage&) = delete;
  HeldPage& operator=(const HeldPage&) = delete;

  std::optional<std::uint64_t> bytes() const;

 private:
  const std::atomic<std::uint64_t>* page_ = nullptr;
};

struct Member {
  JobId id = 0;
  pid_t process = 0;
  std::uint64_t begun = 0;
  std::string name;
  Connection* connection = nullptr;  // null: it cannot be reached
  std::string told;                  // why it waits, as it was told
  std::uint64_t drive = 0;           // the device of its slow tier; 0: not known yet
  std::uint32_t told_drive = 1000;   // thousandths of the drive's time; 0: not since it connected
  std::unique_ptr<HeldPage> page;
  Descriptor life;                   // a pidfd
  std::unique_ptr<Readiness> death;  // of it
};

// A pidfd of the process that began then; nothing where that one is over. Throws Error.
Descriptor life_of(pid_t process, std::uint64_t begun);

}  // namespace sentinel
