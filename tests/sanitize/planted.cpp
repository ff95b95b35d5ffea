// planted FAULT: commits one, so that a build with a sanitizer shows that it reports such a fault.
// No sanitizer, or one without a report: it ends as if nothing had been wrong.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

namespace {

void use_after_free() {
  auto* const bytes = static_cast<volatile char*>(std::malloc(16));
  std::free(const_cast<char*>(bytes));
  bytes[3] = 1;
}

void leak() {
  static volatile auto* lost = new volatile int(7);
  lost = nullptr;
}

void overflow(int by) {
  volatile int most = std::numeric_limits<int>::max();
  most = most + by;
}

void race() {
  int shared = 0;
  std::thread other([&] { ++shared; });
  ++shared;
  other.join();
}

// One after the other, so that it never really sticks.
void inversion() {
  std::mutex first, second;
  std::thread([&] {
    const std::scoped_lock one(first);
    const std::scoped_lock two(second);
  }).join();
  std::thread([&] {
    const std::scoped_lock two(second);
    const std::scoped_lock one(first);
  }).join();
}

}  // namespace

int main(int count, char** words) {
  const char* const fault = count > 1 ? words[1] : "";
  if (std::strcmp(fault, "use-after-free") == 0) use_after_free();
  if (std::strcmp(fault, "leak") == 0) leak();
  if (std::strcmp(fault, "overflow") == 0) overflow(count);
  if (std::strcmp(fault, "race") == 0) race();
  if (std::strcmp(fault, "inversion") == 0) inversion();
  std::puts("no report");
}
