// Which Python has PyTorch, with which BLAS, and whether the adaptor is built for it.
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

#include "doctor.h"
#include "sim/machine_file.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

// Finds PyTorch without importing it, which would take seconds.
constexpr const char* kProbe =
    "import importlib.util as u, os\n"
    "s = u.find_spec(\"torch\")\n"
    "if s and s.origin:\n"
    "    v = {}\n"
    "    exec(open(os.path.join(os.path.dirname(s.origin), \"version.py\")).read(), v)\n"
    "    print(v[\"__version__\"].split(\"+\")[0], os.path.dirname(s.origin))\n";

struct Torch {
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

Torch torch_of(const std::string& python) {
  Torch torch{python, "", ""};
  std::istringstream out(output_of(fmt::format("'{}' -c '{}' 2>/dev/null", python, kProbe)));
  out >> torch.version >> torch.folder;
  return torch;
}

Finding pytorch(const Torch& torch) {
  const auto name = fmt::format("PyTorch of {}", torch.python);
  if (torch.version.empty())
    return {name, false, "none",
            "pip install torch, or apt install python3-torch for /usr/bin/python3"};
  return {name, true, fmt::format("{} in {}", torch.version, torch.folder), ""};
}

bool holds_adaptor(const fs::path& folder, const std::string& version) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("torch-" + version + "-") && name.ends_with(".so")) return true;
  }
  return false;
}

Finding adaptor(const Torch& torch) {
  const auto home = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/sentinel";
  const auto cache = fs::path(sim::local_machine_path()).parent_path();
  const auto name = fmt::format("adaptor for {}", torch.version);
  if (holds_adaptor(home / "adaptors", torch.version) || holds_adaptor(cache, torch.version))
    return {name, true, "built", ""};
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
Finding blas(const Torch& torch) {
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

}  // namespace

Findings look_at_frameworks() {
  Findings findings;
  for (const auto& python : pythons()) {
    const auto torch = torch_of(python);
    findings.push_back(pytorch(torch));
    if (torch.version.empty()) continue;
    findings.push_back(adaptor(torch));
    findings.push_back(blas(torch));
  }
  if (findings.empty())
    findings.push_back({"Python", false, "no python3 was found", "apt install python3-torch"});
  findings.push_back({"TensorFlow", false, "not built yet", "PyTorch is what runs today"});
  return findings;
}

}  // namespace sentinel::cli
