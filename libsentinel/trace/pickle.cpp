// Reads a pickle's plain data by a small machine of its own, which runs no code.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "sentinel/error.h"
#include "trace/plain_data.h"

namespace sentinel {
namespace {

using Ref = PlainData::Ref;
using Kind = PlainData::Kind;

// The instructions of pickletools that make plain data; the others have no entry in the table.
class Unpickler {
 public:
  Unpickler(std::string_view bytes, PlainData& data) : bytes_(bytes), data_(data) {}

  Ref run() {
    try {
      while (!stopped_) (this->*instruction())();
      return top();
    } catch (const Error& error) {
      throw Error(fmt::format("byte {}: {}", begin_, error.what()));
    }
  }

 private:
  using Step = void (Unpickler::*)();
  struct Row {
    unsigned char code;
    Step step;
  };

  Step instruction() {
    begin_ = at_;
    const auto code = static_cast<unsigned char>(take(1)[0]);
    static const auto table = by_code();
    if (table[code]) return table[code];
    throw Error(
        fmt::format("instruction 0x{:02x} would make an object or run code; only numbers, "
                    "texts, lists and dictionaries are read",
                    code));
  }

  static std::array<Step, 256> by_code() {
    using U = Unpickler;
    static constexpr Row rows[] = {{0x80, &U::protocol},
                                   {0x95, &U::frame},
                                   {'.', &U::stop},
                                   {'(', &U::mark},
                                   {'N', &U::none},
                                   {0x88, &U::truth<true>},
                                   {0x89, &U::truth<false>},
                                   {'J', &U::whole<4, true>},
                                   {'K', &U::whole<1, false>},
                                   {'M', &U::whole<2, false>},
                                   {0x8a, &U::long_of<1>},
                                   {0x8b, &U::long_of<4>},
                                   {'G', &U::real},
                                   {'X', &U::text<4>},
                                   {0x8c, &U::text<1>},
                                   {0x8d, &U::text<8>},
                                   {'B', &U::text<4>},
                                   {'C', &U::text<1>},
                                   {0x8e, &U::text<8>},
                                   {']', &U::empty<Kind::list>},
                                   {')', &U::empty<Kind::list>},
                                   {'}', &U::empty<Kind::dictionary>},
                                   {'a', &U::append},
                                   {'e', &U::append_marked},
                                   {'s', &U::append_pair},
                                   {'u', &U::append_marked},
                                   {'t', &U::tuple_marked},
                                   {0x85, &U::tuple<1>},
                                   {0x86, &U::tuple<2>},
                                   {0x87, &U::tuple<3>},
                                   {'q', &U::put<1>},
                                   {'r', &U::put<4>},
                                   {0x94, &U::memoize},
                                   {'h', &U::get<1>},
                                   {'j', &U::get<4>}};
    std::array<Step, 256> table{};
    for (const Row& row : rows) table[row.code] = row.step;
    return table;
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) throw Error("the file ends here; copy it again");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  std::uint64_t little(std::string_view bytes) const {
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  // PyTorch writes ten bytes a value and more.
  void push(Ref r) {
    if (++pushed_ > bytes_.size() / 2 + kAlwaysAllowed)
      throw Error("it holds more values than a snapshot of its length; take the snapshot again");
    stack_.push_back(r);
  }
  Ref top() const {
    if (stack_.size() <= floor()) throw Error("the stack is empty");
    return stack_.back();
  }
  Ref pop() {
    const Ref r = top();
    stack_.pop_back();
    return r;
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void require(Ref container, Kind kind) const {
    if (data_.kind(container) != kind) throw Error("something is appended to what is no container");
  }
  // The last values of the stack; valid until the next push.
  std::span<const Ref> pop(std::size_t count) {
    if (count > stack_.size() - floor()) throw Error("the stack is empty");
    const auto items = std::span<const Ref>(stack_).last(count);
    stack_.resize(stack_.size() - count);
    return items;
  }
  // What was pushed since the last mark, which is taken away.
  std::span<const Ref> marked() {
    if (marks_.empty()) throw Error("there is no mark");
    const auto items = pop(stack_.size() - floor());
    marks_.pop_back();
    return items;
  }
  void push_list(std::span<const Ref> items) {
    const Ref list = data_.add(Kind::list);
    data_.append(list, items);
    push(list);
  }

  void protocol() {
    if (const auto version = little(take(1)); version > 5)
      throw Error(fmt::format("protocol {} of pickle is not known", version));
  }
  void frame() { take(8); }
  void stop() { stopped_ = true; }
  void mark() { marks_.push_back(static_cast<std::uint32_t>(stack_.size())); }
  void none() { push(data_.add()); }
  template <bool value>
  void truth() {
    push(data_.add(Kind::boolean, value));
  }
  template <int size, bool is_signed>
  void whole() {
    const auto value = little(take(size));
    const auto extended = static_cast<std::int64_t>(static_cast<std::int32_t>(value));
    push(data_.add(Kind::integer, is_signed ? static_cast<std::uint64_t>(extended) : value));
  }
  // Two's complement; a number beyond 64 bits is nothing that is looked for here. From 2^63 on a
  // positive one has a ninth byte for its sign.
  template <int size>
  void long_of() {
    const auto bytes = take(little(take(size)));
    if (bytes.size() == 9 && bytes[8] == 0 && (bytes[7] & 0x80) != 0)
      return push(data_.add(Kind::natural, little(bytes.substr(0, 8))));
    if (bytes.size() > 8) return none();
    auto value = little(bytes);
    const auto unused = 8 * (8 - bytes.size());
    if (!bytes.empty() && unused > 0)
      value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
    push(data_.add(Kind::integer, value));
  }
  void real() {
    std::uint64_t bits = 0;
    for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
    push(data_.add_real(std::bit_cast<double>(bits)));
  }
  template <int size>
  void text() {
    const auto length = little(take(size));
    if (length > UINT32_MAX) throw Error("a text is too long");
    push(data_.add_text(take(length)));
  }
  template <Kind kind>
  void empty() {
    push(data_.add(kind));
  }
  void append() {
    const Ref item = pop();
    require(top(), Kind::list);
    data_.append(top(), {&item, 1});
  }
  void append_pair() {
    const auto pair = pop(2);
    require(top(), Kind::dictionary);
    data_.append(top(), pair);
  }
  void append_marked() {
    const auto items = marked();
    const Ref container = top();
    if (data_.kind(container) != Kind::dictionary)
      require(container, Kind::list);
    else if (items.size() % 2 != 0)
      throw Error("a key has no value");
    data_.append(container, items);
  }
  void tuple_marked() { push_list(marked()); }
  template <int size>
  void tuple() {
    push_list(pop(size));
  }
  // Python counts its places from 0 on.
  void remember(std::uint64_t place) {
    if (place >= bytes_.size()) throw Error("it keeps a value at a place that is out of reach");
    if (place >= memo_.size()) memo_.resize(place + 1, kNothing);
    if (memo_[place] == kNothing) ++remembered_;
    memo_[place] = top();
  }
  template <int size>
  void put() {
    remember(little(take(size)));
  }
  void memoize() { remember(remembered_); }
  template <int size>
  void get() {
    const auto place = little(take(size));
    if (place >= memo_.size() || memo_[place] == kNothing)
      throw Error("it refers to what is not there");
    push(memo_[place]);
  }

  static constexpr std::uint64_t kAlwaysAllowed = 1000;  // values, in however short a file
  static constexpr Ref kNothing = UINT32_MAX;

  std::string_view bytes_;
  PlainData& data_;
  std::size_t at_ = 0, begin_ = 0;  // in bytes_: what is read next, the instruction read last
  std::vector<Ref> stack_;
  std::vector<std::uint32_t> marks_;  // sizes of the stack
  std::vector<Ref> memo_;
  std::uint64_t pushed_ = 0, remembered_ = 0;
  bool stopped_ = false;
};

}  // namespace

Ref unpickle(std::string_view bytes, PlainData& into) { return Unpickler(bytes, into).run(); }

}  // namespace sentinel
