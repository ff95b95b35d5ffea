// Numbers, texts, lists and dictionaries as a file of Python's pickle or of JSON holds them.
//
// A pickle is a program for a stack machine. Only its instructions that build plain data are
// known here; one that would import a name or call something is an error, so nothing in a file can
// run. What a pickle shares (a stack frame, named once and referred to a thousand times) stays
// shared: memory is at most some 16 times the file. Whoever walks over the values has to see to it
// that shared ones do not multiply its work.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sentinel {

class PlainData {
 public:
  // natural: a whole number over INT64_MAX
  enum class Kind : std::uint8_t { none, boolean, integer, natural, real, text, list, dictionary };
  using Ref = std::uint32_t;

  std::size_t size() const { return nodes_.size(); }
  Kind kind(Ref r) const { return nodes_[r].kind; }
  std::optional<bool> boolean(Ref) const;           // nothing where it is none
  std::optional<std::int64_t> integer(Ref) const;   // likewise
  std::optional<std::uint64_t> natural(Ref) const;  // likewise; of an integer from 0 on, too
  std::optional<double> number(Ref) const;          // of any number
  std::string_view text(Ref) const;                 // empty where it is none
  std::span<const Ref> list(Ref) const;             // items; of a dictionary: key, value, …
  // The last of that key. Throws Error on a dictionary of more than 64 keys: nothing that is
  // looked for is in one.
  std::optional<Ref> find(Ref dictionary, std::string_view key) const;

  Ref add(Kind kind = Kind::none, std::uint64_t value = 0);
  Ref add_real(double);
  Ref add_text(std::string_view);
  void append(Ref list, std::span<const Ref> items);

 private:
  struct Node {
    Kind kind;
    std::uint32_t size = 0;  // of a text; of a list, which has room for the next power of two
    std::uint64_t at = 0;    // of a text in texts_, of a list in items_; else the value
  };
  std::deque<Node> nodes_;
  std::vector<Ref> items_;
  std::string texts_;
};

// The content of a file: a pickle of protocols 2 to 5, or JSON, by its first byte; gzip's packing
// of either is undone. Other kinds of file that people take for one are named in the error.
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
