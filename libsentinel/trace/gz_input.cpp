// Reads through zlib, and ends a file that unpacks to too much.
#include "trace/gz_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::size_t kChunk = 256 << 10;

gzFile unpacker(Descriptor input, const std::string& attempt) {
  const gzFile file = gzdopen(input.get(), "rb");
  if (file == nullptr) throw Error(attempt, ENOMEM);
  input.release();
  gzbuffer(file, kChunk);
  return file;
}

bool is_packed(const Descriptor& file) {
  std::array<unsigned char, 2> first{};
  return pread(file.get(), first.data(), first.size(), 0) == 2 && first[0] == 0x1f &&
         first[1] == 0x8b;
}

}  // namespace

gzFile open_gz(const std::string& path, const std::string& attempt, const InputKind& kind) {
  return unpacker(open_input(path, attempt, kind), attempt);
}

std::size_t read_gz(gzFile file, char* into, std::size_t size, std::uint64_t& total,
                    const std::string& place, const InputKind& kind) {
  const int got = gzread(file, into, static_cast<unsigned>(size));
  int error = Z_OK;
  gzerror(file, &error);
  // Z_BUF_ERROR: the compressed stream stops before its end.
  if (got < 0 || error == Z_BUF_ERROR)
    throw Error(fmt::format("{}: the file is {} here; copy it again", place,
                            error == Z_BUF_ERROR ? "truncated" : "damaged"),
                error == Z_ERRNO ? errno : 0);
  total += static_cast<std::uint64_t>(got);
  if (total > kind.bytes)
    throw Error(fmt::format("{}: the file has over {} unpacked; {}", place, print_bytes(kind.bytes),
                            kind.advice));
  if (total > kAlwaysUnpacked + kMostUnpackedRatio * static_cast<std::uint64_t>(gzoffset(file)))
    throw Error(
        fmt::format("{}: the file unpacks to over {} times its length; if that is right, unpack "
                    "it with gunzip first",
                    place, kMostUnpackedRatio));
  return static_cast<std::size_t>(got);
}

std::string read_maybe_packed(const std::string& path, const std::string& attempt,
                              const InputKind& kind) {
  auto input = open_input(path, attempt, kind);
  if (!is_packed(input)) return read_rest(input, attempt, kind);
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(unpacker(std::move(input), attempt),
                                                        gzclose);
  std::string bytes;
  std::uint64_t total = 0;
  for (std::size_t got = 1; got > 0;) {
    const auto had = bytes.size();
    bytes.resize(had + kChunk);
    got = read_gz(file.get(), bytes.data() + had, kChunk, total, attempt, kind);
    bytes.resize(had + got);
  }
  return bytes;
}

}  // namespace sentinel
