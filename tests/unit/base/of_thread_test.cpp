#include "base/of_thread.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace sentinel {
namespace {

int made = 0, living = 0;  // of one thread at a time

struct Counted {
  Counted() { ++made, ++living; }
  ~Counted() { --living; }
  int value = 0;
};

TEST(OfThread, IsAThreadsOwnAndEndsWithIt) {
  made = 0;
  of_thread<Counted>().value = 1;
  std::thread([] {
    EXPECT_EQ(of_thread<Counted>().value, 0);
    of_thread<Counted>().value = 2;
    EXPECT_EQ(of_thread<Counted>().value, 2);
    EXPECT_EQ(living, 2);
  }).join();
  EXPECT_EQ(of_thread<Counted>().value, 1);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(living, 1);
}

TEST(OfThread, OutlivesWhatAsksWhileTheThreadEnds) {
  static std::vector<int> seen;
  struct Asks {
    ~Asks() { seen.push_back(of_thread<Counted>().value); }
  };
  const int before = living;
  std::thread([] {
    static thread_local Asks asks;
    (void)asks;
    of_thread<Counted>().value = 3;
  }).join();
  EXPECT_EQ(seen, std::vector{3});
  EXPECT_EQ(living, before);
}

TEST(OfThread, WhatAsksAfterItsEndGetsANewOne) {
  static std::vector<int> seen;
  const int before = living;
  std::thread([] {
    of_thread<Counted>().value = 4;
    // A later key, whose destructor runs after the one before it.
    pthread_key_t key = 0;
    ASSERT_EQ(pthread_key_create(&key, [](void*) { seen.push_back(of_thread<Counted>().value); }),
              0);
    pthread_setspecific(key, &seen);
  }).join();
  EXPECT_EQ(seen, std::vector{0});
  EXPECT_EQ(living, before);
}

}  // namespace
}  // namespace sentinel
