// Reads a machine description from TOML, and checks its tiers, links and units.
#include "sim/machine_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <sstream>

#include "base/cache.h"
#include "base/input.h"
#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel::sim {
namespace {

// Within these, all times and sums of them are numbers, and no sum of sizes wraps.
constexpr double kMostNumber = 1e15;     // microseconds, among others
constexpr double kMostBandwidth = 1e18;  // bytes per second
constexpr double kMostCapacity = 0x1p60, kMostGranule = 0x1p40;
constexpr std::size_t kMostTiers = 16, kMostLinks = 64;

// One table of the file; every getter throws Error with file and line.
class Section {
 public:
  Section(const toml::table& table, const std::string& where) : table_(table), where_(where) {}

  void allow(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : table_)
      if (std::find(keys.begin(), keys.end(), key.str()) == keys.end())
        fail(value, fmt::format("unknown key \"{}\"", key.str()));
  }

  std::string text(std::string_view key, bool required = false) const {
    const toml::node* node = table_.get(key);
    if (!node && !required) return {};
    if (!node) fail(table_, fmt::format("\"{}\" is missing", key));
    if (const auto value = node->value<std::string>(); value && !value->empty()) return *value;
    fail(*node, fmt::format("\"{}\" must be a text", key));
  }

  double number(std::string_view key) const {
    const toml::node* node = table_.get(key);
    if (!node) return 0;
    return limited(key, positive(*node, key), kMostNumber);
  }

  double rate(std::string_view key) const {
    const toml::node* node = table_.get(key);
    return node ? limited(key, positive(*node, key), kMostBandwidth) : 0;
  }

  std::uint64_t size(std::string_view key, double most = kMostCapacity) const {
    const double bytes =
        quantity(key, [](std::string_view s) { return static_cast<double>(parse_bytes(s)); });
    return static_cast<std::uint64_t>(limited(key, bytes, most));
  }
  double bandwidth(std::string_view key) const {
    const double bw = limited(key, quantity(key, parse_bandwidth), kMostBandwidth);
    if (bw > 0 && bw < 1) fail(*table_.get(key), fmt::format("\"{}\" is below 1 B/s", key));
    return bw;
  }

  bool flag(std::string_view key) const {
    const toml::node* node = table_.get(key);
    if (!node) return false;
    if (const auto value = node->value_exact<bool>()) return *value;
    fail(*node, fmt::format("\"{}\" must be true or false", key));
  }

  std::vector<std::string> names(std::string_view key) const {
    std::vector<std::string> list;
    const toml::node* node = table_.get(key);
    const toml::array* array = node ? node->as_array() : nullptr;
    if (!array) fail(table_, fmt::format("\"{}\" must be a list of tier names", key));
    for (const toml::node& item : *array) list.push_back(item.value_or(std::string()));
    return list;
  }

  std::vector<Section> sections(std::string_view key) const {
    std::vector<Section> list;
    const toml::node* node = table_.get(key);
    if (!node) return list;
    if (!node->is_array_of_tables()) fail(*node, fmt::format("write [[{}]] for each {}", key, key));
    for (const toml::node& item : *node->as_array()) list.emplace_back(*item.as_table(), where_);
    return list;
  }

  [[noreturn]] void fail(const std::string& what) const { fail(table_, what); }

 private:
  [[noreturn]] void fail(const toml::node& at, const std::string& what) const {
    throw Error(fmt::format("{}:{}: {}", where_, at.source().begin.line, what));
  }

  double positive(const toml::node& node, std::string_view key) const {
    const auto value = node.value<double>();
    if (!value || !std::isfinite(*value) || *value < 0 || *value >= 0x1p63)
      fail(node, fmt::format("\"{}\" must be a number that is not negative", key));
    return *value;
  }

  double limited(std::string_view key, double value, double most) const {
    if (value > most)
      fail(*table_.get(key),
           fmt::format("\"{}\" is larger than {:g}, which no machine has", key, most));
    return value;
  }

  template <class Parse>
  double quantity(std::string_view key, Parse parse) const {
    const toml::node* node = table_.get(key);
    if (!node) return 0;
    if (!node->is_string()) return positive(*node, key);
    try {
      return parse(*node->value<std::string>());
    } catch (const Error& e) {
      fail(*node, fmt::format("\"{}\": {}", key, e.what()));
    }
  }

  const toml::table& table_;
  const std::string& where_;
};

TierSpec read_tier(const Section& s) {
  s.allow({"name", "capacity", "read_bw", "write_bw", "latency_us", "byte_addressable"});
  return {.name = s.text("name", true),
          .capacity = s.size("capacity"),
          .read_bw = s.bandwidth("read_bw"),
          .write_bw = s.bandwidth("write_bw"),
          .latency_us = s.number("latency_us"),
          .byte_addressable = s.flag("byte_addressable")};
}

LinkSpec read_link(const Section& s, const Machine& machine) {
  s.allow({"name", "bw", "tiers", "half_duplex"});
  LinkSpec link{.name = s.text("name", true),
                .bw = s.bandwidth("bw"),
                .tiers = s.names("tiers"),
                .half_duplex = s.flag("half_duplex")};
  for (const std::string& tier : link.tiers)
    if (std::ranges::none_of(machine.tiers, [&](const TierSpec& t) { return t.name == tier; }))
      s.fail(fmt::format("link \"{}\" names tier \"{}\", which does not exist", link.name, tier));
  if (link.tiers.empty()) s.fail(fmt::format("link \"{}\" names no tier", link.name));
  return link;
}

Machine read_machine(const Section& s) {
  s.allow({"name", "source", "fault_us", "fault_batch", "granule", "exclusive", "cpu_s_per_gb",
           "flops", "conv_flops", "half_flops", "op_us", "tier", "link"});
  Machine machine{.name = s.text("name", true),
                  .source = s.text("source"),
                  .fault_us = s.number("fault_us"),
                  .exclusive = s.flag("exclusive"),
                  .cpu_s_per_gb = s.number("cpu_s_per_gb"),
                  .compute = {.flops = s.rate("flops"),
                              .conv_flops = s.rate("conv_flops"),
                              .half_flops = s.rate("half_flops"),
                              .op_us = s.number("op_us")}};
  if (const auto batch = s.size("fault_batch", kMostGranule)) machine.fault_batch_bytes = batch;
  if (const auto granule = s.size("granule", kMostGranule)) machine.granule_bytes = granule;
  if (machine.granule_bytes % 4096 != 0) s.fail("\"granule\" must be a multiple of 4 KiB");
  for (const Section& tier : s.sections("tier")) machine.tiers.push_back(read_tier(tier));
  if (machine.tiers.size() < 2) s.fail("a machine has at least two tiers, the fastest first");
  if (machine.tiers.size() > kMostTiers)
    s.fail(fmt::format("a machine has at most {} tiers", kMostTiers));
  if (s.sections("link").size() > kMostLinks)
    s.fail(fmt::format("a machine has at most {} links", kMostLinks));
  for (const Section& link : s.sections("link")) machine.links.push_back(read_link(link, machine));
  return machine;
}

constexpr InputKind kDescriptions{"machine descriptions", 1_MiB, "name another file"};

std::string attempt(const std::string& path) {
  return fmt::format("cannot read machine description {}", path);
}

// Variable of the environment with the description that no cache could keep.
std::string carried(const std::string& name) {
  std::string variable = "SENTINEL_MEASURED_" + name;
  std::ranges::replace(variable, '-', '_');
  return variable;
}

std::string kept(const std::string& name, const std::string& attempt) {
  const char* text = std::getenv(carried(name).c_str());
  return text != nullptr ? text : cache::read(name + ".toml", attempt);
}

Machine read_local_machine(const std::string& name) {
  const auto path = local_machine_path(name);
  std::string text;
  try {
    text = kept(name, attempt(path));
  } catch (const Error& error) {
    if (error.code() != ENOENT) throw;
    throw Error(attempt(path) + "; `sentinel bench --tiers` measures this machine and writes it",
                ENOENT);
  }
  auto machine = parse_machine(text, path);
  machine.exclusive = true;  // as engines are, whatever older files say
  return machine;
}

std::string known_names() {
  std::string names;
  for (const BuiltinMachine& m : builtin_machines()) names += std::string(m.name) + ", ";
  return names + "local, or the path of a TOML file";
}

// A name in the cache, and not the path of another file.
bool is_local(const std::string& name) {
  return (name == "local" || name.starts_with("local-")) && name.find('/') == name.npos;
}

std::string toml_text(std::string_view text) {
  std::ostringstream out;
  out << toml::value<std::string>(std::string(text));
  return out.str();
}

// toml++ bounds how deep values lie in one another, but not how many parts a dotted key has, and
// goes down into what such a key makes by recursion. Throws Error that names file and line.
void require_shallow_toml(std::string_view text, const std::string& where) {
  constexpr int kMostDots = 32;  // outside of quotes, in a line: no description has more than three
  int line = 1, dots = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      dots = 0;
      quote = 0;
    } else if (quote != 0) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (c == '.' && ++dots > kMostDots) {
      throw Error(fmt::format("{}:{}: a key has more parts than any of a machine description",
                              where, line));
    }
  }
}

}  // namespace

double parse_bandwidth(std::string_view text) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double scale = unit == "GB/s" ? 1e9 : unit == "MB/s" ? 1e6 : unit == "B/s" ? 1 : 0;
  if (ec != std::errc() || scale == 0 || !std::isfinite(value) || value < 0)
    throw Error(fmt::format("\"{}\" is not a bandwidth; write for example 15.75GB/s", text));
  return value * scale;
}

Machine parse_machine(std::string_view text, const std::string& where) {
  require_shallow_toml(text, where);
  try {
    const toml::table table = toml::parse(text, where);
    return read_machine(Section(table, where));
  } catch (const toml::parse_error& e) {
    throw Error(fmt::format("{}:{}: this is not TOML from column {} on", where,
                            e.source().begin.line, e.source().begin.column));
  }
}

Machine find_machine(const std::string& name) {
  for (const BuiltinMachine& m : builtin_machines())
    if (m.name == name) return parse_machine(m.toml, name);
  if (is_local(name)) return read_local_machine(name);
  if (name.find('/') == std::string::npos && !name.ends_with(".toml"))
    throw Error(fmt::format("there is no machine \"{}\"; known are {}", name, known_names()));
  return parse_machine(read_input(name, attempt(name), kDescriptions), name);
}

std::string machine_to_toml(const Machine& machine) {
  std::string text = fmt::format(
      "name = {}\n{}fault_us = {}\nfault_batch = {}\ngranule = {}\n"
      "exclusive = {}\ncpu_s_per_gb = {}\n",
      toml_text(machine.name),
      machine.source.empty() ? "" : fmt::format("source = {}\n", toml_text(machine.source)),
      machine.fault_us, machine.fault_batch_bytes, machine.granule_bytes, machine.exclusive,
      machine.cpu_s_per_gb);
  const auto& compute = machine.compute;
  if (compute.flops > 0)
    text += fmt::format("flops = {}\nconv_flops = {}\nhalf_flops = {}\nop_us = {}\n", compute.flops,
                        compute.conv_flops, compute.half_flops, compute.op_us);
  for (const TierSpec& t : machine.tiers)
    text += fmt::format(
        "\n[[tier]]\nname = {}\ncapacity = {}\nread_bw = {}\nwrite_bw = {}\nlatency_us = {}\n"
        "byte_addressable = {}\n",
        toml_text(t.name), t.capacity, t.read_bw, t.write_bw, t.latency_us, t.byte_addressable);
  for (const LinkSpec& l : machine.links) {
    std::string tiers;
    for (const std::string& tier : l.tiers) tiers += (tiers.empty() ? "" : ", ") + toml_text(tier);
    text += fmt::format("\n[[link]]\nname = {}\nbw = {}\ntiers = [{}]\nhalf_duplex = {}\n",
                        toml_text(l.name), l.bw, tiers, l.half_duplex);
  }
  return text;
}

void write_local_machine(const std::string& name, const Machine& machine) {
  const auto text = machine_to_toml(machine);
  setenv(carried(name).c_str(), text.c_str(), 1);
  cache::write(name + ".toml", text,
               fmt::format("cannot write machine description {}", local_machine_path(name)));
  unsetenv(carried(name).c_str());
}

bool has_local_machine(const std::string& name) {
  try {
    kept(name, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string local_machine_path(const std::string& name) {
  return cache::place() + "/" + name + ".toml";
}

}  // namespace sentinel::sim
