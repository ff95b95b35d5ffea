// Writes a profile into SQLite's tables, whole or as it grows.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/folder.h"
#include "base/output.h"
#include "sentinel/error.h"
#include "trace/database/profile_file.h"
#include "trace/database/side_files.h"
#include "trace/database/sqlite.h"
#include "trace/schema.h"
#include "trace/store.h"
#include "trace/validate.h"

namespace sentinel {
namespace {

constexpr const char* unfinished = "the recording ended before its end: it was killed or crashed";

std::string attempt(const std::string& path) {
  return fmt::format("cannot write profile {}", path);
}

// A profile whose writer lives holds a write transaction; ours would have to wait for it.
void require_unused(const std::string& path) {
  sqlite::Database old(path, SQLITE_OPEN_READWRITE, attempt(path));
  const int result = old.try_exec("BEGIN IMMEDIATE");
  if ((result & 0xff) == SQLITE_BUSY) old.fail(result);
  old.try_exec("ROLLBACK");
}

// Absolute, so that neither ":memory:" nor "file:x?mode=…" means anything but a file.
std::string allowed_place(const std::string& path) {
  const std::string place = output_place(std::filesystem::absolute(path).string(), attempt(path));
  require_room_for_side_files(place, attempt(path));
  struct stat found {};
  if (stat(place.c_str(), &found) != 0) return place;
  if (S_ISDIR(found.st_mode)) throw Error(attempt(path), EISDIR);
  if (!S_ISREG(found.st_mode)) throw Error(attempt(path) + ": it is not a regular file");
  if (found.st_size == 0) return place;
  if (!is_stored_profile(place))
    throw Error(attempt(path) +
                ": the file exists and is not a Sentinel profile; it is left as it is: name "
                "another one");
  if (!other_hand_at(place, S_IWOTH) && found.st_uid == geteuid() &&
      side_files(place, found, attempt(path)).any())
    require_unused(place);
  return place;
}

void write_meta(sqlite::Database& db, ProfileMeta meta, bool complete, const std::string& reason) {
  meta.complete = complete;
  meta.incomplete_reason = reason;
  validate(meta);
  sqlite::Statement set(db, "INSERT OR REPLACE INTO meta VALUES (?, ?)");
  set.run(std::string_view("schema_version"), schema::version);
  set.run(std::string_view("reader_version"), schema::reader_version);
  schema::for_each_field(meta,
                         [&](std::string_view key, const auto& value) { set.run(key, value); });
}

void make_tables(const std::string& file, const std::string& path, const ProfileMeta& meta) {
  sqlite::Database db(file, SQLITE_OPEN_READWRITE, attempt(path));
  db.exec("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; BEGIN");
  db.exec(schema::create);
  write_meta(db, meta, false, unfinished);
  db.exec("COMMIT; PRAGMA journal_mode = WAL");
}

std::optional<std::uint64_t> number(std::optional<OpId> op) {
  return op ? std::optional<std::uint64_t>(op->value) : std::nullopt;
}

}  // namespace

// Statements are declared after the database: they are finalised before it closes.
struct ProfileWriter::State {
  State(const std::string& path, const ProfileFile& file)
      : db(file.written(), SQLITE_OPEN_READWRITE, attempt(path)) {
    prepare();
    db.exec("PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE");
  }

  void prepare() {
    add_layer.emplace(db, "INSERT INTO layers VALUES (?, ?, ?)");
    add_op.emplace(db, "INSERT INTO ops VALUES (?, ?, ?, ?, ?, ?)");
    add_operand.emplace(db, "INSERT INTO operands VALUES (?, ?, ?)");
    set_tensor.emplace(db, "INSERT OR REPLACE INTO tensors VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    drop_again.emplace(db, "DELETE FROM again WHERE tensor = ?");
    add_again.emplace(db, "INSERT INTO again VALUES (?, ?)");
    add_access.emplace(db,
                       "INSERT INTO accesses VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                       "reads = reads + excluded.reads, writes = writes + excluded.writes");
    add_natural.emplace(db, "INSERT INTO natural (tensor, address) VALUES (?, ?)");
  }

  void operands(std::uint64_t op, const Op& names) {
    for (const TensorId t : names.in)
      add_operand->run(op, t.value, std::ranges::binary_search(names.out, t) ? 3u : 1u);
    for (const TensorId t : names.out)
      if (!std::ranges::binary_search(names.in, t)) add_operand->run(op, t.value, 2u);
    for (const auto* ids : {&names.in, &names.out})
      if (!ids->empty()) refer_tensor(ids->back());
  }

  void refer_op(std::optional<OpId> op) {
    if (op) needed_ops = std::max<std::uint64_t>(needed_ops, op->index() + 1);
  }
  void refer_tensor(TensorId t) {
    needed_tensors = std::max<std::uint64_t>(needed_tensors, t.index() + 1);
  }
  bool consistent() const {
    return needed_layers <= layers && needed_ops <= ops && needed_tensors <= tensors;
  }
  bool ours() const { return getpid() == owner; }

  // One file: the WAL is written back and removed. That has to wait for readers; one that stays
  // longer keeps the WAL alive, which loses nothing.
  void close() {
    db.exec("COMMIT");
    for (int tries = 0; tries < 200; ++tries) {
      if ((db.try_exec("PRAGMA journal_mode = DELETE") & 0xff) != SQLITE_BUSY) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void leave_to_parent() {
    db.abandon();
    for (auto* statement : {&add_layer, &add_op, &add_operand, &set_tensor, &drop_again, &add_again,
                            &add_access, &add_natural})
      if (*statement) (*statement)->abandon();
  }

  pid_t owner = getpid();
  sqlite::Database db;
  std::optional<sqlite::Statement> add_layer, add_op, add_operand, set_tensor, drop_again,
      add_again, add_access, add_natural;
  std::uint64_t layers = 0, ops = 0, tensors = 0;                       // added so far
  std::uint64_t needed_layers = 0, needed_ops = 0, needed_tensors = 0;  // referred to so far
};

ProfileWriter::ProfileWriter(const std::string& path, const ProfileMeta& meta, Comes comes)
    : file_(std::make_unique<ProfileFile>(allowed_place(path), comes, attempt(path))) {
  make_tables(file_->written(), path, meta);
  file_->begin();
  state_ = std::make_unique<State>(path, *file_);
}

ProfileWriter::~ProfileWriter() {
  if (state_ == nullptr) return;
  if (!state_->ours()) {
    state_->leave_to_parent();
    return;
  }
  try {
    if (!state_->consistent()) state_->db.exec("ROLLBACK; BEGIN");
    state_->close();
    state_.reset();
    if (file_->comes_at_once()) file_->finish();
  } catch (const Error&) {  // the file stays as after a kill: the last commit, readable
  }
}

LayerId ProfileWriter::add(const Layer& layer) {
  validate_text(layer.name, "a layer's name");
  if (state_->ours())
    state_->add_layer->run(state_->layers, layer.name, static_cast<std::uint32_t>(layer.phase));
  return LayerId(state_->layers++);
}

OpId ProfileWriter::add(const Op& op) {
  validate(op, state_->ops);
  if (state_->ours()) {
    state_->add_op->run(state_->ops, op.name, op.layer.value, static_cast<std::uint32_t>(op.phase),
                        op.us, op.parent);
    state_->operands(state_->ops, op);
  }
  state_->needed_layers = std::max<std::uint64_t>(state_->needed_layers, op.layer.index() + 1);
  return OpId(state_->ops++);
}

TensorId ProfileWriter::add(const Tensor& tensor) {
  const TensorId id(state_->tensors);
  replace(id, tensor);
  ++state_->tensors;
  return id;
}

void ProfileWriter::replace(TensorId id, const Tensor& tensor) {
  validate(tensor, id.index());
  if (!state_->ours()) return;
  state_->set_tensor->run(id.value, tensor.name, tensor.bytes,
                          static_cast<std::uint32_t>(tensor.kind), number(tensor.alloc_op),
                          number(tensor.free_op), tensor.ordinal, tensor.offset,
                          tensor.sample_stride, tensor.foreign);
  state_->drop_again->run(id.value);
  for (const auto ordinal : tensor.again) state_->add_again->run(id.value, ordinal);
  state_->refer_op(tensor.alloc_op);
  state_->refer_op(tensor.free_op);
}

void ProfileWriter::add(const AccessCount& count) {
  if (!state_->ours()) return;
  state_->add_access->run(count.tensor.value, count.op.value, count.reads, count.writes);
  state_->refer_op(count.op);
  state_->refer_tensor(count.tensor);
}

void ProfileWriter::add(const NaturalPlacement& placement) {
  if (!state_->ours()) return;
  state_->add_natural->run(placement.tensor.value, placement.address);
  state_->refer_tensor(placement.tensor);
}

void ProfileWriter::commit() {
  if (state_->ours() && state_->consistent()) state_->db.exec("COMMIT; BEGIN IMMEDIATE");
}

void ProfileWriter::finish(const ProfileMeta& meta) {
  if (!state_->ours()) return;
  if (!state_->consistent())
    throw Error("cannot finish the profile: records refer to others that were never added");
  write_meta(state_->db, meta, meta.complete, meta.incomplete_reason);
  state_->close();
  state_.reset();
  file_->finish();
}

void write_profile(const std::string& path, const Profile& profile) {
  validate(profile);
  ProfileWriter writer(path, profile.meta, Comes::when_finished);
  for (const Layer& layer : profile.layers) writer.add(layer);
  for (const Op& op : profile.ops) writer.add(op);
  for (const Tensor& tensor : profile.tensors) writer.add(tensor);
  for (const AccessCount& access : profile.accesses) writer.add(access);
  for (const NaturalPlacement& natural : profile.natural) writer.add(natural);
  writer.finish(profile.meta);
}

}  // namespace sentinel
