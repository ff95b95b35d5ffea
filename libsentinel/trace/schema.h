// The stored profile, version 2: one SQLite file. Integers are 64-bit signed, times REAL in
// microseconds, text UTF-8; NULL stands for an absent optional. Ids are dense from 0, in order.
//
//   meta       key TEXT PK, value          see for_each_field below; and
//                                           schema_version  of the writer
//                                           reader_version  the oldest reader that can read it
//   layers     id PK, name, phase           phase: 0 forward, 1 backward, 2 optimizer
//   ops        id PK, name, layer, phase, us, parent
//   operands   op, tensor PK, mode          mode: 1 read, 2 written, 3 both
//   tensors    id PK, name, bytes, kind, alloc_op, free_op, ordinal, place, stride, is_foreign
//                                           kind: 0 global, 1 intermediate, 2 workspace
//                                           place: offset in the arena; stride: of sampled pages
//   again      tensor, ordinal PK           since version 2: allocations that are that tensor again
//   accesses   tensor, op PK, reads, writes openings, scaled by the tensor's stride
//   natural    id PK, tensor, address       address: two's complement of 64 bits
//
// A reader ignores keys and columns it does not know. A change that it may not ignore raises
// reader_version. Until finish() the key `complete` is 0.
#pragma once

#include <cstdint>

#include "sentinel/profile.h"

namespace sentinel::schema {

constexpr std::int64_t version = 2;         // what this program writes, and the newest it reads
constexpr std::int64_t reader_version = 2;  // the oldest reader that can read what it writes
constexpr std::uint32_t application_id = 0x534e544c;  // "SNTL", at byte 68 of the file

constexpr const char* create = R"(
  PRAGMA application_id = 0x534e544c;
  CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
  CREATE TABLE layers (id INTEGER PRIMARY KEY, name TEXT, phase INTEGER);
  CREATE TABLE ops (id INTEGER PRIMARY KEY, name TEXT, layer INTEGER, phase INTEGER, us REAL,
                    parent TEXT);
  CREATE TABLE operands (op INTEGER, tensor INTEGER, mode INTEGER,
                         PRIMARY KEY (op, tensor)) WITHOUT ROWID;
  CREATE TABLE tensors (id INTEGER PRIMARY KEY, name TEXT, bytes INTEGER, kind INTEGER,
                        alloc_op INTEGER, free_op INTEGER, ordinal INTEGER, place INTEGER,
                        stride INTEGER, is_foreign INTEGER);
  CREATE TABLE again (tensor INTEGER, ordinal INTEGER,
                      PRIMARY KEY (tensor, ordinal)) WITHOUT ROWID;
  CREATE TABLE accesses (tensor INTEGER, op INTEGER, reads INTEGER, writes INTEGER,
                         PRIMARY KEY (tensor, op)) WITHOUT ROWID;
  CREATE TABLE natural (id INTEGER PRIMARY KEY, tensor INTEGER, address INTEGER);
)";

// Every field of a profile's meta with its key; the one list for writing and reading.
template <class Meta, class Visit>
void for_each_field(Meta& meta, Visit visit) {
  visit("source", meta.source);
  visit("exact", meta.exact);
  visit("read_write", meta.read_write);
  visit("complete", meta.complete);
  visit("incomplete_reason", meta.incomplete_reason);
  visit("model", meta.model);
  visit("command", meta.command);
  visit("framework", meta.framework);
  visit("batch", meta.batch);
  visit("page_bytes", meta.page_bytes);
  visit("window_pages", meta.window_pages);
  visit("sample_error", meta.sample_error);
  visit("step_us", meta.step_us);
  visit("profiled_step_us", meta.profiled_step_us);
  visit("signature", meta.signature);
  visit("machine.hostname", meta.machine.hostname);
  visit("machine.cpu", meta.machine.cpu);
  visit("machine.kernel", meta.machine.kernel);
  visit("machine.cores", meta.machine.cores);
  visit("machine.memory_bytes", meta.machine.memory_bytes);
  visit("machine.llc_bytes", meta.machine.llc_bytes);
  visit("created", meta.created);
}

}  // namespace sentinel::schema
