// Writes opcodes and little-endian arguments.
#include "sim/pickle_writer.h"

#include <utility>

#include "base/text.h"

namespace sentinel::sim {
namespace {

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

void PickleWriter::begin_list() {
  put(empty_list);
  put(mark);
  open_ += static_cast<char>(appends);
}

void PickleWriter::begin_dictionary() {
  put(empty_dictionary);
  put(mark);
  open_ += static_cast<char>(set_items);
}

void PickleWriter::end() {
  bytes_ += open_.back();
  open_.pop_back();
}

void PickleWriter::text(std::string_view text) {
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
void PickleWriter::number(std::uint64_t value) {
  if (value <= 0xff) {
    put(int_1);
    return little(value, 1);
  }
  if (value <= 0x7fff'ffff) {
    put(int_4);
    return little(value, 4);
  }
  const int bytes = value >> 63 != 0 ? 9 : 8;
  put(long_1);
  put(static_cast<unsigned char>(bytes));
  little(value, 8);
  if (bytes == 9) put(0);
}

void PickleWriter::boolean(bool value) { put(value ? new_true : new_false); }

std::string PickleWriter::take() {
  put(stop);
  return std::move(bytes_);
}

}  // namespace sentinel::sim
