// Whatever is done to a file, reading it gives an Error or a valid profile, soon.
#include <gmock/gmock.h>
#include <unistd.h>

#include <random>

#include "sample_profile.h"
#include "trace/read_any.h"
#include "trace/store.h"
#include "trace/tensor_trace.h"
#include "trace/validate.h"

namespace sentinel {
namespace {

// Thousands of rewrites of one file: most disks would be waited for at each.
std::filesystem::path memory_folder() {
  const std::filesystem::path memory = "/dev/shm";
  return access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

enum class Outcome { error, profile };

Outcome read(const std::string& path) {
  try {
    validate(read_any(path));
    return Outcome::profile;
  } catch (const Error&) {
    return Outcome::error;
  }
}

void shorten_one_by_one(const std::string& path, std::size_t from) {
  for (std::size_t length = from; length-- > 0;) {
    std::filesystem::resize_file(path, length);
    ASSERT_EQ(read(path), Outcome::error) << length;
  }
}

// Returns how many of the damaged files were still profiles.
int flip_bytes(const std::string& path, int rounds, unsigned seed) {
  const std::string whole = read_bytes(path);
  std::mt19937 random(seed);
  int valid = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string damaged = whole;
    const unsigned flips = 1 + random() % 4;
    for (unsigned i = 0; i < flips; ++i) damaged[random() % whole.size()] ^= 1 + random() % 255;
    write_bytes(path, damaged);
    valid += read(path) == Outcome::profile;
  }
  write_bytes(path, whole);
  return valid;
}

TEST(Damage, StoredProfileOfEveryLength) {
  const TestFolder folder(memory_folder());
  write_profile(folder / "p", sample_profile());
  shorten_one_by_one(folder / "p", std::filesystem::file_size(folder / "p"));
}

TEST(Damage, StoredProfileWithFlippedBytes) {
  const TestFolder folder(memory_folder());
  write_profile(folder / "p", sample_profile());
  EXPECT_LT(flip_bytes(folder / "p", 3000, 1), 3000);
}

// In SQLite's header and schema every byte decides something.
TEST(Damage, StoredProfileWithFlippedHeader) {
  const TestFolder folder(memory_folder());
  write_profile(folder / "p", sample_profile());
  const std::string whole = read_bytes(folder / "p");
  for (std::size_t at = 0; at < 4096; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(~damaged[at]);
    write_bytes(folder / "p", damaged);
    read(folder / "p");
  }
}

TEST(Damage, KilledWritersFiles) {
  const TestFolder folder(memory_folder());
  ProfileWriter writer(folder / "p", {});
  writer.add(Tensor{.name = "t", .bytes = 1});
  writer.commit();
  std::filesystem::copy(folder / "p", folder / "copy");
  std::filesystem::copy(folder / "p-wal", folder / "copy-wal");
  const std::string wal = read_bytes(folder / "copy-wal");
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::string damaged = wal.substr(0, round % 2 ? wal.size() : random() % wal.size());
    if (!damaged.empty()) damaged[random() % damaged.size()] ^= 1 + random() % 255;
    write_bytes(folder / "copy-wal", damaged);
    std::filesystem::remove(folder / "copy-shm");
    read(folder / "copy");
  }
}

TEST(Damage, TensorTrace) {
  const TestFolder folder(memory_folder());
  for (const char* name : {"t.jsonl", "t.jsonl.gz"}) {
    write_tensor_trace(sample_profile(), folder / name);
    flip_bytes(folder / name, 2000, 2);
  }
  shorten_one_by_one(folder / "t.jsonl.gz", std::filesystem::file_size(folder / "t.jsonl.gz"));
  for (std::size_t length = std::filesystem::file_size(folder / "t.jsonl"); length-- > 0;) {
    std::filesystem::resize_file(folder / "t.jsonl", length);
    read(folder / "t.jsonl");  // may end after a whole line
  }
}

}  // namespace
}  // namespace sentinel
