// How an op is described so that it can be run again: recipes, which keep none of its tensors, and
// how they are recorded while it runs. It decides neither which op is recorded nor when one is run.
//
// An op is one call of a kernel, or some: what autocast casts, and what it then calls. Each is
// described where it begins, below whatever calls it, so that it is run again with what the kernel
// got.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

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
  Use use = Use::read;
  bool requires_grad = false;  // kernels are chosen by it
  bool wrapped = false;        // a number of the program's
  bool on_gpu = false;         // the session's
  std::vector<char> value;     // of what is tiny and the processor's, a copy of the storage
};

// An argument: a tensor, a list of tensors with those that are not given (null), or anything else;
// `plain` is a generator of its own where the call draws from one.
struct Argument {
  c10::IValue plain;
  std::vector<std::optional<Described>> tensors;
  bool list = false, optionals = false;
};

struct Call {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;
  bool grad_mode = true;
  // By output, lists laid flat; 0: undefined, or no new storage.
  std::vector<std::uint64_t> outputs;
  std::vector<std::pair<std::uint64_t, const void*>>
      made;  // of these: the storages, where they lay
  explicit Call(c10::OperatorHandle handle) : op(std::move(handle)) {}
};

// On what results depend beside arguments.
struct Settings {
  int threads = 1;
  unsigned rounding = 0;  // and what becomes of denormal numbers
  bool deterministic = false, mkldnn = true;
  int precision = 0;      // of products of float32 matrices
  int device = 0;         // how a GPU's libraries compute
  caffe2::TypeMeta type;  // of a new tensor
  friend bool operator==(const Settings& a, const Settings& b) {
    return a.threads == b.threads && a.rounding == b.rounding && a.alike(b);
  }
  // In what holds for all threads.
  bool alike(const Settings& other) const {
    return deterministic == other.deterministic && mkldnn == other.mkldnn &&
           precision == other.precision && device == other.device && type == other.type;
  }
};

#if defined(__SSE__)
constexpr unsigned kRounding = 0xffc0;  // not what the last computations have raised
unsigned rounding() { return _mm_getcsr() & kRounding; }
void set_rounding(unsigned bits) { _mm_setcsr((_mm_getcsr() & ~kRounding) | bits); }
#else
unsigned rounding() { return 0; }
void set_rounding(unsigned) {}
#endif

Settings settings() {
  auto& context = at::globalContext();
  Settings now;
  now.threads = at::get_num_threads();
  now.rounding = rounding();
  now.deterministic = context.deterministicAlgorithms();
  now.mkldnn = context.userEnabledMkldnn();
  now.precision = static_cast<int>(context.float32MatmulPrecision());
  now.type = c10::get_default_dtype();
  if (gpu >= 0) {
    for (const int flag :
         {static_cast<int>(context.allowTF32CuDNN()), static_cast<int>(context.benchmarkCuDNN()),
          static_cast<int>(context.userEnabledCuDNN()),
          static_cast<int>(context.deterministicCuDNN())})
      now.device = 2 * now.device + flag;
    now.device = 8 * now.device + static_cast<int>(context.allowFP16ReductionCuBLAS());
    now.device = 8 * now.device + static_cast<int>(context.linalgPreferredBackend());
  }
  return now;
}

// Whether an op makes the same bytes again, by PyTorch's own word. A GPU's kernels may add up in
// any order, and its libraries may choose another one each time, unless that is forbidden.
int is_repeatable() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly() &&
                 !context.benchmarkCuDNN()
             ? 1
             : 0;
}

struct Recipe {
  std::vector<Call> calls;
  Settings settings;
};

constexpr std::size_t kTiny = 64;  // bytes: kept by value

// Nobody stands between the dispatcher and the kernel but autograd.
c10::DispatchKeySet described_keys() {
  constexpr c10::DispatchKeySet kProcessor{c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView,
                                           c10::DispatchKey::AutogradCPU,
                                           c10::DispatchKey::BackendSelect};
  return gpu < 0 ? kProcessor : kProcessor | c10::DispatchKeySet{kGpuKernel, kGpuAutograd};
}
bool is_autocast(c10::DispatchKey key) {
  return key == c10::DispatchKey::AutocastCPU || (gpu >= 0 && key == kGpuAutocast);
}
bool is_described(c10::DispatchKeySet keys) {
  const auto described = described_keys();
  for (const c10::DispatchKey key : keys)
    if (!described.has(key) && !is_autocast(key)) return false;
  return true;
}

// Whether the storage is given back to Sentinel when it ends, and begins where it was given out.
bool is_owned(const c10::Storage& storage) {
  const auto& data = storage.data_ptr();
  if (data.get_context() != data.get()) return false;
  return gpu < 0 || kFakeGpu ? data.get_deleter() == &deallocate : data.get_deleter() != nullptr;
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
  const bool owned = managed(tensor) && is_owned(storage);
  result.on_gpu = gpu >= 0 && managed(tensor);
  result.wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();  // gone with its op
  result.number = owned && !result.wrapped ? sentinel_tensor_number(result.storage) : 0;
  if (result.number != 0 || result.bytes == 0) return result;
  if (result.bytes > kTiny || !tensor.device().is_cpu()) return std::nullopt;
  const auto* bytes = static_cast<const char*>(result.storage);
  result.value.assign(bytes, bytes + result.bytes);
  return result;
}

bool describe(const c10::IValue& value, Use use, Argument& argument) {
  const auto add = [&](const at::Tensor& tensor) {
    auto& entry = argument.tensors.emplace_back();
    if (!tensor.defined()) return true;
    entry = described(tensor);
    if (entry) entry->use = use;
    return entry.has_value();
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
  argument.plain =
      value.isList() ? value.deepcopy() : value;  // a script may go on to change its own
  return value.isNone() || value.isInt() || value.isDouble() || value.isBool() ||
         value.isString() || value.isIntList() || value.isDoubleList() || value.isBoolList() ||
         value.isScalar() || value.isDevice();
}

bool is_generator(const c10::Argument& formal) {
  const auto& type = *formal.type();
  return type.kind() == c10::TypeKind::GeneratorType ||
         (type.kind() == c10::TypeKind::OptionalType &&
          type.castRaw<c10::OptionalType>()->getElementType()->kind() ==
              c10::TypeKind::GeneratorType);
}

// As it is now: what the call draws from the program's, a replay draws from a copy.
at::Generator copy_of(const c10::IValue& given) {
  auto generator = given.isNone() ? at::detail::getDefaultCPUGenerator() : given.toGenerator();
  const std::lock_guard guard(generator.mutex());
  return generator.clone();
}

bool is_random(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded);
}

// The call computes nothing but by calls of its own, which are described in its stead.
bool only_calls(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return true;
  const auto& formals = op.schema().arguments();
  if (is_random(op) && std::none_of(formals.begin(), formals.end(), is_generator))
    return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  const auto casts = [&](c10::DispatchKey key) {
    return !excluded.has(key) && op.hasKernelForDispatchKey(key);
  };
  return casts(c10::DispatchKey::AutocastCPU) || (gpu >= 0 && casts(kGpuAutocast));
}

// An operator of the program's may write to what its schema does not say.
bool is_pytorchs(const c10::OperatorHandle& op) {
  return op.operator_name().name.rfind("aten::", 0) == 0;
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

// Its threads write to the same numbers in any order, where an index names one twice.
constexpr const char* kRacing[] = {"index_put", "index_copy", "put_", "scatter"};
bool races(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  return at::get_num_threads() > 1 && !at::globalContext().deterministicAlgorithms() &&
         std::any_of(std::begin(kRacing), std::end(kRacing),
                     [&name](const char* part) { return name.find(part) != std::string::npos; });
}

// What the program's own operator is given it may write to, whatever its schema says.
// `lasting`: later than its end, too.
void reach_inputs(const at::RecordFunction& fn, bool lasting) {
  if (sentinel_wants_recipes() == 0) return;
  for (const c10::IValue& input : fn.inputs())
    for_tensors(input, [lasting](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.has_storage() && managed(tensor))
        sentinel_reached(tensor.storage().data(), lasting ? 1 : 0);
    });
}

// None where it cannot be run again in the same way: it is given what cannot be described, or
// somebody may change how it computes.
std::optional<Call> call_of(const c10::OperatorHandle& op, Inputs inputs) {
  const auto& formals = op.schema().arguments();
  if (inputs.size() != formals.size() || !is_pytorchs(op) || races(op)) return std::nullopt;
  if (gpu >= 0 && (is_random(op) || std::any_of(formals.begin(), formals.end(), is_generator)))
    return std::nullopt;  // a device's generators are not copied
  const auto described = described_keys();
  for (const c10::DispatchKey key : c10::impl::tls_local_dispatch_key_set().included_)
    if (!described.has(key)) return std::nullopt;
  std::optional<Call> call(std::in_place, op);
  call->grad_mode = at::GradMode::is_enabled();
  bool draws = !is_random(op);
  for (std::size_t i = 0; i < formals.size(); ++i) {
    auto& argument = call->arguments.emplace_back();
    if (formals[i].is_out()) return std::nullopt;
    if (is_generator(formals[i])) {
      argument.plain = copy_of(inputs[i]);
      draws = true;
    } else if (!describe(inputs[i], use_of(op.schema(), formals[i], inputs), argument)) {
      return std::nullopt;
    }
  }
  return draws ? std::move(call) : std::nullopt;
}

std::uint64_t number_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.storage().nbytes() != 0
             ? sentinel_tensor_number(tensor.storage().data())
             : 0;
}

// Of the op that this thread runs: its calls, one after another.
class Recording {
 public:
  bool on() const { return recipe_ != nullptr; }
  void begin_op(const at::RecordFunction& fn) {
    recipe_.reset();
    open_.reset();
    saving_.reset();
    within_ = 0;
    if (makes_nothing(fn.name()) || (gpu >= 0 && is_repeatable() == 0)) return;
    try {
      auto recipe = std::make_unique<Recipe>();
      recipe->settings = settings();
      recipe_ = std::move(recipe);
      begin_call(fn);
    } catch (const std::exception&) {  // what PyTorch cannot tell of, no replay can repeat
      recipe_.reset();
    }
  }
  // The op itself, or a part of it.
  void begin_call(const at::RecordFunction& fn) {
    if (within_ > 0) {
      if (++within_ == 2) begin_saving(fn);
      return;
    }
    const auto name = fn.operator_name();
    if (!name) return;  // a mark
    const auto op = c10::Dispatcher::singleton().findSchema(*name);
    if (op && op->hasSchema() && only_calls(*op)) return;
    if (op && op->hasSchema())
      if ((open_ = call_of(*op, fn.inputs()))) {
        within_ = 1;
        return;
      }
    recipe_.reset();
  }
  void end_call(const at::RecordFunction& fn) {
    if (within_ == 0) return;
    const bool saving = --within_ == 1 && saving_;
    if (within_ > 0 && !saving) return;
    if (std::uncaught_exceptions() != 0) return recipe_.reset();
    close(std::exchange(saving ? saving_ : open_, std::nullopt), fn);
  }
  // The op has ended: hands its recipe over, with what it read and wrote. What it made for itself
  // alone is of no interest to anybody.
  void end_op() {
    const auto recipe = std::exchange(recipe_, nullptr);
    if (recipe == nullptr || recipe->calls.empty()) return;
    Numbers read, written, made;
    const auto add = [](Numbers& numbers, std::uint64_t number) {
      if (std::find(numbers.begin(), numbers.end(), number) == numbers.end())
        numbers.push_back(number);
    };
    for (const auto& call : recipe->calls) {
      for (const auto& argument : call.arguments)
        for (const auto& tensor : argument.tensors) {
          if (!tensor || tensor->number == 0 || tensor->use == Use::ignored) continue;
          const bool own = std::find(made.begin(), made.end(), tensor->number) != made.end();
          if (!own && tensor->use != Use::statistic) add(read, tensor->number);
          if (tensor->use != Use::read && (!own || lives(*tensor))) add(written, tensor->number);
        }
      for (const auto& [number, storage] : call.made) {
        add(made, number);
        if (sentinel_tensor_number(storage) == number) add(written, number);
      }
    }
    if (written.empty()) return;
    auto* const handle = new Recipe(std::move(*recipe));
    sentinel_op_recipe(handle, read.data(), read.size(), written.data(), written.size());
  }
  void drop() { recipe_.reset(); }

 private:
  using Numbers = std::vector<std::uint64_t>;

  // Nobody has computed what lies in it: an op that fills it does not say with what.
  static bool makes_nothing(const char* name) {
    return std::strncmp(name, "aten::empty", 11) == 0 ||
           std::strncmp(name, "aten::new_empty", 15) == 0;
  }
  static bool lives(const Described& tensor) {
    return sentinel_tensor_number(tensor.storage) == tensor.number;
  }
  // Before an op writes to its operand, autograd saves a copy where the gradient needs the value
  // from before. That is a call of its own, which comes first.
  void begin_saving(const at::RecordFunction& fn) {
    saving_.reset();
    if (std::strcmp(fn.name(), "aten::clone") != 0 || fn.inputs().empty() ||
        !fn.inputs()[0].isTensor())
      return;
    const auto number = number_of(fn.inputs()[0].toTensor());
    const auto updates = [number](const Argument& argument) {
      return std::any_of(argument.tensors.begin(), argument.tensors.end(), [&](const auto& tensor) {
        return tensor && tensor->number == number && tensor->use == Use::updated;
      });
    };
    const auto& arguments = open_->arguments;
    if (number == 0 || std::none_of(arguments.begin(), arguments.end(), updates)) return;
    const auto op = c10::Dispatcher::singleton().findSchema(*fn.operator_name());
    if (op && op->hasSchema()) saving_ = call_of(*op, fn.inputs());
  }
  void close(std::optional<Call> call, const at::RecordFunction& fn) {
    bool makes = false;
    Numbers given;
    for (const auto& argument : call->arguments)
      for (const auto& tensor : argument.tensors) {
        if (!tensor) continue;
        given.push_back(tensor->number);
        makes = makes || (tensor->use != Use::read && tensor->use != Use::ignored);
      }
    for (const c10::IValue& output : fn.outputs())
      for_tensors(output, [&](const at::Tensor& tensor) {
        auto number = number_of(tensor);
        if (std::find(given.begin(), given.end(), number) != given.end()) number = 0;
        call->outputs.push_back(number);
        if (number == 0) return;
        call->made.emplace_back(number, tensor.storage().data());
        makes = true;
      });
    if (makes) recipe_->calls.push_back(std::move(*call));
  }

  std::unique_ptr<Recipe> recipe_;
  std::optional<Call> open_, saving_;
  int within_ = 0;  // calls that the open one makes, and itself
};
thread_local Recording recording;

}  // namespace
