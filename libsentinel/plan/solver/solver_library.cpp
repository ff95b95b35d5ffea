// Looks beside this code for a copy that a wheel brings, then lets the loader look.
#include "plan/solver/solver_library.h"

#include <dlfcn.h>
#include <sys/auxv.h>

#include <filesystem>
#include <string>

namespace sentinel::plan {
namespace {

namespace fs = std::filesystem;

void* base_of(const void* address) {
  Dl_info info;
  return ::dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// Of this code. The loader knows a program by the words alone that started it.
fs::path file_of_this() {
  static const int here = 0;
  Dl_info info;
  std::error_code none;
  if (::dladdr(&here, &info) == 0) return {};
  const bool program =
      info.dli_fbase == base_of(reinterpret_cast<const void*>(::getauxval(AT_PHDR)));
  return fs::canonical(program ? "/proc/self/exe" : info.dli_fname, none);
}

// The command lies in PREFIX/bin, the library in PREFIX/lib. Empty where neither can be told.
fs::path folder_of_copies() {
  const auto file = file_of_this();
  return file.empty() ? file : file.parent_path().parent_path() / "lib/sentinel/solvers";
}

}  // namespace

void* open_solver(std::span<const char* const> names) {
  const auto copies = folder_of_copies();
  for (const bool beside : {true, false})
    for (const char* name : names) {
      if (beside && copies.empty()) continue;
      const auto path = beside ? (copies / name).string() : std::string(name);
      if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  return nullptr;
}

}  // namespace sentinel::plan
