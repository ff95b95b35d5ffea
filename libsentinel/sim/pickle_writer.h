// Writes plain data as Python's pickle, protocol 2, with the opcodes that PyTorch's memory viewer
// reads in a browser. Texts that repeat are written once, and lists in parts, as Python writes
// them: the viewer puts a part on JavaScript's stack. Nothing in a pickle of ours can name code to
// call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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
  struct Open {
    unsigned char end = 0;   // the opcode
    std::size_t values = 0;  // of a list's part
  };
  void value();  // one begins

  std::vector<Open> open_;
  std::map<std::string, std::uint32_t> texts_;  // by memo
};

}  // namespace sentinel::sim
