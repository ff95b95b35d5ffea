// Which Python has PyTorch or TensorFlow, with which BLAS, and whether the adaptor is built for it.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "base/cache.h"
#include "host/doctor.h"
#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

// Of a command line's program Python looks for modules in the current folder first, which may be
// anybody's.
constexpr const char* kNotHere =
    "import sys\nsys.path[:] = [p for p in sys.path if p not in (\"\", \".\")]\n";
// Print version and folder. Found without being imported, which would take seconds.
constexpr const char* kFindTorch =
    "import importlib.util as u, os\n"
    "s = u.find_spec(\"torch\")\n"
    "if s and s.origin:\n"
    "    v = {}\n"
    "    exec(open(os.path.join(os.path.dirname(s.origin), \"version.py\")).read(), v)\n"
    "    print(v[\"__version__\"].split(\"+\")[0], os.path.dirname(s.origin))\n";
constexpr const char* kFindTensorflow =
    "import importlib.util as u, importlib.metadata as m\n"
    "s = u.find_spec(\"tensorflow\")\n"
    "for name in (\"tensorflow-cpu\", \"tensorflow\") if s else ():\n"
    "    try:\n"
    "        print(m.version(name), s.submodule_search_locations[0])\n"
    "        break\n"
    "    except m.PackageNotFoundError:\n"
    "        pass\n";

struct Framework {
  const char *name, *adaptors, *installed;  // what files of its adaptors begin with
  const char *find, *remedy;
};
constexpr Framework kTorch{"PyTorch", "torch", "torch-", kFindTorch,
                           "pip install torch, or apt install python3-torch for /usr/bin/python3"};
constexpr Framework kTensorflow{"TensorFlow", "tensorflow", "tensorflow-adaptor-", kFindTensorflow,
                                "pip install tensorflow-cpu, where it is wanted"};

struct Found {
  std::string python, version, folder;
};

std::string output_of(const std::string& command) {
  std::string text;
  std::array<char, 4096> part;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  while (const auto count = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), count);
  pclose(pipe);
  return text;
}

// The first python3 of $PATH, and the system's.
std::vector<std::string> pythons() {
  std::vector<std::string> found;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':') && found.empty();)
    if (access((folder + "/python3").c_str(), X_OK) == 0) found.push_back(folder + "/python3");
  constexpr const char* system = "/usr/bin/python3";
  if (access(system, X_OK) == 0 && (found.empty() || found.front() != system))
    found.emplace_back(system);
  return found;
}

Found find(const Framework& framework, const std::string& python) {
  Found found{python, "", ""};
  std::istringstream out(
      output_of(fmt::format("'{}' -c '{}{}' 2>/dev/null", python, kNotHere, framework.find)));
  out >> found.version >> found.folder;
  return found;
}

Finding presence(const Framework& framework, const Found& found) {
  const auto name = fmt::format("{} of {}", framework.name, found.python);
  if (found.version.empty()) return {name, false, "none", framework.remedy};
  return {name, true, fmt::format("{} in {}", found.version, found.folder), ""};
}

bool holds_adaptor(const fs::path& folder, const std::string& beginning) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(beginning) && name.ends_with(".so")) return true;
  }
  return false;
}

bool cache_holds_adaptor(const std::string& beginning) try {
  const auto folder = cache::open_folder(cache::Absent::leave);
  return holds_adaptor(fmt::format("/proc/self/fd/{}", folder.get()), beginning);
} catch (const Error&) {
  return false;
}

// The part of the version that an adaptor is bound to: as _torch.py and _tensorflow.py have it.
std::string release_of(const Framework& framework, const Found& found) {
  if (&framework != &kTorch) return found.version;
  return found.version.substr(0, found.version.find('.', found.version.find('.') + 1));
}

Finding adaptor(const Framework& framework, const Found& found) {
  const auto home = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/sentinel";
  const auto name = fmt::format("adaptor for {} {}", framework.name, found.version);
  if (cache_holds_adaptor(fmt::format("{}-{}-", framework.adaptors, found.version)))
    return {name, true, "built", ""};
  if (holds_adaptor(home / "adaptors",
                    fmt::format("{}{}-", framework.installed, release_of(framework, found))))
    return {name, true, "built ahead for this release", ""};
  const bool compiler = !output_of("command -v \"${CXX:-c++}\"").empty();
  return {name, false,
          compiler ? "not built yet; the first run does it, in half a minute"
                   : "not built, and no C++ compiler",
          compiler ? "" : "apt install g++"};
}

struct BlasRow {
  const char *path, *name;
  bool fast;
};
constexpr BlasRow kBlas[] = {
    {"openblas-openmp", "OpenBLAS with OpenMP", true},
    {"openblas-pthread", "OpenBLAS with threads of its own, which fight with OpenMP's", false},
    {"openblas-serial", "OpenBLAS with one thread", false},
    {"blis", "BLIS", true},
    {"mkl", "MKL", true},
    {"atlas", "ATLAS, several times slower than OpenBLAS", false},
    {"/blas/", "the reference BLAS, tens of times slower than OpenBLAS", false}};

// Debian's PyTorch and NumPy use what the alternatives point at; a wheel brings its own.
Finding blas(const Found& torch) {
  constexpr const char* remedy =
      "apt install libopenblas0-openmp (and update-alternatives --config "
      "libblas.so.3-x86_64-linux-gnu)";
  if (!torch.folder.starts_with("/usr/lib/python3/")) return {"BLAS", true, "the wheel's own", ""};
  std::error_code none;
  const auto target =
      fs::canonical("/etc/alternatives/libblas.so.3-x86_64-linux-gnu", none).string();
  for (const auto& row : kBlas)
    if (target.find(row.path) != target.npos)
      return {"BLAS", row.fast, row.name, row.fast ? "" : remedy};
  return {"BLAS", !target.empty(), target.empty() ? "none found" : target,
          target.empty() ? remedy : ""};
}

Finding cache_folder() try {
  cache::open_folder(cache::Absent::leave);
  return {"cache", true, cache::place(), ""};
} catch (const Error& error) {
  if (error.code() == ENOENT) return {"cache", true, cache::place() + ", not made yet", ""};
  return {"cache", false, error.what(), "until then each run measures, and compiles its adaptor"};
}

}  // namespace

Findings look_at_frameworks() {
  Findings findings{cache_folder()};
  for (const auto& python : pythons()) {
    for (const auto* framework : {&kTorch, &kTensorflow}) {
      const auto found = find(*framework, python);
      findings.push_back(presence(*framework, found));
      if (found.version.empty()) continue;
      findings.push_back(adaptor(*framework, found));
      if (framework == &kTorch) findings.push_back(blas(found));
    }
  }
  if (findings.size() == 1)
    findings.push_back({"Python", false, "no python3 was found", "apt install python3-torch"});
  return findings;
}

}  // namespace sentinel::cli
