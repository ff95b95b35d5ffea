// Reads a tensor trace line by line, and makes a profile of it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "sentinel/error.h"
#include "trace/gz_lines.h"
#include "trace/json.h"
#include "trace/signature.h"
#include "trace/tensor_trace.h"
#include "trace/validate.h"

namespace sentinel {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t max_id = std::uint64_t{1} << 53;  // what every JSON reader keeps exactly

const Json& field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Error(fmt::format("\"{}\" is missing", key));
  return *found;
}

std::uint64_t natural(const Json& value, const char* what, std::uint64_t limit) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > limit)
    throw Error(fmt::format("{} is not a whole number from 0 to {}", what, limit));
  return value.get<std::uint64_t>();
}

std::string text(const Json& value, const char* what) {
  if (!value.is_string()) throw Error(fmt::format("\"{}\" is not a string", what));
  auto result = value.get<std::string>();
  validate_text(result, fmt::format("\"{}\"", what), max_name);
  return result;
}

std::string text_or(const Json& object, const char* key, std::string otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? std::move(otherwise) : text(*found, key);
}

template <class T, std::size_t N>
T choice(const Json& object, const char* key, const char* const (&names)[N]) {
  const std::string name = text(field(object, key), key);
  for (std::size_t i = 0; i < N; ++i)
    if (name == names[i]) return static_cast<T>(i);
  throw Error(fmt::format("\"{}\" is \"{}\" and not one of {}", key, name, fmt::join(names, ", ")));
}

double time_us(const Json& value) {
  const double us = value.is_number() ? value.get<double>() : -1;
  if (!std::isfinite(us) || us < 0 || us >= 1e15)
    throw Error("\"us\" is not a time in microseconds, 0 or more");
  return us;
}

constexpr const char* kSomeLives = "\"born\" and \"dies\" are of all tensors, or of none";

// When a tensor is born and dies, in numbers of ops. Absent: before the step, after it.
struct Life {
  std::optional<std::uint64_t> born, dies;
};

std::optional<std::uint64_t> number_or_none(const Json& line, const char* key) {
  const Json& value = field(line, key);
  if (value.is_null()) return std::nullopt;
  return natural(value, fmt::format("\"{}\"", key).c_str(), max_id);
}

class Import {
 public:
  void header(const Json& line);
  void record(const Json& line);  // a tensor or an op
  Profile finish();

 private:
  void tensor(const Json& line);
  void op(const Json& line);
  void enter_layer(const Json& line, const Op& op);
  void counts(const Json& line);
  void use(TensorId t, bool read_first);
  void place_lives();
  TensorId known(std::uint64_t id) const;
  std::vector<TensorId> operands(const Json& line, const char* key) const;

  Profile profile_;
  std::unordered_map<std::uint64_t, TensorId> ids_;
  std::vector<bool> used_;
  std::vector<Life> lives_;  // by tensor, or none
  std::optional<std::uint64_t> last_k_, layer_number_;
};

void Import::header(const Json& line) {
  if (!line.is_object() || line.value("format", Json()) != "tensor-trace")
    throw Error("this is not a tensor trace: its first line has no \"format\":\"tensor-trace\"");
  const std::uint64_t version = natural(field(line, "version"), "\"version\"", UINT32_MAX);
  if (version != 1)
    throw Error(fmt::format("version {} of the format is not known; only 1 is", version));
  ProfileMeta& meta = profile_.meta;
  meta.source = "trace";
  meta.exact = meta.complete = true;
  meta.command = text_or(line, "source", "");
  meta.model = text_or(line, "model", "");
  meta.framework = text_or(line, "framework", "");
  meta.incomplete_reason = text_or(line, "note", "");
  if (line.contains("batch")) meta.batch = natural(line["batch"], "\"batch\"", max_id);
  const Json page = line.value("page_bytes", Json());
  if (page.is_number_unsigned() && page.get<std::uint64_t>() <= 1u << 30 &&
      std::has_single_bit(page.get<std::uint64_t>()))
    meta.page_bytes = page.get<std::uint32_t>();
}

void Import::record(const Json& line) {
  if (!line.is_object()) throw Error("this is not a JSON object");
  if (line.contains("k"))
    op(line);
  else if (line.contains("t"))
    tensor(line);
  else
    throw Error("this is neither a tensor (\"t\") nor an op (\"k\")");
}

void Import::tensor(const Json& line) {
  const std::uint64_t id = natural(line["t"], "\"t\"", max_id);
  if (!ids_.emplace(id, TensorId(profile_.tensors.size())).second)
    throw Error(fmt::format("tensor {} is defined twice", id));
  Tensor tensor;
  tensor.name = text_or(line, "name", fmt::format("t{}", id));
  tensor.bytes = natural(field(line, "bytes"), "\"bytes\"", max_tensor_bytes);
  tensor.kind = choice<TensorKind>(line, "kind", {"global", "intermediate", "workspace"});
  if (line.contains("born")) {
    if (lives_.size() != profile_.tensors.size()) throw Error(kSomeLives);
    lives_.push_back({number_or_none(line, "born"), number_or_none(line, "dies")});
    tensor.ordinal = static_cast<std::uint32_t>(
        line.contains("ordinal") ? natural(line["ordinal"], "\"ordinal\"", UINT32_MAX) : 0);
  }
  profile_.tensors.push_back(std::move(tensor));
  used_.push_back(false);
}

TensorId Import::known(std::uint64_t id) const {
  const auto found = ids_.find(id);
  if (found == ids_.end()) throw Error(fmt::format("tensor {} is used but not defined", id));
  return found->second;
}

std::vector<TensorId> Import::operands(const Json& line, const char* key) const {
  const Json& ids = field(line, key);
  if (!ids.is_array()) throw Error(fmt::format("\"{}\" is not a list of tensors", key));
  std::vector<TensorId> result;
  for (const Json& id : ids) result.push_back(known(natural(id, "a tensor's id", max_id)));
  std::ranges::sort(result);
  const auto repeated = std::ranges::unique(result);  // x * x reads x twice
  result.erase(repeated.begin(), repeated.end());
  return result;
}

void Import::op(const Json& line) {
  const std::uint64_t k = natural(line["k"], "\"k\"", max_id);
  if (last_k_ && k <= *last_k_)
    throw Error(
        fmt::format("op {} comes after op {}; ops must stand in execution order", k, *last_k_));
  last_k_ = k;
  Op op;
  op.name = text(field(line, "name"), "name");
  op.parent = text_or(line, "op", "");
  op.us = time_us(field(line, "us"));
  op.phase = choice<Phase>(line, "phase", {"forward", "backward", "optimizer"});
  op.in = operands(line, "in");
  op.out = operands(line, "out");
  enter_layer(line, op);
  op.layer = LayerId(profile_.layers.size() - 1);
  for (const TensorId t : op.in) use(t, true);
  for (const TensorId t : op.out) use(t, false);
  counts(line);
  profile_.ops.push_back(std::move(op));
}

// Called before the op is appended: the last op is its predecessor.
void Import::enter_layer(const Json& line, const Op& op) {
  std::optional<std::uint64_t> number = layer_number_;
  if (line.contains("layer")) number = natural(line["layer"], "\"layer\"", max_id);
  const bool same_parent =
      !profile_.ops.empty() && !op.parent.empty() && profile_.ops.back().parent == op.parent;
  const bool stays = number ? number == layer_number_ : same_parent;
  layer_number_ = number;
  if (stays) return;
  const std::string by_parent = op.parent.empty() ? op.name : op.parent;
  profile_.layers.push_back(
      {text_or(line, "layer_name", number ? fmt::format("layer {}", *number) : by_parent),
       op.phase});
}

// During the import alloc_op and free_op say where a tensor was used first and last; a life that
// began before the step has no alloc_op. Called while the using op is not yet appended.
void Import::use(TensorId t, bool read_first) {
  Tensor& tensor = profile_.tensors[t.index()];
  if (tensor.kind == TensorKind::global) return;
  const OpId now(profile_.ops.size());
  const bool input = read_first && tensor.kind == TensorKind::intermediate;
  if (!used_[t.index()] && !input) tensor.alloc_op = now;
  used_[t.index()] = true;
  tensor.free_op = now;
}

void Import::counts(const Json& line) {
  const auto counts = line.find("acc");
  if (counts == line.end()) return;
  if (!counts->is_object()) throw Error("\"acc\" is not an object of counts by tensor");
  for (const auto& [key, value] : counts->items()) {
    require_shallow_json(key);
    const Json id = Json::parse(key, nullptr, false);
    const TensorId t = known(natural(id, "a tensor's id in \"acc\"", max_id));
    const std::uint64_t count = natural(value, "a count in \"acc\"", (std::uint64_t{1} << 37) - 1);
    profile_.accesses.push_back({t, OpId(profile_.ops.size()), count, 0});
    if (count > 0) use(t, false);
  }
}

// Of all tensors, or of none: lives that are told take the place of those that uses give.
void Import::place_lives() {
  if (lives_.empty()) return;
  if (lives_.size() != profile_.tensors.size()) throw Error(kSomeLives);
  if (last_k_.value_or(0) + 1 != profile_.ops.size())
    throw Error("where tensors are said to be born and to die, ops count from 0");
  const auto op_of = [&](const std::optional<std::uint64_t>& k) -> std::optional<OpId> {
    if (!k) return std::nullopt;
    if (*k >= profile_.ops.size())
      throw Error(fmt::format("a tensor is born or dies at op {}, which does not exist", *k));
    return OpId(static_cast<std::size_t>(*k));
  };
  for (std::size_t t = 0; t < lives_.size(); ++t) {
    auto& tensor = profile_.tensors[t];
    tensor.alloc_op = op_of(lives_[t].born);
    tensor.free_op = op_of(lives_[t].dies);
    tensor.foreign = false;
  }
}

Profile Import::finish() {
  for (std::size_t t = 0; t < used_.size(); ++t)
    if (!used_[t] && profile_.tensors[t].kind != TensorKind::global)
      profile_.tensors[t].foreign = true;
  place_lives();
  std::ranges::sort(profile_.accesses, {},
                    [](const AccessCount& a) { return std::pair(a.tensor, a.op); });
  for (const Op& op : profile_.ops) profile_.meta.step_us += op.us;
  profile_.meta.signature = step_signature(profile_);
  validate(profile_);
  return std::move(profile_);
}

}  // namespace

Profile read_tensor_trace(const std::string& path) {
  GzLines lines(path);
  Import import;
  std::string_view line;
  bool begun = false;
  try {
    while (lines.next(line)) {
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      require_shallow_json(line);
      const Json json = Json::parse(line);
      begun ? import.record(json) : import.header(json);
      begun = true;
    }
    if (!begun) throw Error("this is not a tensor trace: it is empty");
    return import.finish();
  } catch (const Json::exception& error) {
    throw Error(
        fmt::format("{}: this is not a line of JSON: {}", lines.place(), json_fault(error)));
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(path + ":")) throw;
    throw Error(fmt::format("{}: {}", lines.place(), error.what()));
  }
}

}  // namespace sentinel
