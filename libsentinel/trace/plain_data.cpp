// Checks kinds and ranges of plain values, and finds members by name.
#include "trace/plain_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "sentinel/error.h"
#include "trace/gz_input.h"
#include "trace/json.h"

namespace sentinel {
namespace {

using Ref = PlainData::Ref;
using Kind = PlainData::Kind;

constexpr InputKind kSnapshots{"snapshots", 1_GiB,
                               "record fewer steps, or leave out the stacks (stacks=\"python\")"};
constexpr std::size_t max_searched = 64;  // keys: each look passes over all of them

// Files that people take for a pickle or JSON, by how they begin. JSON begins with none of these.
struct Stranger {
  std::string_view begin;
  const char* name;
};
using namespace std::string_view_literals;
constexpr const char* kOldPickle =
    "a pickle of protocol 0 or 1; protocols 2 to 5 are read, of which PyTorch writes one: load it "
    "in Python and write it again with pickle.dump(value, file, protocol=4)";
constexpr Stranger kStrangers[] = {
    {"SQLite format 3\0"sv, "an SQLite database, not a pickle or JSON"},
    {"PK\x03\x04"sv,
     "a zip archive, as torch.save() writes, not a pickle or JSON; name its pickle"},
    {"\x1f\x8b"sv, "packed by gzip twice; unpack it once with gunzip"},
    {"\xfd"
     "7zXZ"sv,
     "packed by xz; unpack it first"},
    {"\x28\xb5\x2f\xfd"sv, "packed by zstd; unpack it first"},
    {"BZh"sv, "packed by bzip2; unpack it first"},
    {"\x7f"
     "ELF"sv,
     "a program, not a pickle or JSON"},
    {"<"sv, "a page of HTML or XML, not a pickle or JSON"},
    {"("sv, kOldPickle},
    {"}"sv, kOldPickle},
    {"]"sv, kOldPickle},
    {"c"sv, kOldPickle},
};

void require_known(std::string_view bytes) {
  if (bytes.empty()) throw Error("the file is empty");
  for (const auto& stranger : kStrangers)
    if (bytes.starts_with(stranger.begin)) throw Error(fmt::format("this is {}", stranger.name));
  const auto first = bytes.find_first_not_of(" \t\r\n");
  if (first == bytes.npos || bytes.find_first_of("\x80{[", first) != first)
    throw Error("this is neither a pickle of protocols 2 to 5 nor JSON's objects or lists");
}

// Called by the parser for each piece, so that no depth of nesting needs a stack of calls.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(PlainData& data, std::string_view text) : data_(data), text_(text) {}
  Ref root() const { return root_; }

  bool null() override { return put(data_.add()); }
  bool boolean(bool value) override { return put(data_.add(Kind::boolean, value)); }
  bool number_integer(std::int64_t value) override {
    return put(data_.add(Kind::integer, static_cast<std::uint64_t>(value)));
  }
  bool number_unsigned(std::uint64_t value) override {
    return put(data_.add(value > INT64_MAX ? Kind::natural : Kind::integer, value));
  }
  bool number_float(double value, const std::string&) override {
    return put(data_.add_real(value));
  }
  bool string(std::string& value) override { return put(data_.add_text(value)); }
  bool binary(binary_t&) override { return put(data_.add()); }
  bool start_object(std::size_t) override { return open(Kind::dictionary); }
  bool key(std::string& name) override {
    const Ref r = data_.add_text(name);
    data_.append(open_.back(), {&r, 1});
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Kind::list); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
    throw Error(fmt::format("this is not JSON: {}", json_fault(e, text_)));
  }

 private:
  bool put(Ref r) {
    if (open_.empty())
      root_ = r;
    else
      data_.append(open_.back(), {&r, 1});
    return true;
  }
  bool open(Kind kind) {
    if (open_.size() == kDeepestJson) throw too_deep();
    const Ref r = data_.add(kind);
    put(r);
    open_.push_back(r);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  PlainData& data_;
  std::string_view text_;
  Ref root_ = 0;
  std::vector<Ref> open_;
};

}  // namespace

std::optional<bool> PlainData::boolean(Ref r) const {
  if (kind(r) != Kind::boolean) return std::nullopt;
  return nodes_[r].at != 0;
}

std::optional<std::int64_t> PlainData::integer(Ref r) const {
  if (kind(r) != Kind::integer) return std::nullopt;
  return static_cast<std::int64_t>(nodes_[r].at);
}

std::optional<std::uint64_t> PlainData::natural(Ref r) const {
  if (kind(r) != Kind::natural && integer(r).value_or(-1) < 0) return std::nullopt;
  return nodes_[r].at;
}

std::optional<double> PlainData::number(Ref r) const {
  if (kind(r) == Kind::real) return std::bit_cast<double>(nodes_[r].at);
  if (kind(r) == Kind::natural) return static_cast<double>(nodes_[r].at);
  if (const auto value = integer(r)) return static_cast<double>(*value);
  return std::nullopt;
}

std::string_view PlainData::text(Ref r) const {
  if (kind(r) != Kind::text) return {};
  return std::string_view(texts_).substr(nodes_[r].at, nodes_[r].size);
}

std::span<const Ref> PlainData::list(Ref r) const {
  if (kind(r) != Kind::list && kind(r) != Kind::dictionary) return {};
  return std::span(items_).subspan(nodes_[r].at, nodes_[r].size);
}

std::optional<Ref> PlainData::find(Ref dictionary, std::string_view key) const {
  if (kind(dictionary) != Kind::dictionary) return std::nullopt;
  const auto items = list(dictionary);
  if (items.size() / 2 > max_searched)
    throw Error(
        fmt::format("a dictionary of {} keys stands where one of a few belongs", items.size() / 2));
  for (std::size_t i = items.size() / 2; i-- > 0;)
    if (kind(items[2 * i]) == Kind::text && text(items[2 * i]) == key) return items[2 * i + 1];
  return std::nullopt;
}

Ref PlainData::add(Kind kind, std::uint64_t value) {
  if (nodes_.size() >= UINT32_MAX) throw Error("it holds too many values");
  nodes_.push_back({.kind = kind, .at = value});
  return static_cast<Ref>(nodes_.size() - 1);
}

// A list that outgrows its room moves to the end of all items, or grows where it stands there.
void PlainData::append(Ref list, std::span<const Ref> items) {
  Node& node = nodes_[list];
  const std::size_t room = node.size == 0 ? 0 : std::bit_ceil(std::size_t{node.size});
  const std::size_t size = node.size + items.size();
  if (size > UINT32_MAX) throw Error("a list is too long");
  if (size > room) {
    const std::size_t from = node.at;
    if (room == 0 || from + room != items_.size()) node.at = items_.size();
    items_.resize(node.at + std::bit_ceil(size));
    if (node.at != from) std::copy_n(&items_[from], node.size, &items_[node.at]);
  }
  std::ranges::copy(items, items_.begin() + static_cast<std::ptrdiff_t>(node.at + node.size));
  node.size = static_cast<std::uint32_t>(size);
}

Ref PlainData::add_real(double value) {
  return add(Kind::real, std::bit_cast<std::uint64_t>(value));
}

Ref PlainData::add_text(std::string_view text) {
  const Ref r = add(Kind::text, texts_.size());
  nodes_[r].size = static_cast<std::uint32_t>(text.size());
  texts_ += text;
  return r;
}

Ref parse_json(std::string_view text, PlainData& into) {
  Builder builder(into, text);
  nlohmann::json::sax_parse(text, &builder);
  return builder.root();
}

PlainFile parse_plain(std::string_view bytes, const std::string& where) {
  PlainFile file;
  try {
    constexpr char kPickle = '\x80';
    require_known(bytes);
    file.root =
        bytes.starts_with(kPickle) ? unpickle(bytes, file.data) : parse_json(bytes, file.data);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", where, error.what()));
  }
  return file;
}

PlainFile read_plain_file(const std::string& path) {
  return parse_plain(read_maybe_packed(path, fmt::format("cannot read {}", path), kSnapshots),
                     path);
}

}  // namespace sentinel
