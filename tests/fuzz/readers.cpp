#include "fuzz/readers.h"

#include "fuzz/host_readers.h"
#include "fuzz/step_readers.h"

namespace sentinel::fuzz {
namespace {

constexpr Reader kReaders[] = {
    {"trace", read_trace, traces,
     "trace/tensor_trace_import.cpp trace/gz_lines.cpp trace/gz_input.cpp trace/validate.cpp"},
    {"profile", read_stored_profile, profiles,
     "trace/store_read.cpp trace/read_any.cpp trace/database/sqlite.cpp trace/validate.cpp"},
    {"machine", read_machine, machines, "sim/machine_file.cpp base/units.cpp"},
    {"plan", read_stored_plan, plans, "plan/check/plan_json.cpp plan/check/verify.cpp"},
    {"snapshot", read_snapshot, snapshots,
     "trace/pytorch_snapshot.cpp trace/plain_data.cpp trace/pickle.cpp"},
    {"message", read_message, messages, "broker/wire/message.cpp broker/wire/socket.cpp"},
    {"needs", read_needs, needs, "broker/wire/message.cpp trace/tensor_trace_import.cpp"},
    {"listing", read_listing, listings, "sharing/jobs_list.cpp"},
    {"ledger", read_the_ledger, ledgers, "broker/server/ledger_file.cpp"},
    {"status", read_status, statuses,
     "runtime/status/status_reader.cpp top/view.cpp top/figures.cpp top/graph.cpp"},
    {"hashes", read_hashes, hashes, "training/testimony.cpp", true},
    {"samples", read_samples, rings, "capture/samples/sample_buffer.cpp", true},
    {"numa_maps", read_numa_maps, maps, "engine/numa/numa_maps.cpp", true},
    {"options", read_options, environments,
     "options/options.cpp options/table.cpp base/units.cpp engine/host/ranks.cpp"}};

}  // namespace

std::span<const Reader> readers() { return kReaders; }

}  // namespace sentinel::fuzz
