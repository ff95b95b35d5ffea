#include "trace/store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <limits>
#include <thread>

#include "sample_profile.h"
#include "trace/database/sqlite.h"
#include "trace/machine_record.h"
#include "trace/schema.h"

namespace sentinel {
namespace {

using testing::HasSubstr;

std::string read_error(const std::string& path) {
  return error_of([&] { read_profile(path); });
}

Tensor tensor_named(const std::string& name) { return {.name = name, .bytes = 1}; }

TEST(Store, RoundTrip) {
  const TestFolder folder;
  write_profile(folder / "p", sample_profile());
  EXPECT_EQ(read_profile(folder / "p"), sample_profile());
  EXPECT_EQ(folder.files(), 1);
  EXPECT_TRUE(is_stored_profile(folder / "p"));
}

TEST(Store, EmptyProfile) {
  const TestFolder folder;
  Profile empty;
  empty.meta.incomplete_reason = "interrupted";
  write_profile(folder / "p", empty);
  EXPECT_EQ(read_profile(folder / "p"), empty);
}

TEST(Store, ThisMachine) {
  const MachineRecord machine = this_machine();
  EXPECT_FALSE(machine.kernel.empty());
  EXPECT_GT(machine.cores, 0u);
  EXPECT_GT(machine.memory_bytes, 0u);
}

TEST(Store, PrivateToItsOwnerWhateverTheUmask) {
  const TestFolder folder;
  for (const mode_t mask : {0000, 0777}) {
    const mode_t before = umask(mask);
    ProfileWriter writer(folder / "p", {});
    writer.commit();
    umask(before);
    for (const auto& entry : std::filesystem::directory_iterator(folder / "")) {
      struct stat found {};
      ASSERT_EQ(stat(entry.path().c_str(), &found), 0);
      EXPECT_EQ(found.st_mode & 0777, 0600u) << entry.path();
    }
  }
}

TEST(Store, ReplacesAProfileAndAnEmptyFile) {
  const TestFolder folder;
  write_bytes(folder / "p", "");
  write_profile(folder / "p", sample_profile());
  write_profile(folder / "p", Profile{});
  EXPECT_TRUE(read_profile(folder / "p").ops.empty());
}

TEST(Store, LeavesForeignFilesAlone) {
  const TestFolder folder;
  {
    sqlite::Database other(folder / "db", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "");
    other.exec("CREATE TABLE t (x)");
  }
  write_bytes(folder / "thesis", "all my work");
  for (const char* name : {"thesis", "db"}) {
    const std::string before = read_bytes(folder / name);
    EXPECT_THAT(error_of([&] { write_profile(folder / name, Profile{}); }),
                HasSubstr("not a Sentinel profile"));
    EXPECT_EQ(read_bytes(folder / name), before);
  }
  EXPECT_THAT(error_of([&] { write_profile(folder / "", Profile{}); }), HasSubstr("directory"));
  EXPECT_THAT(error_of([&] { write_profile("/dev/null", Profile{}); }), HasSubstr("regular"));
  EXPECT_THAT(error_of([&] { write_profile(folder / "no/p", Profile{}); }), HasSubstr("No such"));
}

TEST(Store, RefusesAProfileThatIsBeingWritten) {
  const TestFolder folder;
  ProfileWriter writer(folder / "p", {});
  EXPECT_THAT(error_of([&] { ProfileWriter(folder / "p", {}); }), HasSubstr("another process"));
}

TEST(Store, OddNamesAreFiles) {
  const TestFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "");
  for (const char* name : {":memory:", "file:p?mode=memory", "a b%20'c"}) {
    write_profile(name, sample_profile());
    EXPECT_EQ(read_profile(name), sample_profile());
  }
  EXPECT_EQ(folder.files(), 3);
  std::filesystem::current_path(before);
}

TEST(Store, ReadWhileBeingWritten) {
  const TestFolder folder;
  ProfileWriter writer(folder / "p", {.model = "m"});
  writer.add(tensor_named("first"));
  EXPECT_TRUE(read_profile(folder / "p").tensors.empty());
  writer.commit();
  writer.add(tensor_named("second"));
  const Profile seen = read_profile(folder / "p");
  EXPECT_EQ(seen.tensors.size(), 1u);
  EXPECT_EQ(seen.meta.model, "m");
  EXPECT_FALSE(seen.meta.complete);
  EXPECT_FALSE(seen.meta.incomplete_reason.empty());
  writer.finish({.complete = true});
  EXPECT_EQ(read_profile(folder / "p").tensors.size(), 2u);
  EXPECT_EQ(folder.files(), 1);
}

TEST(Store, NothingDanglingIsEverVisible) {
  const TestFolder folder;
  ProfileWriter writer(folder / "p", {});
  writer.add(Tensor{.name = "t", .bytes = 1, .alloc_op = OpId(0)});
  writer.commit();  // op 0 is still to come
  EXPECT_TRUE(read_profile(folder / "p").tensors.empty());
  EXPECT_THROW(writer.finish({}), Error);
  writer.add(Layer{});
  writer.add(Op{.out = {TensorId(0)}});
  writer.commit();
  EXPECT_EQ(read_profile(folder / "p").tensors.size(), 1u);
}

TEST(Store, CountsAddUpAndTensorsAreReplaced) {
  const TestFolder folder;
  {
    ProfileWriter writer(folder / "p", {});
    writer.add(Layer{});
    writer.add(Op{});
    const TensorId t = writer.add(tensor_named("t"));
    writer.add(AccessCount{t, OpId(0), 1, 2});
    writer.add(AccessCount{t, OpId(0), 10, 20});
    writer.replace(t, tensor_named("renamed"));
  }
  const Profile read = read_profile(folder / "p");  // never finished
  EXPECT_EQ(read.accesses[0], (AccessCount{TensorId(0), OpId(0), 11, 22}));
  EXPECT_EQ(read.tensors[0].name, "renamed");
  EXPECT_FALSE(read.meta.complete);
  EXPECT_EQ(folder.files(), 1);
}

// Writes for ever, one op and one tensor a commit; tells after the first one.
[[noreturn]] void write_until_killed(const std::string& path, int begun) {
  ProfileWriter writer(path, {});
  writer.add(Layer{});
  for (std::size_t k = 0;; ++k) {
    const Tensor tensor{.name = std::string(100, 'x'), .alloc_op = OpId(k), .free_op = OpId(k)};
    const TensorId t = writer.add(tensor);
    writer.add(Op{.name = "op", .out = {t}});
    writer.add(AccessCount{t, OpId(k), 1, 0});
    writer.commit();
    if (k == 0 && write(begun, "", 1) != 1) _exit(1);
  }
}

// Writes small profiles to their end, one over the other.
[[noreturn]] void rewrite_until_killed(const std::string& path, int begun) {
  for (;;) {
    write_profile(path, sample_profile());
    if (write(begun, "", 1) != 1) _exit(1);
  }
}

template <class Write>
void write_and_kill(const std::string& path, Write child_writes, std::chrono::microseconds later) {
  int begun[2];
  ASSERT_EQ(pipe(begun), 0);
  const pid_t child = fork();
  if (child == 0) child_writes(path, begun[1]);
  close(begun[1]);
  char byte = 0;
  const auto got = read(begun[0], &byte, 1);
  std::this_thread::sleep_for(later);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(begun[0]);
  ASSERT_EQ(got, 1);
}

TEST(Store, KilledWriterLeavesAReadableFile) {
  const TestFolder folder;
  for (int round = 0; round < 8; ++round) {
    write_and_kill(folder / "p", write_until_killed, std::chrono::microseconds(17011 * round));
    const Profile read = read_profile(folder / "p");
    EXPECT_FALSE(read.meta.complete);
    EXPECT_EQ(read.ops.size(), read.tensors.size());
    EXPECT_EQ(read.ops.size(), read.accesses.size());
    EXPECT_GT(read.ops.size(), 0u);
  }
  write_profile(folder / "p", sample_profile());  // over the remains of a killed one
  EXPECT_EQ(read_profile(folder / "p"), sample_profile());
  EXPECT_EQ(folder.files(), 1);
}

TEST(Store, KilledWhileTheFileIsMadeOrFinished) {
  const TestFolder folder;
  for (int round = 0; round < 60; ++round) {
    write_and_kill(folder / "p", rewrite_until_killed, std::chrono::microseconds(531 * round));
    EXPECT_EQ(read_error(folder / "p"), "no error") << round;
  }
}

TEST(Store, AForkedChildCannotDisturbItsParent) {
  const TestFolder folder;
  ProfileWriter writer(folder / "p", {});
  writer.add(tensor_named("before"));
  const pid_t child = fork();
  if (child == 0) {
    writer.add(tensor_named("in the child"));
    writer.commit();
    writer.finish({});
    writer.~ProfileWriter();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  writer.add(tensor_named("after"));
  writer.finish({.complete = true});
  EXPECT_EQ(read_profile(folder / "p").tensors[1].name, "after");
}

TEST(Store, SaysWhatIsWrongWithAFile) {
  const TestFolder folder;
  EXPECT_THAT(read_error(folder / "none"), HasSubstr("sentinel record"));
  EXPECT_THAT(read_error(folder / ""), HasSubstr("folder"));
  EXPECT_THAT(read_error("/dev/zero"), HasSubstr("regular"));
  write_bytes(folder / "empty", "");
  EXPECT_THAT(read_error(folder / "empty"), HasSubstr("empty"));
  write_bytes(folder / "text", "hello");
  EXPECT_THAT(read_error(folder / "text"), HasSubstr("not a Sentinel profile"));
  write_profile(folder / "p", sample_profile());
  std::filesystem::resize_file(folder / "p", 5000);
  EXPECT_THAT(read_error(folder / "p"), HasSubstr("truncated"));
}

TEST(Store, AnotherProgramsDatabase) {
  const TestFolder folder;
  {
    sqlite::Database other(folder / "db", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "");
    other.exec("CREATE TABLE t (x)");
  }
  EXPECT_THAT(read_error(folder / "db"), HasSubstr("another program"));
  EXPECT_FALSE(is_stored_profile(folder / "db"));
}

std::string read_error_after(const char* sql) {
  const TestFolder folder;
  write_profile(folder / "p", sample_profile());
  {
    sqlite::Database db(folder / "p", SQLITE_OPEN_READWRITE, "");
    db.exec(sql);
  }
  return read_error(folder / "p");
}

TEST(Store, NewerVersions) {
  EXPECT_THAT(read_error_after("UPDATE meta SET value = 9 WHERE key LIKE '%_version'"),
              HasSubstr("version 9"));
  // A newer writer whose files this reader can still read.
  EXPECT_EQ(read_error_after("UPDATE meta SET value = 9 WHERE key = 'schema_version';"
                             "INSERT INTO meta VALUES ('new', 1); ALTER TABLE ops ADD COLUMN z"),
            "no error");
}

TEST(Store, TheFirstVersionKnewOfNoTensorAgain) {
  const TestFolder folder;
  auto profile = sample_profile();
  write_profile(folder / "p", profile);
  {
    sqlite::Database db(folder / "p", SQLITE_OPEN_READWRITE, "");
    db.exec("UPDATE meta SET value = 1 WHERE key LIKE '%_version'; DROP TABLE again");
  }
  profile.tensors.back().again.clear();
  EXPECT_EQ(read_profile(folder / "p"), profile);
}

TEST(Store, ValuesThatCannotBe) {
  for (const char* sql : {"UPDATE ops SET layer = 7",
                          "UPDATE ops SET phase = 3",
                          "UPDATE ops SET us = -1",
                          "UPDATE ops SET us = 9e999",
                          "UPDATE ops SET us = NULL",
                          "UPDATE ops SET name = NULL",
                          "UPDATE ops SET layer = 1 - layer",
                          "DELETE FROM ops WHERE id = 1",
                          "DROP TABLE ops",
                          "UPDATE ops SET name = 'a' || char(0)",
                          "UPDATE operands SET mode = 4",
                          "UPDATE operands SET op = 99 WHERE op = 2",
                          "UPDATE operands SET tensor = 99 WHERE tensor = 4",
                          "UPDATE tensors SET bytes = -1",
                          "UPDATE tensors SET bytes = 1 << 59",
                          "UPDATE tensors SET kind = 3",
                          "UPDATE tensors SET alloc_op = 4",
                          "UPDATE tensors SET alloc_op = 3, free_op = 0",
                          "UPDATE tensors SET stride = 0",
                          "UPDATE tensors SET stride = 1 << 32",
                          "UPDATE tensors SET name = zeroblob(9)",
                          "UPDATE tensors SET id = 1 << 40 WHERE id = 5",
                          "UPDATE again SET ordinal = 0 WHERE ordinal = 2",
                          "UPDATE again SET ordinal = 1 << 32 WHERE ordinal = 2",
                          "UPDATE again SET tensor = 9",
                          "UPDATE again SET tensor = 0",
                          "DROP TABLE again",
                          "UPDATE accesses SET op = 9 WHERE op = 3",
                          "UPDATE accesses SET reads = -1",
                          "UPDATE natural SET tensor = 9",
                          "DELETE FROM meta WHERE key = 'model'",
                          "DELETE FROM meta",
                          "UPDATE meta SET value = 3 WHERE key = 'page_bytes'",
                          "UPDATE tensors SET name = hex(zeroblob(1000000))"})
    EXPECT_THAT(read_error_after(sql), HasSubstr("damaged")) << sql;
}

TEST(Store, WhatCannotBeReadIsNotWritten) {
  const TestFolder folder;
  Profile profile = sample_profile();
  profile.ops[0].us = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(write_profile(folder / "p", profile), Error);
  EXPECT_EQ(folder.files(), 0);
  ProfileWriter writer(folder / "p", {});
  EXPECT_THROW(writer.add(profile.ops[0]), Error);
  EXPECT_THROW(writer.add(Op{.in = {TensorId(1), TensorId(0)}}), Error);
  EXPECT_THROW(writer.add(Tensor{.name = std::string(2 << 20, 'x')}), Error);
  EXPECT_THROW(ProfileWriter(folder / "q", {.page_bytes = 3}), Error);
}

}  // namespace
}  // namespace sentinel
