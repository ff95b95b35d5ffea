// Packets and sealed files: what is no message is none, and what could change is not read.
#include "broker/wire/message.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>

#include "broker/wire/socket.h"

namespace sentinel {
namespace {

std::string packet_of(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

TEST(Message, ComesAsItWasSent) {
  Message sent{.kind = MessageKind::grant, .number = 7, .bytes = 1ull << 40};
  put(sent.name, "a training");
  put(sent.policy, std::string(500, 'g'));
  const auto came = parse_message(packet_of(sent));
  ASSERT_TRUE(came);
  EXPECT_EQ(came->bytes, 1ull << 40);
  EXPECT_EQ(text_of(came->name), "a training");
  EXPECT_EQ(text_of(came->policy), std::string(63, 'g'));
}

TEST(Message, WhatIsNoneIsNone) {
  const auto good = packet_of({});
  EXPECT_TRUE(parse_message(good));
  EXPECT_FALSE(parse_message(good.substr(1)));
  EXPECT_FALSE(parse_message(good + " "));
  EXPECT_FALSE(parse_message(""));
  for (const std::size_t byte : {0, 4, 6, 7}) {
    auto bad = good;
    bad[byte] = '\x7f';
    EXPECT_FALSE(parse_message(bad)) << byte;
  }
  Message endless;
  endless.text.fill('x');
  EXPECT_FALSE(parse_message(packet_of(endless)));
}

TEST(Message, NoiseNeverBecomesOne) {
  std::mt19937 random(5);
  std::string noise(sizeof(Message), '\0');
  for (int i = 0; i < 2000; ++i) {
    for (char& c : noise) c = static_cast<char>(random());
    EXPECT_FALSE(parse_message(noise));
  }
}

TEST(SealedFile, IsReadWhole) {
  const std::string content(100'000, 'c');
  const auto file = sealed_file(content);
  EXPECT_EQ(read_sealed(file, 1 << 20), content);
  EXPECT_FALSE(read_sealed(file, 99'999)) << "too long";
  EXPECT_EQ(write(file.get(), "x", 1), -1);
}

TEST(SealedFile, WhatOthersCouldChangeIsNotRead) {
  const Descriptor open(memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(write(open.get(), "text", 4), 4);
  EXPECT_FALSE(read_sealed(open, 100));
  fcntl(open.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW);
  EXPECT_FALSE(read_sealed(open, 100)) << "it may still shrink";
  EXPECT_FALSE(read_sealed(Descriptor(), 100));
  const Descriptor plain(::open("/proc/self/stat", O_RDONLY));
  EXPECT_FALSE(read_sealed(plain, 1 << 20));
}

TEST(Process, BeganOnce) {
  const auto begun = process_begun(getpid());
  EXPECT_GT(begun, 0u);
  EXPECT_EQ(process_begun(getpid()), begun);
  EXPECT_NE(process_begun(1), begun);
  EXPECT_EQ(process_begun(1 << 30), 0u);
}

}  // namespace
}  // namespace sentinel
