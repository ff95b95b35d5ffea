// The replay of ops: recipes (torch_recipes.h) are run in a row, in memory of their own. It does
// not decide when.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>

#include "torch_recipes.h"

namespace {

// What the recipes of one replay have made, by number: in memory of its own.
using Made = std::unordered_map<std::uint64_t, c10::Storage>;

// Of the calling thread: what it allocates is a replay's, and some of that was refused.
thread_local bool replaying = false, refused_replay = false;

c10::Device device_of(const Described& described) {
  return described.on_gpu && !kFakeGpu ? c10::Device(kGpu, static_cast<c10::DeviceIndex>(gpu))
                                       : c10::Device(c10::DeviceType::CPU);
}

// The bytes where they lie.
c10::Storage storage_at(const Described& described, const void* bytes) {
  return {c10::Storage::use_byte_size_t(), described.bytes,
          c10::DataPtr(const_cast<void*>(bytes), device_of(described))};
}

at::Tensor tensor_in(c10::Storage storage, const Described& described, caffe2::TypeMeta type) {
  const auto key = described.on_gpu ? kGpuKernel : c10::DispatchKey::CPU;
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                  type);
}

c10::Storage copy_of(const Described& described, const void* bytes) {
  if (described.on_gpu) {  // on the stream on which the replay is launched
    auto all =
        tensor_in(storage_at(described, bytes), described, caffe2::TypeMeta::Make<std::uint8_t>());
    all.unsafeGetTensorImpl()->set_sizes_contiguous(static_cast<std::int64_t>(described.bytes));
    return all.clone().storage();
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), described.bytes, c10::GetCPUAllocator());
  std::memcpy(const_cast<void*>(static_cast<const void*>(storage.data())), bytes, described.bytes);
  return storage;
}

// What a call updates, to be updated instead of it.
c10::Storage copy(const Described& described, const void* bytes, Made& made) {
  auto storage = copy_of(described, bytes);
  if (described.number != 0 && described.use == Use::updated) made[described.number] = storage;
  return storage;
}

at::Tensor tensor_of(const Described& described, Made& made) {
  const void* bytes = described.value.empty() ? described.storage : described.value.data();
  c10::Storage storage;
  if (const auto at = made.find(described.number); described.number != 0 && at != made.end())
    storage = at->second;
  else if (described.use == Use::updated || described.use == Use::statistic)
    storage = copy(described, bytes, made);
  else
    storage = storage_at(described, bytes);
  auto tensor = tensor_in(std::move(storage), described, described.type);
  tensor.unsafeGetTensorImpl()->set_storage_offset(described.offset);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(described.sizes, described.strides);
  if (described.wrapped) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (described.requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

// A generator advances with each use.
c10::IValue value_again(const c10::IValue& plain) {
  return plain.isGenerator() ? c10::IValue(plain.toGenerator().clone()) : plain;
}

c10::IValue value_of(const Argument& argument, Made& made) {
  if (argument.tensors.empty() && !argument.list) return value_again(argument.plain);
  if (!argument.list)
    return argument.tensors[0] ? tensor_of(*argument.tensors[0], made) : at::Tensor();
  if (argument.optionals) {
    c10::List<c10::optional<at::Tensor>> list;
    for (const auto& tensor : argument.tensors)
      list.push_back(tensor ? c10::optional<at::Tensor>(tensor_of(*tensor, made)) : c10::nullopt);
    return list;
  }
  c10::List<at::Tensor> list;
  for (const auto& tensor : argument.tensors)
    list.push_back(tensor ? tensor_of(*tensor, made) : at::Tensor());
  return list;
}

// False: its outputs are not those that were recorded.
bool run(const Call& call, Made& made) {
  const at::AutoGradMode grad_mode(call.grad_mode);
  torch::jit::Stack stack;
  for (const auto& argument : call.arguments) stack.push_back(value_of(argument, made));
  call.op.callBoxed(&stack);
  std::size_t i = 0;
  bool as_recorded = true;
  for (const c10::IValue& output : stack)
    for_tensors(output, [&](const at::Tensor& tensor) {
      if (i == call.outputs.size()) as_recorded = false;
      if (!as_recorded || call.outputs[i++] == 0) return;
      if (tensor.defined() && tensor.has_storage())
        made[call.outputs[i - 1]] = tensor.storage();
      else
        as_recorded = false;
    });
  return as_recorded && i == call.outputs.size();
}

// The calling thread computes with the settings of a recipe. Those of all threads stay: a thread
// that computes beside it would feel them.
class WithSettings {
 public:
  explicit WithSettings(const Settings& wanted) : before_(settings()) { set(wanted); }
  ~WithSettings() { set(before_); }
  WithSettings(const WithSettings&) = delete;
  WithSettings& operator=(const WithSettings&) = delete;

 private:
  static void set(const Settings& wanted) {
    if (at::get_num_threads() != wanted.threads) at::set_num_threads(wanted.threads);
    if (rounding() != wanted.rounding) set_rounding(wanted.rounding);
  }
  Settings before_;
};

// False: not as it was recorded.
bool run(const Recipe& recipe, Made& made) {
  if (!recipe.settings.alike(settings())) return false;
  const WithSettings with(recipe.settings);
  return std::all_of(recipe.calls.begin(), recipe.calls.end(),
                     [&made](const Call& call) { return run(call, made); });
}

// By number of a tensor: the recipe that uses it last. From then on it need not be there.
std::unordered_map<std::uint64_t, std::size_t> last_uses(void* const* recipes, std::size_t count) {
  std::unordered_map<std::uint64_t, std::size_t> last;
  for (std::size_t i = 0; i < count; ++i)
    for (const Call& call : static_cast<const Recipe*>(recipes[i])->calls) {
      for (const Argument& argument : call.arguments)
        for (const auto& tensor : argument.tensors)
          if (tensor) last[tensor->number] = i;
      for (const auto number : call.outputs) last[number] = i;
    }
  return last;
}

struct Replaying {
  Replaying() { replaying = true, refused_replay = false; }
  ~Replaying() { replaying = false; }
  Replaying(const Replaying&) = delete;
  Replaying& operator=(const Replaying&) = delete;
};

// sentinel_replayer. The thread's own state stays as it is: its mode, its observers, what stands
// before its kernels.
// A library that is refused memory may compute another way: then the replay has failed.
int replay(void* const* recipes, std::size_t count, sentinel_give give, void* context) {
  const Replaying now;
  const at::DisableRecordFunctionGuard unseen;
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard plainly(
      (c10::impl::tls_local_dispatch_key_set().included_ - described_keys()) |
      c10::autocast_dispatch_keyset);
  try {
    Made made;
    const auto last = last_uses(recipes, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (!run(*static_cast<const Recipe*>(recipes[i]), made)) return -EINVAL;
      if (refused_replay) return -ENOMEM;
      for (auto at = made.begin(); at != made.end();) {
        const auto& [number, storage] = *at;
        if (last.at(number) == i) give(context, number, storage.data(), storage.nbytes());
        at = last.at(number) == i ? made.erase(at) : std::next(at);
      }
    }
    return 0;
  } catch (const std::exception& error) {
    const std::string what = error.what();
    std::fprintf(stderr, "sentinel: an op that was run again failed: %s\n",
                 what.substr(0, what.find('\n')).c_str());
    return -EIO;
  }
}

void drop(void* recipe) { delete static_cast<Recipe*>(recipe); }

constexpr sentinel_replayer kReplayer{&replay, &drop, nullptr, nullptr};
constexpr sentinel_replayer kDeviceReplayer{&replay, &drop, &is_repeatable, &name_stream};

}  // namespace
