// Writes opcodes and little-endian arguments.
#include "sim/pickle_writer.h"

#include <utility>

#include "base/text.h"

namespace sentinel::sim {
namespace {

constexpr std::size_t kPart = 1000;  // values of a list

enum Code : unsigned char {
  mark = '(',
  empty_list = ']',
  empty_dictionary = '}',
  appends = 'e',
  set_items = 'u',
  unicode = 'X',
  int_1 = 'K',
  int_4 = 'J',
  long_1 = 0x8a,
  new_true = 0x88,
  new_false = 0x89,
  memo_put = 'r',
  memo_get = 'j',
  stop = '.',
};

}  // namespace

void PickleWriter::little(std::uint64_t value, int count) {
  for (; count > 0; --count, value >>= 8) put(static_cast<unsigned char>(value & 0xff));
}

void PickleWriter::value() {
  if (open_.empty() || open_.back().end != appends) return;
  if (++open_.back().values <= kPart) return;
  open_.back().values = 1;
  put(appends);
  put(mark);
}

void PickleWriter::begin_list() {
  value();
  put(empty_list);
  put(mark);
  open_.push_back({appends});
}

void PickleWriter::begin_dictionary() {
  value();
  put(empty_dictionary);
  put(mark);
  open_.push_back({set_items});
}

void PickleWriter::end() {
  put(open_.back().end);
  open_.pop_back();
}

void PickleWriter::text(std::string_view text) {
  value();
  auto shown = printable(text);
  const auto [known, fresh] =
      texts_.try_emplace(std::move(shown), static_cast<std::uint32_t>(texts_.size()));
  if (!fresh) {
    put(memo_get);
    return little(known->second, 4);
  }
  put(unicode);
  little(known->first.size(), 4);
  bytes_ += known->first;
  put(memo_put);
  little(known->second, 4);
}

// A long is signed: a number of eight bytes with the highest bit set takes a ninth.
void PickleWriter::number(std::uint64_t number) {
  value();
  if (number <= 0xff) {
    put(int_1);
    return little(number, 1);
  }
  if (number <= 0x7fff'ffff) {
    put(int_4);
    return little(number, 4);
  }
  const int bytes = number >> 63 != 0 ? 9 : 8;
  put(long_1);
  put(static_cast<unsigned char>(bytes));
  little(number, 8);
  if (bytes == 9) put(0);
}

void PickleWriter::boolean(bool yes) {
  value();
  put(yes ? new_true : new_false);
}

std::string PickleWriter::take() {
  put(stop);
  return std::move(bytes_);
}

}  // namespace sentinel::sim
