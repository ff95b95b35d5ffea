// The stored profile: one file, written while recording goes on, read by everything after it.
//
// While it is being written it can be read at any time (the reader sees the last commit), and a
// writer killed at any moment leaves its last commit behind, marked incomplete; SQLite's -wal and
// -shm files lie beside it until then. The tables are described in schema.h.
#pragma once

#include <memory>
#include <string>

#include "sentinel/profile.h"
#include "trace/database/profile_file.h"

namespace sentinel {

// Used by one thread at a time. In a forked child every call is without effect: the file is the
// parent's. All but the destructor throw Error.
class ProfileWriter {
 public:
  // Creates the file, readable by its owner only whatever the umask. Replaces an earlier profile
  // and an empty file; refuses anything else, and a profile that another process is writing.
  // Until it comes it lies elsewhere (profile_file.h).
  ProfileWriter(const std::string& path, const ProfileMeta& meta, Comes = Comes::at_once);
  // Without finish(): keeps what was added, marked incomplete, where it comes at once.
  ~ProfileWriter();

  // Records get their ids in the order in which they are added. What they refer to may be added
  // after them.
  LayerId add(const Layer& layer);
  OpId add(const Op& op);
  TensorId add(const Tensor& tensor);
  void replace(TensorId id, const Tensor& tensor);  // when its end, or its name, becomes known
  void add(const AccessCount& count);               // adds up for the same tensor and op
  void add(const NaturalPlacement& placement);

  // Makes everything added so far visible and safe against a kill. Does nothing while records
  // refer to others that are still to be added, so that what is visible is always consistent.
  // No fsync: cheap enough for every op.
  void commit();

  // The last call: writes the final description and leaves one file. An incomplete recording
  // says so in `meta` (complete and incomplete_reason).
  void finish(const ProfileMeta& meta);

 private:
  struct State;
  std::unique_ptr<ProfileFile> file_;
  std::unique_ptr<State> state_;
};

// A profile that is there stays until the new one is whole.
void write_profile(const std::string& path, const Profile& profile);

// By content: true also for a damaged profile, as long as its first 100 bytes are whole. Throws
// Error where the file cannot be read.
bool is_stored_profile(const std::string& path);

// Reads and validates. Throws Error on a file that does not exist, is something else, truncated,
// damaged, or written by a newer version; an incomplete one is read, with meta.complete false and
// a reason.
Profile read_profile(const std::string& path);

}  // namespace sentinel
