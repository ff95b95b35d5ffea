// Files that may be compressed by gzip, told by their first bytes and not by their names.
//
// A compressed file is bounded by three numbers, so that a bomb ends early: its own size, its size
// unpacked, and how many times its length it unpacks to.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/input.h"

namespace sentinel {

// Beyond the first bytes, a file unpacks to at most so many times what was read of it. Traces come
// to 10 to 30, snapshots to 8 to 40.
constexpr std::uint64_t kMostUnpackedRatio = 100, kAlwaysUnpacked = std::uint64_t{16} << 20;

// All throw Error.
gzFile open_gz(const std::string& path, const std::string& attempt, const InputKind&);

// Up to `size` bytes; fewer only at the end. `total` counts what this file gave so far. `place`
// begins an error's text: "t.jsonl:12".
std::size_t read_gz(gzFile, char* into, std::size_t size, std::uint64_t& total,
                    const std::string& place, const InputKind&);

// The whole file, unpacked where it is gzip's.
std::string read_maybe_packed(const std::string& path, const std::string& attempt,
                              const InputKind&);

}  // namespace sentinel
