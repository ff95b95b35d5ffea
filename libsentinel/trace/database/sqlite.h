// The little of SQLite that the store needs: one connection, prepared statements, and errors that
// say what to do. A Statement must not outlive its Database. One thread at a time.
#pragma once

#include <sqlite3.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sentinel::sqlite {

class Database {
 public:
  // `attempt` begins every message: "cannot read profile run.sntl". An unchanging file is read
  // without locks, and nothing that lies beside it counts. In memory: a file's bytes, to be read.
  Database(const std::string& path, int flags, std::string attempt);
  static Database unchanging(const std::string& path, std::string attempt);
  static Database in_memory(std::string bytes, std::string attempt);
  ~Database();
  Database(Database&& other) noexcept
      : db_(std::exchange(other.db_, nullptr)),
        attempt_(std::move(other.attempt_)),
        bytes_(std::move(other.bytes_)) {}
  Database& operator=(Database&&) = delete;

  void exec(const char* sql);
  int try_exec(const char* sql);  // SQLite's own result code
  sqlite3* raw() { return db_; }
  [[noreturn]] void fail(int result);
  // Bytes of the file's beginning, read through SQLite's own descriptor: opening and closing the
  // file beside it would drop the POSIX locks of a writer in the same program.
  std::array<unsigned char, 100> header(std::int64_t& file_bytes);
  void abandon() { db_ = nullptr; }  // in a forked child: the connection is the parent's

 private:
  sqlite3* db_ = nullptr;
  std::string attempt_;
  std::unique_ptr<std::string> bytes_;  // of in_memory()
};

class Statement {
 public:
  Statement(Database& db, const char* sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Binds all parameters, executes to the end, and is ready again.
  template <class... Args>
  void run(const Args&... args) {
    int index = 0;
    (bind(++index, args), ...);
    finish();
  }
  bool step();  // true: a row is there

  // Columns of the current row; a value of another type than asked for is damage and throws.
  std::int64_t integer(int column);
  std::uint64_t natural(int column);  // 0 or more
  std::optional<std::uint64_t> optional_natural(int column);
  double real(int column);
  std::string text(int column);
  int type(int column) { return sqlite3_column_type(statement_, column); }
  void abandon() { statement_ = nullptr; }

 private:
  void bind(int index, std::int64_t value);
  void bind(int index, std::uint64_t value) { bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, std::uint32_t value) { bind(index, std::int64_t{value}); }
  void bind(int index, bool value) { bind(index, std::int64_t{value}); }
  void bind(int index, double value);
  void bind(int index, std::string_view value);
  void bind(int index, const std::string& value) { bind(index, std::string_view(value)); }
  void bind(int index, std::optional<std::uint64_t> value);
  void finish();
  void require(int column, bool fits);

  Database& db_;
  sqlite3_stmt* statement_ = nullptr;
};

}  // namespace sentinel::sqlite
