// A plan as JSON. A plan file may come from elsewhere: each field has to be there and of its type;
// whether the numbers make sense together is verify()'s to say.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <iterator>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "plan/check/plan_file.h"
#include "sentinel/error.h"
#include "trace/json.h"
#include "trace/plain_data.h"

namespace sentinel::plan {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "sentinel-plan";
constexpr std::uint32_t kVersion = 3;

constexpr const char* kPools[] = {"short-lived", "long-lived", "persistent", "resident", "mixed"};
constexpr const char* kDirections[] = {"promote", "demote", "discard", "copy", "release"};

template <class T, class Record>
concept Of = std::same_as<std::remove_const_t<T>, Record>;

// Every field of each record with its name; the one list for writing and reading.
void for_each_field(Of<Placement> auto& p, auto visit) {
  visit("tensor", p.tensor);
  visit("group", p.group);
  visit("offset", p.offset);
}

void for_each_field(Of<Group> auto& g, auto visit) {
  visit("pool", g.pool);
  visit("offset", g.offset);
  visit("bytes", g.bytes);
  visit("first_layer", g.first_layer);
  visit("last_layer", g.last_layer);
  visit("reason", g.reason);
}

void for_each_field(Of<Move> auto& m, auto visit) {
  visit("tensor", m.tensor);
  visit("direction", m.direction);
  visit("trigger", m.trigger);
  visit("deadline", m.deadline);
  visit("tier", m.tier);
  visit("delay_us", m.delay_us);
  visit("reason", m.reason);
}

void for_each_field(Of<Recompute> auto& r, auto visit) {
  visit("op", r.op);
  visit("before", r.before);
  visit("keep", r.keep);
}

void for_each_field(Of<InPlace> auto& p, auto visit) {
  visit("tensor", p.tensor);
  visit("op", p.op);
}

void for_each_field(Of<Birth> auto& b, auto visit) {
  visit("tensor", b.tensor);
  visit("tier", b.tier);
}

void for_each_field(Of<IntervalPoint> auto& p, auto visit) {
  visit("layers", p.layers);
  visit("exposed_us", p.exposed_us);
  visit("reserved_bytes", p.reserved_bytes);
  visit("fits", p.fits);
}

void for_each_field(Of<Plan> auto& p, auto visit) {
  visit("version", p.version);
  visit("policy", p.policy);
  visit("machine", p.machine);
  visit("model", p.model);
  visit("profile_path", p.profile_path);
  visit("profile_signature", p.profile_signature);
  visit("fast_bytes", p.fast_bytes);
  visit("granule_bytes", p.granule_bytes);
  visit("part_bytes", p.part_bytes);
  visit("region_bytes", p.region_bytes);
  visit("reserved_bytes", p.reserved_bytes);
  visit("peak_fast_bytes", p.peak_fast_bytes);
  visit("interval_layers", p.interval_layers);
  visit("placements", p.placements);
  visit("groups", p.groups);
  visit("moves", p.moves);
  visit("recomputations", p.recomputations);
  visit("streamed_ops", p.streamed_ops);
  visit("in_place", p.in_place);
  visit("births", p.births);
  visit("curve", p.curve);
  visit("frame_pool_bytes", p.frame_pool_bytes);
  visit("smallest_budget", p.smallest_budget);
  visit("smallest_unstreamed_budget", p.smallest_unstreamed_budget);
  visit("paper_bound", p.paper_bound);
  visit("effort", p.effort);
  visit("predicted_step_us", p.predicted_step_us);
}

template <class T>
json written(const T& value) {
  return value;
}
template <class T>
json written(const std::vector<T>& list);
json written(Pool pool) { return kPools[static_cast<std::size_t>(pool)]; }
json written(Direction direction) { return kDirections[static_cast<std::size_t>(direction)]; }
template <class Tag>
json written(Id<Tag> id) {
  return id.value;
}
template <class Record>
requires requires(const Record& r) {
  for_each_field(r, [](auto, const auto&) {});
}
json written(const Record& record) {
  json object = json::object();
  for_each_field(record, [&](const char* key, const auto& field) { object[key] = written(field); });
  return object;
}
template <class T>
json written(const std::vector<T>& list) {
  json array = json::array();
  for (const T& item : list) array.push_back(written(item));
  return array;
}

// One value of the file, and where it stands in it.
class Value {
 public:
  Value(const PlainData& data, PlainData::Ref value, std::string where)
      : data_(data), value_(value), where_(std::move(where)) {}

  void into(std::string& text) const {
    require(data_.kind(value_) == PlainData::Kind::text, "a text");
    text = data_.text(value_);
  }
  void into(bool& flag) const {
    const auto found = data_.boolean(value_);
    require(found.has_value(), "true or false");
    flag = *found;
  }
  void into(double& number) const {
    const auto found = data_.number(value_);
    require(found && std::isfinite(*found), "a number");
    number = *found;
  }
  void into(std::uint64_t& number) const {
    const auto found = data_.natural(value_);
    require(found.has_value(), "a whole number from 0 on");
    number = *found;
  }
  void into(std::uint32_t& number) const {
    const auto found = data_.natural(value_);
    require(found && *found <= UINT32_MAX, "a whole number of 32 bits");
    number = static_cast<std::uint32_t>(*found);
  }
  template <class Tag>
  void into(Id<Tag>& id) const {
    into(id.value);
  }
  void into(Pool& pool) const { choose(kPools, pool); }
  void into(Direction& direction) const { choose(kDirections, direction); }
  // Grows item by item: a list of what is none ends at the first.
  template <class T>
  void into(std::vector<T>& list) const {
    require(data_.kind(value_) == PlainData::Kind::list, "a list");
    for (const auto item : data_.list(value_)) {
      const Value value(data_, item, fmt::format("{}[{}]", where_, list.size()));
      value.into(list.emplace_back());
    }
  }
  template <class Record>
  requires requires(Record& r) {
    for_each_field(r, [](auto, auto&) {});
  }
  void into(Record& record) const {
    require(data_.kind(value_) == PlainData::Kind::dictionary, "an object");
    for_each_field(record, [&](const char* key, auto& field) {
      const auto found = data_.find(value_, key);
      const auto where = where_.empty() ? std::string(key) : where_ + "." + key;
      if (!found) throw Error(fmt::format("{} is missing", where));
      Value(data_, *found, where).into(field);
    });
  }

 private:
  void require(bool holds, const char* what) const {
    if (!holds) throw Error(fmt::format("{} is not {}", where_, what));
  }
  template <class Enum, std::size_t N>
  void choose(const char* const (&names)[N], Enum& into) const {
    const auto* found =
        std::ranges::find_if(names, [&](const char* name) { return data_.text(value_) == name; });
    require(found != std::end(names), fmt::format("one of {}", fmt::join(names, ", ")).c_str());
    into = static_cast<Enum>(found - std::begin(names));
  }

  const PlainData& data_;
  PlainData::Ref value_;
  std::string where_;
};

// Throws Error on what is no plan, or one of another version.
void require_plan(const PlainFile& file, const std::string& where) {
  const auto format = file.data.find(file.root, "format");
  if (!format || file.data.text(*format) != kFormat)
    throw Error(fmt::format("{} is not a plan; `sentinel plan` makes one", where));
  const auto found = file.data.find(file.root, "version");
  const auto version = found ? file.data.natural(*found) : std::nullopt;
  if (version != kVersion)
    throw Error(
        fmt::format("{} is a plan of version {}, this program reads version {}; make it "
                    "again with `sentinel plan`",
                    where, version ? fmt::to_string(*version) : "unknown", kVersion));
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  json j = written(plan);
  j["format"] = kFormat;
  return json_text(j, 1) + "\n";
}

Plan plan_from_json(const std::string& text, const std::string& where) {
  const auto read = [&](const auto& step) {
    try {
      step();
    } catch (const Error& error) {
      throw Error(fmt::format("{} is not a readable plan: {}", where, error.what()));
    }
  };
  PlainFile file;
  read([&] { file.root = parse_json(text, file.data); });
  require_plan(file, where);
  Plan plan;
  read([&] {
    Value(file.data, file.root, "").into(plan);
    if (plan.fast_bytes > INT64_MAX) throw Error("fast_bytes is more than any memory has");
  });
  return plan;
}

}  // namespace sentinel::plan
