// Opens connections, binds and steps statements, and translates SQLite's errors.
#include "trace/database/sqlite.h"

#include <fmt/format.h>

#include <cctype>
#include <cerrno>

#include "sentinel/error.h"

namespace sentinel::sqlite {
namespace {

const char* advice(int result) {
  switch (result & 0xff) {
    case SQLITE_NOTADB:
      return "it is not a Sentinel profile, or its beginning is damaged";
    case SQLITE_CORRUPT:
    case SQLITE_ERROR:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
      return "the file is damaged; record it again or take a copy of it";
    case SQLITE_FULL:
      return "the disk is full; free some space or name a file elsewhere";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "another process is writing it; wait for it or name another file";
    case SQLITE_CANTOPEN:
      return "it, or the -wal file beside it, cannot be opened; copy both to a "
             "folder you can write to";
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return "permission is missing; check the owner of the file and its folder";
    default:
      return "the file system failed; check the disk";
  }
}

std::string uri_of(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path)
    uri += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '/'
               ? std::string(1, c)
               : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return uri;
}

}  // namespace

Database::Database(const std::string& path, int flags, std::string attempt)
    : attempt_(std::move(attempt)) {
  const int result = sqlite3_open_v2(path.c_str(), &db_, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  if (result == SQLITE_OK) return;
  const int os_error = db_ == nullptr ? ENOMEM : sqlite3_system_errno(db_);
  sqlite3_close(db_);
  throw Error(fmt::format("{}: {}", attempt_, advice(result)), os_error);
}

Database Database::unchanging(const std::string& path, std::string attempt) {
  return {uri_of(path) + "?immutable=1", SQLITE_OPEN_READONLY | SQLITE_OPEN_URI,
          std::move(attempt)};
}

Database Database::in_memory(std::string bytes, std::string attempt) {
  Database db(":memory:", SQLITE_OPEN_READWRITE, std::move(attempt));
  db.bytes_ = std::make_unique<std::string>(std::move(bytes));
  const auto size = static_cast<sqlite3_int64>(db.bytes_->size());
  const int result =
      sqlite3_deserialize(db.db_, "main", reinterpret_cast<unsigned char*>(db.bytes_->data()), size,
                          size, SQLITE_DESERIALIZE_READONLY);
  if (result != SQLITE_OK) db.fail(result);
  return db;
}

Database::~Database() { sqlite3_close(db_); }

int Database::try_exec(const char* sql) {
  return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
}

void Database::exec(const char* sql) {
  if (const int result = try_exec(sql); result != SQLITE_OK) fail(result);
}

void Database::fail(int result) {
  const int os_error = (result & 0xff) == SQLITE_FULL ? ENOSPC : 0;
  throw Error(fmt::format("{}: {} (SQLite {})", attempt_, advice(result), result), os_error);
}

std::array<unsigned char, 100> Database::header(std::int64_t& file_bytes) {
  std::array<unsigned char, 100> bytes{};
  sqlite3_file* file = nullptr;
  int result = sqlite3_file_control(db_, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  sqlite3_int64 size = 0;
  if (result == SQLITE_OK) result = file->pMethods->xFileSize(file, &size);
  if (result == SQLITE_OK) result = file->pMethods->xRead(file, bytes.data(), bytes.size(), 0);
  if (result != SQLITE_OK && result != SQLITE_IOERR_SHORT_READ) fail(result);
  file_bytes = size;
  return bytes;
}

Statement::Statement(Database& db, const char* sql) : db_(db) {
  const int result =
      sqlite3_prepare_v3(db.raw(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement_, nullptr);
  if (result != SQLITE_OK) db.fail(result);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

bool Statement::step() {
  const int result = sqlite3_step(statement_);
  if (result != SQLITE_ROW && result != SQLITE_DONE) db_.fail(result);
  return result == SQLITE_ROW;
}

void Statement::finish() {
  const int result = sqlite3_step(statement_);
  sqlite3_reset(statement_);
  if (result != SQLITE_DONE) db_.fail(result);
}

void Statement::bind(int index, std::int64_t value) {
  sqlite3_bind_int64(statement_, index, value);
}

void Statement::bind(int index, double value) { sqlite3_bind_double(statement_, index, value); }

void Statement::bind(int index, std::string_view value) {
  // SQLITE_STATIC: run() executes before it returns, while the caller's string lives.
  sqlite3_bind_text64(statement_, index, value.data() == nullptr ? "" : value.data(), value.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
}

void Statement::bind(int index, std::optional<std::uint64_t> value) {
  if (value)
    bind(index, *value);
  else
    sqlite3_bind_null(statement_, index);
}

void Statement::require(int column, bool fits) {
  if (!fits)
    throw Error(fmt::format("a value of \"{}\" is out of its range",
                            sqlite3_column_name(statement_, column)));
}

std::int64_t Statement::integer(int column) {
  require(column, type(column) == SQLITE_INTEGER);
  return sqlite3_column_int64(statement_, column);
}

std::uint64_t Statement::natural(int column) {
  const std::int64_t value = integer(column);
  require(column, value >= 0);
  return static_cast<std::uint64_t>(value);
}

std::optional<std::uint64_t> Statement::optional_natural(int column) {
  if (type(column) == SQLITE_NULL) return std::nullopt;
  return natural(column);
}

double Statement::real(int column) {
  require(column, type(column) == SQLITE_FLOAT || type(column) == SQLITE_INTEGER);
  return sqlite3_column_double(statement_, column);
}

std::string Statement::text(int column) {
  require(column, type(column) == SQLITE_TEXT);
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  const int length = sqlite3_column_bytes(statement_, column);
  require(column, bytes != nullptr);
  return {bytes, static_cast<std::size_t>(length)};
}

}  // namespace sentinel::sqlite
