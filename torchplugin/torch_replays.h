// How an op is run again: recipes, which describe a call without keeping any of its tensors, and
// the replay of some of them in a row. It decides neither which op is recorded nor when one is run.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch_device.h"
#include "torch_frames.h"
#include "torch_operands.h"

namespace {

// A tensor as an op was given it: where its storage lies, and how it lies in it.
struct Described {
  std::uint64_t number = 0;  // of the storage's; 0: `value` has its bytes
  const void* storage = nullptr;
  std::size_t bytes = 0;  // of the storage
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;  // in elements
  caffe2::TypeMeta type;
  bool requires_grad = false;  // kernels are chosen by it
  bool written = false;        // the op updates it in place
  bool statistic = false;      // the op updates it, and its outputs do not depend on it
  bool wrapped = false;        // a number of the program's
  std::vector<char> value;     // of what is tiny, a copy of the storage
};

// An argument: a tensor, a list of tensors with those that are not given (null), or anything else.
struct Argument {
  c10::IValue plain;
  std::vector<std::optional<Described>> tensors;
  bool list = false, optionals = false;
};

struct Recipe {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;
  bool grad_mode = true;
  std::vector<std::uint64_t>
      outputs;  // by output, lists laid flat; 0: undefined, or no new storage
  explicit Recipe(c10::OperatorHandle handle) : op(std::move(handle)) {}
};

constexpr std::size_t kTiny = 64;  // bytes: kept by value

// Nobody stands between the dispatcher and the processor's kernel but autograd.
constexpr c10::DispatchKeySet kDescribed{c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView,
                                         c10::DispatchKey::AutogradCPU,
                                         c10::DispatchKey::BackendSelect};
bool is_described(c10::DispatchKeySet keys) {
  for (const c10::DispatchKey key : keys)
    if (!kDescribed.has(key) && key != c10::DispatchKey::AutocastCPU) return false;
  return true;
}

// None: it cannot be told where its contents lie, or somebody else may free them.
std::optional<Described> described(const at::Tensor& tensor) {
  if (!is_described(tensor.key_set()) || !tensor.has_storage() || tensor.is_inference() ||
      tensor.layout() != c10::kStrided || tensor.is_conj() || tensor.is_neg())
    return std::nullopt;
  Described result;
  result.sizes = tensor.sizes().vec();
  result.strides = tensor.strides().vec();
  result.offset = tensor.storage_offset();
  result.type = tensor.dtype();
  result.requires_grad = tensor.requires_grad();
  const auto& storage = tensor.storage();
  result.storage = storage.data();
  result.bytes = storage.nbytes();
  const bool owned = storage.data_ptr().get_deleter() == &deallocate &&
                     storage.data_ptr().get_context() == storage.data_ptr().get();
  result.number = owned ? sentinel_tensor_number(result.storage) : 0;
  if (result.number != 0 || result.bytes == 0) return result;
  if (result.bytes > kTiny) return std::nullopt;
  const auto* bytes = static_cast<const char*>(result.storage);
  result.value.assign(bytes, bytes + result.bytes);
  result.wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  return result;
}

// Updated in training, and only written then. The schema does not say so.
bool is_statistic(const c10::Argument& argument) {
  return argument.name() == "running_mean" || argument.name() == "running_var";
}

bool describe(const c10::IValue& value, const c10::Argument& formal, Argument& argument) {
  const auto* alias = formal.alias_info();
  const auto add = [&](const at::Tensor& tensor) {
    auto& entry = argument.tensors.emplace_back();
    if (!tensor.defined()) return true;
    entry = described(tensor);
    if (!entry) return false;
    entry->written = alias != nullptr && alias->isWrite();
    entry->statistic = is_statistic(formal);
    return true;
  };
  if (value.isTensor()) return add(value.toTensor());
  if (value.isTensorList()) {
    argument.list = true;
    const auto tensors = value.toTensorVector();
    return std::all_of(tensors.begin(), tensors.end(), add);
  }
  if (value.isOptionalTensorList()) {
    argument.list = argument.optionals = true;
    for (const auto& tensor : value.toOptionalTensorVector())
      if (!add(tensor ? *tensor : at::Tensor())) return false;
    return true;
  }
  argument.plain = value;
  return value.isNone() || value.isInt() || value.isDouble() || value.isBool() ||
         value.isString() || value.isIntList() || value.isDoubleList() || value.isBoolList() ||
         value.isScalar() || value.isDevice();
}

// Of the op that this thread runs.
thread_local std::unique_ptr<Recipe> recipe;

// Of a call that begins; null where it cannot be run again in the same way: it draws random
// numbers, is given what cannot be described, or somebody may change how it computes.
std::unique_ptr<Recipe> recipe_of(const at::RecordFunction& fn) {
  const auto name = fn.operator_name();
  if (!name) return nullptr;
  const auto op = c10::Dispatcher::singleton().findSchema(*name);
  if (!op || !op->hasSchema()) return nullptr;
  const auto& formals = op->schema().arguments();
  if (fn.inputs().size() != formals.size() || op->hasTag(at::Tag::nondeterministic_seeded))
    return nullptr;
  const auto tls = c10::impl::tls_local_dispatch_key_set();
  for (const c10::DispatchKey key : tls.included_)
    if (!kDescribed.has(key)) return nullptr;
  if (!tls.excluded_.has(c10::DispatchKey::AutocastCPU)) return nullptr;  // it may cast
  auto recipe = std::make_unique<Recipe>(*op);
  recipe->grad_mode = at::GradMode::is_enabled();
  for (std::size_t i = 0; i < formals.size(); ++i) {
    if (formals[i].is_out()) return nullptr;
    if (!describe(fn.inputs()[i], formals[i], recipe->arguments.emplace_back())) return nullptr;
  }
  return recipe;
}

template <class F>
void for_tensors(const c10::IValue& value, F&& f) {
  if (value.isTensor()) return f(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) f(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_tensors(element, f);
  }
}

std::uint64_t number_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.storage().nbytes() != 0
             ? sentinel_tensor_number(tensor.storage().data())
             : 0;
}

// The call has ended: hands the recipe over, with what it read and wrote.
void hand_over(std::unique_ptr<Recipe> recipe, const at::RecordFunction& fn) {
  std::vector<std::uint64_t> read, written;
  for (const auto& argument : recipe->arguments)
    for (const auto& tensor : argument.tensors) {
      if (!tensor || tensor->number == 0) continue;
      if (!tensor->statistic) read.push_back(tensor->number);
      if (tensor->statistic || tensor->written) written.push_back(tensor->number);
    }
  for (const c10::IValue& output : fn.outputs())
    for_tensors(output, [&](const at::Tensor& tensor) {
      auto number = number_of(tensor);
      if (std::find(read.begin(), read.end(), number) != read.end()) number = 0;
      recipe->outputs.push_back(number);
      if (number != 0) written.push_back(number);
    });
  sentinel_op_recipe(recipe.release(), read.data(), read.size(), written.data(), written.size());
}

// What the recipes of one replay have made, by number: in memory of its own.
using Made = std::unordered_map<std::uint64_t, c10::Storage>;

at::Tensor tensor_of(const Described& described, Made& made) {
  const void* bytes = described.value.empty() ? described.storage : described.value.data();
  c10::Storage storage;
  if (const auto at = made.find(described.number); at != made.end())
    storage = at->second;
  else
    storage =
        c10::Storage(c10::Storage::use_byte_size_t(), described.bytes,
                     c10::DataPtr(const_cast<void*>(bytes), c10::Device(c10::DeviceType::CPU)));
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), described.type);
  tensor.unsafeGetTensorImpl()->set_storage_offset(described.offset);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(described.sizes, described.strides);
  const bool own = made.count(described.number) != 0;
  if (described.statistic || (described.written && !own)) tensor = tensor.clone();
  if (described.wrapped) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (described.requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

c10::IValue value_of(const Argument& argument, Made& made) {
  if (argument.tensors.empty() && !argument.list) return argument.plain;
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
bool run(const Recipe& recipe, Made& made) {
  const at::AutoGradMode grad_mode(recipe.grad_mode);
  torch::jit::Stack stack;
  for (const auto& argument : recipe.arguments) stack.push_back(value_of(argument, made));
  recipe.op.callBoxed(&stack);
  std::size_t i = 0;
  bool as_recorded = true;
  for (const c10::IValue& output : stack)
    for_tensors(output, [&](const at::Tensor& tensor) {
      if (i == recipe.outputs.size()) as_recorded = false;
      if (!as_recorded || recipe.outputs[i++] == 0) return;
      if (tensor.defined() && tensor.has_storage())
        made[recipe.outputs[i - 1]] = tensor.storage();
      else
        as_recorded = false;
    });
  return as_recorded && i == recipe.outputs.size();
}

// sentinel_replayer. The thread's own state stays as it is: its mode, its observers, what stands
// before its kernels.
int replay(void* const* recipes, std::size_t count, sentinel_give give, void* context) {
  const at::DisableRecordFunctionGuard unseen;
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard plainly(
      (c10::impl::tls_local_dispatch_key_set().included_ - kDescribed) |
      c10::autocast_dispatch_keyset);
  try {
    Made made;
    for (std::size_t i = 0; i < count; ++i)
      if (!run(*static_cast<const Recipe*>(recipes[i]), made)) return -EINVAL;
    for (const auto& [number, storage] : made)
      give(context, number, storage.data(), storage.nbytes());
    return 0;
  } catch (const std::exception& error) {
    const std::string what = error.what();
    std::fprintf(stderr, "sentinel: an op that was run again failed: %s\n",
                 what.substr(0, what.find('\n')).c_str());
    return -EIO;
  }
}

void drop(void* recipe) { delete static_cast<Recipe*>(recipe); }

constexpr sentinel_replayer kReplayer{&replay, &drop};

}  // namespace
