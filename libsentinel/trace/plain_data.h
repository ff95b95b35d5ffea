// Numbers, texts, lists and dictionaries as a file of Python's pickle or of JSON holds them.
//
// A pickle is a program for a stack machine. Only its instructions that build plain data are
// known here; one that would import a name or call something is an error, so nothing in a file can
// run. What a pickle shares (a stack frame, named once and referred to a thousand times) stays
// shared, and memory grows with the file at most.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sentinel {

class PlainData {
 public:
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, list, dictionary };
  using Ref = std::uint32_t;

  Kind kind(Ref r) const { return nodes_[r].kind; }
  std::optional<std::int64_t> integer(Ref r) const;  // nothing where it is none
  std::optional<double> number(Ref) const;           // of an integer or a real
  std::string_view text(Ref) const;                  // empty where it is none
  std::span<const Ref> list(Ref) const;              // items; of a dictionary: key, value, …
  // The last of that key. Throws Error on a dictionary of more than 256 keys: nothing that is
  // looked for is in one.
  std::optional<Ref> find(Ref dictionary, std::string_view key) const;

  Ref add(Kind kind = Kind::none, std::int64_t integer = 0);
  Ref add_real(double);
  Ref add_text(std::string_view);
  void append(Ref list, Ref item) { lists_[nodes_[list].at].push_back(item); }

 private:
  struct Node {
    Kind kind;
    std::uint32_t size = 0;  // of a text
    std::uint64_t at = 0;    // of a text in texts_, of a list in lists_; else the value
  };
  std::vector<Node> nodes_;
  std::vector<std::vector<Ref>> lists_;
  std::string texts_;
};

// What a file holds, pickle (protocols 2 to 5) or JSON by its first byte.
struct PlainFile {
  PlainData data;
  PlainData::Ref root = 0;
};
// Both throw Error that begins with the file and says at which byte of a pickle, line of JSON.
PlainFile read_plain_file(const std::string& path);
PlainFile parse_plain(std::string_view bytes, const std::string& where);

PlainData::Ref unpickle(std::string_view bytes, PlainData& into);   // throws Error
PlainData::Ref parse_json(std::string_view text, PlainData& into);  // throws Error

}  // namespace sentinel
