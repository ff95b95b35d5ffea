// Reads a file as a profile or as a tensor trace, by its first bytes.
#include "trace/read_any.h"

#include <sys/stat.h>

#include "trace/gz_lines.h"
#include "trace/store.h"
#include "trace/tensor_trace.h"

namespace sentinel {
namespace {

// Only the beginning counts: a damaged trace is still reported as a trace, by line.
bool looks_like_trace(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size == 0)
    return false;
  const gzFile file = open_gz(path, "cannot read " + path, GzLines::kTraces);
  char first = 0;
  const bool is_text = gzread(file, &first, 1) == 1 && first == '{';
  const bool is_gzip = gzdirect(file) == 0;
  gzclose(file);
  return is_text || is_gzip;
}

}  // namespace

Profile read_any(const std::string& path) {
  // In this order: opening a stored profile beside SQLite would drop a writer's locks in the same
  // program.
  struct stat found {};
  const bool readable = stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode);
  if (readable && !is_stored_profile(path) && looks_like_trace(path))
    return read_tensor_trace(path);
  return read_profile(path);
}

}  // namespace sentinel
