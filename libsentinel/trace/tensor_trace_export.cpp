// Writes a profile as a tensor trace, compressed where its name ends in .gz.
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <unordered_set>

#include "base/output.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "trace/json.h"
#include "trace/tensor_trace.h"
#include "trace/validate.h"

namespace sentinel {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kinds[] = {"global", "intermediate", "workspace"};
constexpr const char* phases[] = {"forward", "backward", "optimizer"};

// "t17" gives 17 for the prefix "t"; nothing for any name the importer does not give.
std::optional<std::uint64_t> number_in(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && number <= std::uint64_t{1} << 53 ? std::optional(number) : std::nullopt;
}

// The numbers that the importer left in the names, or 0, 1, 2, … where any name is another one.
template <class Named>
std::vector<std::uint64_t> original_numbers(const std::vector<Named>& items,
                                            std::string_view prefix) {
  std::vector<std::uint64_t> numbers(items.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<std::uint64_t> found;
  for (const Named& item : items)
    if (const auto number = number_in(item.name, prefix)) found.push_back(*number);
  return found.size() == items.size() ? found : numbers;
}

class Export {
 public:
  Export(const Profile& profile, std::ostream& out);
  void run();

 private:
  void line(const Json& json) {
    // Names come from the traced program: what is not UTF-8 in them is replaced, not refused.
    out_ << json_text(json) << '\n';
  }
  void header();
  void tensor(std::size_t t);
  void op(std::size_t k);
  void layer(Json& json, std::size_t k);
  bool layers_follow_from_parents() const;
  Json ids(const std::vector<TensorId>& tensors) const;
  TensorKind kind(std::size_t t) const;

  const Profile& profile_;
  std::ostream& out_;
  std::vector<std::uint64_t> tensor_ids_, layer_numbers_;
  std::vector<Json> counts_;  // "acc" by op
  bool name_layers_;
};

Export::Export(const Profile& profile, std::ostream& out)
    : profile_(profile),
      out_(out),
      tensor_ids_(original_numbers(profile.tensors, "t")),
      layer_numbers_(original_numbers(profile.layers, "layer ")),
      counts_(profile.ops.size()),
      name_layers_(!layers_follow_from_parents()) {
  const std::unordered_set<std::uint64_t> distinct(tensor_ids_.begin(), tensor_ids_.end());
  if (distinct.size() < tensor_ids_.size()) std::iota(tensor_ids_.begin(), tensor_ids_.end(), 0);
  if (std::ranges::adjacent_find(layer_numbers_) != layer_numbers_.end())
    std::iota(layer_numbers_.begin(), layer_numbers_.end(), 0);
  for (const AccessCount& access : profile.accesses)
    counts_[access.op.index()][std::to_string(tensor_ids_[access.tensor.index()])] =
        access.reads + access.writes;
}

// True where an importer finds the same layers without being told.
bool Export::layers_follow_from_parents() const {
  for (std::size_t k = 0; k < profile_.ops.size(); ++k) {
    const Op& op = profile_.ops[k];
    const bool joins = k > 0 && !op.parent.empty() && profile_.ops[k - 1].parent == op.parent;
    const LayerId expected(k == 0 ? 0 : profile_.ops[k - 1].layer.index() + (joins ? 0 : 1));
    const std::string& name = op.parent.empty() ? op.name : op.parent;
    if (op.layer != expected || profile_.layers[op.layer.index()].name != name) return false;
  }
  return true;
}

void Export::header() {
  const ProfileMeta& meta = profile_.meta;
  const std::string source =
      meta.source == "trace"
          ? meta.command
          : fmt::format("sentinel ({}), {}: {}", meta.source, meta.framework, meta.command);
  line({{"format", "tensor-trace"},
        {"version", 1},
        {"source", source},
        {"model", meta.model},
        {"batch", meta.batch},
        {"page_bytes", meta.page_bytes}});
}

// What stays over the step's end is a global to the format, whatever it was to the program;
// unused memory of others (foreign) is not.
TensorKind Export::kind(std::size_t t) const {
  const Tensor& tensor = profile_.tensors[t];
  const bool persistent = !tensor.alloc_op && !tensor.free_op;
  return persistent && !tensor.foreign ? TensorKind::global : tensor.kind;
}

void Export::tensor(std::size_t t) {
  const Tensor& tensor = profile_.tensors[t];
  Json json{
      {"t", tensor_ids_[t]}, {"bytes", tensor.bytes}, {"kind", kinds[static_cast<int>(kind(t))]}};
  if (tensor.name != fmt::format("t{}", tensor_ids_[t])) json["name"] = tensor.name;
  line(json);
}

Json Export::ids(const std::vector<TensorId>& tensors) const {
  Json result = Json::array();
  for (const TensorId t : tensors) result.push_back(tensor_ids_[t.index()]);
  return result;
}

void Export::layer(Json& json, std::size_t k) {
  const LayerId layer = profile_.ops[k].layer;
  const std::uint64_t number = layer_numbers_[layer.index()];
  json["layer"] = number;
  const std::string& name = profile_.layers[layer.index()].name;
  const bool first = k == 0 || profile_.ops[k - 1].layer != layer;
  if (first && name != fmt::format("layer {}", number)) json["layer_name"] = name;
}

void Export::op(std::size_t k) {
  const Op& op = profile_.ops[k];
  Json json{
      {"k", k},           {"name", op.name},    {"us", op.us},
      {"in", ids(op.in)}, {"out", ids(op.out)}, {"phase", phases[static_cast<int>(op.phase)]}};
  if (name_layers_) layer(json, k);
  if (!op.parent.empty()) json["op"] = op.parent;
  if (!counts_[k].is_null()) json["acc"] = counts_[k];
  line(json);
}

void Export::run() {
  header();
  for (std::size_t t = 0; t < profile_.tensors.size(); ++t) tensor(t);
  for (std::size_t k = 0; k < profile_.ops.size(); ++k) op(k);
}

void write_compressed(const std::string& path, const std::string& text) {
  const auto attempt = "cannot write trace " + path;
  Output out(path, attempt, Readers::everybody);
  const gzFile file = gzdopen(dup(out.fd()), "wb");
  if (file == nullptr) throw Error(attempt, errno);
  const std::size_t written = gzfwrite(text.data(), 1, text.size(), file);
  const int closed = gzclose(file);
  if (written != text.size() || closed != Z_OK) throw Error(attempt, errno);
  out.keep();
}

}  // namespace

void write_tensor_trace(const Profile& profile, std::ostream& out) {
  validate(profile);
  Export(profile, out).run();
}

void write_tensor_trace(const Profile& profile, const std::string& path) {
  std::ostringstream text;
  write_tensor_trace(profile, text);
  if (path.ends_with(".gz")) return write_compressed(path, text.str());
  write_file(path, text.str(), "cannot write trace " + path, Readers::everybody);
}

}  // namespace sentinel
