// Reads a profile from SQLite, and trusts neither its tables nor the files beside it.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <filesystem>

#include "base/folder.h"
#include "base/input.h"
#include "base/units.h"
#include "sentinel/error.h"
#include "trace/database/side_files.h"
#include "trace/database/sqlite.h"
#include "trace/schema.h"
#include "trace/store.h"
#include "trace/validate.h"

namespace sentinel {
namespace {

constexpr std::string_view magic{"SQLite format 3\0", 16};

std::string attempt(const std::string& path) { return fmt::format("cannot read profile {}", path); }

constexpr InputKind kProfiles{"profiles", 4_GiB, "record a shorter step"};

// Behind the user's links: a recording's files lie beside the target.
std::string require_file(const std::string& path, struct stat& found) {
  if (stat(path.c_str(), &found) != 0)
    throw Error(errno == ENOENT
                    ? fmt::format("{}: make one with \"sentinel record -o {} -- COMMAND\"",
                                  attempt(path), path)
                    : attempt(path),
                errno);
  require_input(found, attempt(path), kProfiles);
  std::error_code gone;
  const auto file = std::filesystem::canonical(path, gone);
  if (gone) throw Error(attempt(path), gone.value());
  return file.string();
}

std::uint64_t big_endian(const unsigned char* bytes, int count) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | bytes[i];
  return value;
}

// A writer killed as it finished leaves a journal that a read-only connection may not apply. The
// writer that still lives is not disturbed: SQLite asks for its locks.
void apply_journal(const std::string& file, const std::string& path) {
  sqlite::Database db(file, SQLITE_OPEN_READWRITE, attempt(path));
  sqlite3_busy_timeout(db.raw(), 5000);
  db.try_exec("PRAGMA trusted_schema = OFF; PRAGMA schema_version");
}

// What a writer has left beside the file, or is writing there. SQLite opens that by name: only
// where nobody else may exchange files.
SideFiles beside_profile(const std::string& file, const struct stat& found,
                         const std::string& path) {
  const auto beside = side_files(file, found, attempt(path));
  if (!beside.any()) return beside;
  if (const auto hand = other_hand_at(file, S_IWOTH))
    throw Error(
        fmt::format("{}: a recording's files lie beside it, and others may have changed "
                    "them ({}: {}); copy it, and its -wal file if you trust that, to a "
                    "folder of your own",
                    attempt(path), hand->folder, print_hand(*hand)));
  return beside;
}

using Header = std::array<unsigned char, 100>;

bool has_magic(const Header& header) {
  return std::equal(magic.begin(), magic.end(), header.begin(),
                    [](char a, unsigned char b) { return static_cast<unsigned char>(a) == b; });
}

// Offsets in SQLite's header: 16 page size, 18 journal form (1: no WAL), 28 pages, 68 application.
// Under a WAL the file may be shorter for a moment, and SQLite itself finds what is missing.
void require_whole(const Header& header, std::int64_t bytes, const std::string& path) {
  if (bytes == 0) throw Error(attempt(path) + ": it is empty; record it again");
  const bool begins_well =
      std::equal(header.begin(), header.begin() + std::min<long>(bytes, 16), magic.begin());
  if (!begins_well) throw Error(attempt(path) + ": it is not a Sentinel profile");
  const std::uint64_t page = big_endian(&header[16], 2);
  const std::uint64_t expected = (page == 1 ? 65536 : page) * big_endian(&header[28], 4);
  const auto have = static_cast<std::uint64_t>(bytes);
  if (have < header.size() || (header[18] == 1 && have < expected))
    throw Error(
        fmt::format("{}: it is truncated ({} bytes of {}); copy it again or record it again",
                    attempt(path), have, std::max<std::uint64_t>(expected, header.size())));
  if (big_endian(&header[68], 4) != schema::application_id)
    throw Error(attempt(path) + ": it is an SQLite file of another program, no Sentinel profile");
}

// Bytes of a file beside which nothing of its own lies: what else lies there does not count. They
// are read here and not by SQLite, which would open whatever another user puts in the file's place,
// and wait where that is a pipe.
sqlite::Database open_alone(const std::string& file, const std::string& path) {
  constexpr std::size_t kForms = 18;
  auto bytes = read_input(file, attempt(path), kProfiles);
  Header header{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), header.size()), header.begin());
  require_whole(header, static_cast<std::int64_t>(bytes.size()), path);
  bytes[kForms] = bytes[kForms + 1] = 1;  // memory has no WAL
  return sqlite::Database::in_memory(std::move(bytes), attempt(path));
}

// To open the file here as well would drop the locks of a writer in the same program.
sqlite::Database open_profile(const std::string& path) {
  struct stat found {};
  const std::string file = require_file(path, found);
  const auto beside = beside_profile(file, found, path);
  if (!beside.any()) return open_alone(file, path);
  if (beside.journal && is_stored_profile(path)) apply_journal(file, path);
  sqlite::Database db(file, SQLITE_OPEN_READONLY, attempt(path));
  std::int64_t bytes = 0;
  const Header header = db.header(bytes);
  require_whole(header, bytes, path);
  return db;
}

Header header_of(const std::string& path) {
  struct stat found {};
  const std::string file = require_file(path, found);
  if (beside_profile(file, found, path).any()) {
    std::int64_t bytes = 0;
    return sqlite::Database::unchanging(file, attempt(path)).header(bytes);
  }
  Header header{};
  const auto opened = open_input(file, attempt(path), kProfiles);
  if (pread(opened.get(), header.data(), header.size(), 0) < 0) throw Error(attempt(path), errno);
  return header;
}

// The file may come from anywhere: nothing in its schema is executed, and a page is looked at
// before it is believed.
void harden(sqlite::Database& db) {
  sqlite3_db_config(db.raw(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db.raw(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db.raw(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db.raw(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_limit(db.raw(), SQLITE_LIMIT_LENGTH, 4 << 20);
  sqlite3_busy_timeout(db.raw(), 5000);
  db.exec("PRAGMA cell_size_check = ON; PRAGMA query_only = ON; BEGIN");
}

// A column may have an expression, a long default or a check in its description, which SQLite
// computes for every row that is read. Profiles have none of these.
bool is_plain_table(std::string sql) {
  constexpr std::size_t kLongest = 4096;
  if (sql.size() > kLongest) return false;
  constexpr std::array<std::string_view, 11> kComputed{
      "AS", "CHECK",      "COLLATE", "DEFAULT", "EXISTS", "GENERATED",
      "ON", "REFERENCES", "SELECT",  "USING",   "VIRTUAL"};
  std::string word;
  sql += ' ';
  for (const char c : sql) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      continue;
    }
    if (std::ranges::find(kComputed, word) != kComputed.end()) return false;
    word.clear();
    if (std::string_view(" \t\r\n(),").find(c) == std::string_view::npos) return false;
  }
  return true;
}

void require_plain_tables(sqlite::Database& db) {
  sqlite::Statement row(db, "SELECT type, coalesce(sql, '') FROM sqlite_schema");
  while (row.step()) {
    const std::string type = row.text(0), sql = row.text(1);
    const bool made_by_key = type == "index" && sql.empty();
    if (!made_by_key && (type != "table" || !is_plain_table(sql)))
      throw Error("its tables are not those of a profile");
  }
}

void check_pages(sqlite::Database& db) {
  sqlite::Statement check(db, "PRAGMA quick_check(1)");
  const std::string found = check.step() ? check.text(0) : "nothing could be checked";
  if (found != "ok") throw Error("its pages contradict one another");
}

template <class T>
T id(sqlite::Statement& row, int column) {
  const std::uint64_t value = row.natural(column);
  if (value >= max_records) throw Error(fmt::format("{} is no id", value));
  return T(value);
}

std::optional<OpId> optional_op(sqlite::Statement& row, int column) {
  if (!row.optional_natural(column)) return std::nullopt;
  return id<OpId>(row, column);
}

std::uint32_t natural32(sqlite::Statement& row, int column) {
  const std::uint64_t value = row.natural(column);
  if (value > UINT32_MAX) throw Error(fmt::format("{} does not fit in 32 bits", value));
  return static_cast<std::uint32_t>(value);
}

template <class T>
T enumerator(sqlite::Statement& row, int column) {
  const std::uint64_t value = row.natural(column);
  if (value > 2) throw Error(fmt::format("{} is no kind or phase", value));
  return static_cast<T>(value);
}

void require_dense(sqlite::Statement& row, std::size_t expected, const char* what) {
  if (row.natural(0) != expected || expected >= max_records)
    throw Error(fmt::format("{} {} is missing", what, expected));
}

// Reads one value of `meta` into the field of its type.
struct FieldReader {
  sqlite::Statement& row;
  void operator()(std::string& field) const { field = row.text(0); }
  void operator()(bool& field) const { field = row.natural(0) != 0; }
  void operator()(double& field) const { field = row.real(0); }
  void operator()(std::uint32_t& field) const { field = natural32(row, 0); }
  void operator()(std::uint64_t& field) const {
    field = static_cast<std::uint64_t>(row.integer(0));
  }
};

constexpr const char* kWriter = "SELECT value FROM meta WHERE key = 'schema_version'";

std::int64_t version_of(sqlite::Database& db, const char* sql) {
  sqlite::Statement row(db, sql);
  if (!row.step()) throw Error("it does not name its version");
  return row.integer(0);
}

void require_readable_version(sqlite::Database& db, const std::string& path) {
  const auto oldest = version_of(db, "SELECT value FROM meta WHERE key = 'reader_version'");
  if (oldest <= schema::version) return;
  const auto written = version_of(db, kWriter);
  throw Error(
      fmt::format("{}: it has version {} and this program reads up to {}; use a newer "
                  "Sentinel",
                  attempt(path), written, schema::version));
}

ProfileMeta read_meta(sqlite::Database& db) {
  ProfileMeta meta;
  schema::for_each_field(meta, [&](const char* key, auto& field) {
    sqlite::Statement row(db, fmt::format("SELECT value FROM meta WHERE key = '{}'", key).c_str());
    if (!row.step()) throw Error(fmt::format("the description lacks \"{}\"", key));
    FieldReader{row}(field);
  });
  return meta;
}

void read_layers(sqlite::Database& db, Profile& profile) {
  sqlite::Statement row(db, "SELECT id, name, phase FROM layers ORDER BY id");
  while (row.step()) {
    require_dense(row, profile.layers.size(), "layer");
    profile.layers.push_back({row.text(1), enumerator<Phase>(row, 2)});
  }
}

void read_ops(sqlite::Database& db, Profile& profile) {
  sqlite::Statement row(db, "SELECT id, name, layer, phase, us, parent FROM ops ORDER BY id");
  while (row.step()) {
    require_dense(row, profile.ops.size(), "op");
    Op& op = profile.ops.emplace_back();
    op.name = row.text(1);
    op.layer = id<LayerId>(row, 2);
    op.phase = enumerator<Phase>(row, 3);
    op.us = row.real(4);
    op.parent = row.text(5);
  }
}

void read_operands(sqlite::Database& db, Profile& profile) {
  sqlite::Statement row(db, "SELECT op, tensor, mode FROM operands ORDER BY op, tensor");
  while (row.step()) {
    const auto op = id<OpId>(row, 0);
    const std::uint64_t mode = row.natural(2);
    if (op.index() >= profile.ops.size() || mode < 1 || mode > 3)
      throw Error(fmt::format("an operand of op {} belongs to nothing", op.value));
    if (mode & 1) profile.ops[op.index()].in.push_back(id<TensorId>(row, 1));
    if (mode & 2) profile.ops[op.index()].out.push_back(id<TensorId>(row, 1));
  }
}

void read_tensors(sqlite::Database& db, Profile& profile) {
  sqlite::Statement row(db,
                        "SELECT id, name, bytes, kind, alloc_op, free_op, ordinal, place, stride, "
                        "is_foreign FROM tensors ORDER BY id");
  while (row.step()) {
    require_dense(row, profile.tensors.size(), "tensor");
    Tensor& tensor = profile.tensors.emplace_back();
    tensor.name = row.text(1);
    tensor.bytes = row.natural(2);
    tensor.kind = enumerator<TensorKind>(row, 3);
    tensor.alloc_op = optional_op(row, 4);
    tensor.free_op = optional_op(row, 5);
    tensor.ordinal = natural32(row, 6);
    tensor.offset = row.optional_natural(7);
    tensor.sample_stride = natural32(row, 8);
    tensor.foreign = row.natural(9) != 0;
  }
}

void read_again(sqlite::Database& db, Profile& profile) {
  if (version_of(db, kWriter) < 2) return;
  sqlite::Statement row(db, "SELECT tensor, ordinal FROM again ORDER BY tensor, ordinal");
  while (row.step()) {
    const auto tensor = id<TensorId>(row, 0);
    if (tensor.index() >= profile.tensors.size())
      throw Error(fmt::format("tensor {} is allocated again and does not exist", tensor.value));
    profile.tensors[tensor.index()].again.push_back(natural32(row, 1));
  }
}

void read_accesses(sqlite::Database& db, Profile& profile) {
  sqlite::Statement row(db, "SELECT tensor, op, reads, writes FROM accesses ORDER BY tensor, op");
  while (row.step())
    profile.accesses.push_back(
        {id<TensorId>(row, 0), id<OpId>(row, 1), row.natural(2), row.natural(3)});
}

void read_natural(sqlite::Database& db, Profile& profile) {
  sqlite::Statement row(db, "SELECT tensor, address FROM natural ORDER BY id");
  while (row.step())
    profile.natural.push_back({id<TensorId>(row, 0), static_cast<std::uint64_t>(row.integer(1))});
}

Profile read_tables(sqlite::Database& db) {
  Profile profile;
  profile.meta = read_meta(db);
  for (const auto read : {read_layers, read_ops, read_operands, read_tensors, read_again,
                          read_accesses, read_natural})
    read(db, profile);
  validate(profile);
  return profile;
}

// Damage can send SQLite round in circles that no check foresees: an end after 10^10 instructions
// of its machine, some ten times what the largest profile takes.
class StepLimit {
 public:
  explicit StepLimit(sqlite::Database& db) {
    sqlite3_progress_handler(
        db.raw(), 1'000'000, [](void* left) { return --*static_cast<int*>(left) < 0 ? 1 : 0; },
        &millions_left_);
  }

 private:
  int millions_left_ = 10'000;
};

}  // namespace

bool is_stored_profile(const std::string& path) {
  const Header header = header_of(path);
  return has_magic(header) && big_endian(&header[68], 4) == schema::application_id;
}

Profile read_profile(const std::string& path) {
  auto db = open_profile(path);
  const StepLimit limit(db);
  try {
    harden(db);
    require_plain_tables(db);
    check_pages(db);
    require_readable_version(db, path);
    return read_tables(db);
  } catch (const Error& error) {
    // What a value or a cross-reference shows does not know the file it is in.
    if (std::string_view(error.what()).starts_with(attempt(path))) throw;
    throw Error(fmt::format("{}: the file is damaged: {}; record it again or take a copy of it",
                            attempt(path), error.what()));
  }
}

}  // namespace sentinel
