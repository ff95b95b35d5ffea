// Writes plain data as Python's pickle, protocol 2, with the opcodes that PyTorch's memory viewer
// reads in a browser. Texts that repeat are written once. Nothing in it can name code to call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace sentinel::sim {

class PickleWriter {
 public:
  PickleWriter() : bytes_("\x80\x02", 2) {}

  // A list or dictionary holds what is written until end().
  void begin_list();
  void begin_dictionary();
  void end();
  void key(std::string_view name) { text(name); }  // its value follows
  void text(std::string_view);                     // what is not UTF-8 is escaped
  void number(std::uint64_t);
  void boolean(bool);

  std::string take();  // once all is ended

 private:
  void put(unsigned char code) { bytes_ += static_cast<char>(code); }
  void little(std::uint64_t value, int count);

  std::string bytes_;
  std::string open_;                            // the opcode that ends each of the open ones
  std::map<std::string, std::uint32_t> texts_;  // by memo
};

}  // namespace sentinel::sim
