// Weights in memory that is not ours: which storages they are, whose memory it is, how many hold
// them, and the exchange of a storage's memory for a block of the arena. The StorageImpl stays, and
// with it views, ties and an optimizer's references. python/sentinel/_torch_weights.py decides.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit. All of it is called from Python, which keeps its lock meanwhile.
#pragma once

#include <ATen/MapAllocator.h>
#include <c10/core/StorageImpl.h>
#include <sys/mman.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <functional>
#include <typeindex>
#include <vector>

#include "torch_steps.h"

namespace {

// As _torch_weights.py names them. `slice`: a part of another storage. `object`: memory of a Python
// object (an array of numpy, a buffer). `unknown`: of a deleter that nobody has taught us.
enum class Memory : std::int32_t { none, ours, slice, object, unknown };

// Of a tensor, for Python: the same fields in the same order are in _torch_weights.py.
struct TensorFacts {
  const void* storage = nullptr;
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  const void* owner = nullptr;                // the other storage, or the Python object
  const void* bases[2] = {nullptr, nullptr};  // tensors that it is a view of, and keeps
  std::size_t uses = 0, storage_uses = 0, owner_uses = 0;
  Memory memory = Memory::none;
  std::int32_t owns_wrapper = 0;  // 1: it keeps its Python object; -1: they keep each other
  std::int32_t owner_maps_file = 0;
};

// Where the function lies that gives Python's memory back.
template <class Context>
auto giving_back(Context* context, int) -> decltype((context->deleter_)) {
  return context->deleter_;
}
template <class Context>
auto giving_back(Context* context, long) -> decltype((context->ptr_.get_deleter())) {
  return context->ptr_.get_deleter();
}

// Who keeps a tensor's Python object alive has changed twice.
template <class Impl>
auto owns_wrapper(Impl* impl, int) -> decltype(std::int32_t{impl->pyobj_slot()->owns_pyobj()}) {
  return impl->pyobj_slot()->owns_pyobj();
}
template <class Impl>
auto owns_wrapper(Impl* impl, long) -> decltype(std::int32_t{impl->owns_pyobj()}) {
  return impl->owns_pyobj();
}
template <class Impl>
std::int32_t owns_wrapper(Impl*, ...) {
  return -1;
}

std::size_t uses_of(c10::intrusive_ptr_target* target) {
  return c10::raw::intrusive_ptr::use_count(target);
}

// Of a storage: without its Python object, where that is kept by the storage alone.
template <class Storage>
auto held_by(Storage* storage, int)
    -> decltype(storage->pyobj_slot()->has_unique_reference(), std::size_t{}) {
  return uses_of(storage) - (storage->pyobj_slot()->has_unique_reference() ? 1 : 0);
}
template <class Storage>
std::size_t held_by(Storage* storage, long) {
  return uses_of(storage);
}

// PyTorch's deleters of memory that is not ours have no names outside of it, so each is learned
// from an example that Python makes.
class ForeignMemory {
 public:
  bool learn_slice(const c10::StorageImpl& slice, const void* of) {
    const auto& data = slice.data_ptr();
    if (data.get_context() != of) return false;
    slice_ = data.get_deleter();
    return slice_ != nullptr;
  }
  bool learn_object(const c10::StorageImpl& storage, const void* object) {
    const auto* function = function_of(storage.data_ptr());
    if (function == nullptr || captured(*function) != object) return false;
    objects_.emplace_back(function->target_type());
    return true;
  }
  void classify(const c10::StorageImpl& storage, TensorFacts& facts) const {
    const auto& data = storage.data_ptr();
    facts.memory = Memory::unknown;
    if (data.get_deleter() == &deallocate) {
      facts.memory = Memory::ours;
    } else if (slice_ != nullptr && data.get_deleter() == slice_) {
      auto* whole = static_cast<c10::StorageImpl*>(data.get_context());
      facts.memory = Memory::slice;
      facts.owner = whole;
      facts.owner_uses = held_by(whole, 0);
      facts.owner_maps_file = at::MapAllocator::fromDataPtr(whole->data_ptr()) != nullptr;
    } else if (const auto* function = function_of(data)) {
      if (std::find(objects_.begin(), objects_.end(), function->target_type()) == objects_.end())
        return;
      facts.memory = Memory::object;
      facts.owner = captured(*function);
    }
  }

 private:
  using Function = std::function<void(void*)>;

  // Null: the memory is given back in another way.
  static const Function* function_of(const c10::DataPtr& data) {
    static const auto deleter = [] {
      char nothing = 0;
      return c10::InefficientStdFunctionContext::makeDataPtr(
                 &nothing, [](void*) {}, c10::Device(c10::DeviceType::CPU))
          .get_deleter();
    }();
    if (data.get_deleter() != deleter || data.get_context() == nullptr) return nullptr;
    return &giving_back(static_cast<c10::InefficientStdFunctionContext*>(data.get_context()), 0);
  }
  // A function object of one pointer lies within the std::function. learn_object() proves it.
  static const void* captured(const Function& function) {
    const void* first = nullptr;
    std::memcpy(&first, &function, sizeof first);
    return first;
  }

  c10::DeleterFnPtr slice_ = nullptr;
  std::vector<std::type_index> objects_;
};
ForeignMemory foreign;

void note_bases(const at::Tensor& tensor, TensorFacts& facts) {
  const auto* views = torch::autograd::impl::get_view_autograd_meta(tensor);
  if (views == nullptr) return;
  if (views->has_bw_view()) facts.bases[0] = views->get_backward_view().base_.unsafeGetTensorImpl();
  if (views->has_fw_view() && !views->shared_view_info())
    facts.bases[1] = views->get_forward_view().base_.unsafeGetTensorImpl();
}

void note_tensor(c10::TensorImpl* impl, TensorFacts& facts) {
  if (!impl->has_storage() || impl->device_type() != c10::DeviceType::CPU ||
      impl->layout() != c10::kStrided)
    return;
  auto* storage = impl->storage().unsafeGetStorageImpl();
  if (storage == nullptr || storage->nbytes() == 0 || storage->data_ptr().get() == nullptr) return;
  facts.uses = uses_of(impl);
  facts.owns_wrapper = owns_wrapper(impl, 0);
  facts.storage = storage;
  facts.storage_uses = held_by(storage, 0);
  facts.address = reinterpret_cast<std::uintptr_t>(storage->data_ptr().get());
  facts.bytes = storage->nbytes();
  foreign.classify(*storage, facts);
  note_bases(
      at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(impl)),
      facts);
}

// Kernels may compute in another way where operands begin at another place of a cache line. So the
// weight begins where it did.
constexpr std::size_t kLine = 64;

// Whole pages of the range alone: the rest of the others has other tensors.
void drop_pages(std::uintptr_t begin, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

// Whether a tensor's memory is neither ours nor absent. After the first step, too.
EXPORT int sentinel_torch_is_foreign(void* tensor) {
  if (in_child || gpu >= 0) return 0;
  try {
    auto* impl = static_cast<c10::TensorImpl*>(tensor);
    if (!impl->has_storage() || impl->device_type() != c10::DeviceType::CPU) return 0;
    const auto& storage = impl->storage();
    return storage && storage.nbytes() != 0 && storage.data_ptr().get() != nullptr &&
           storage.data_ptr().get_deleter() != &deallocate;
  } catch (const std::exception&) {
    return 0;
  }
}

EXPORT int sentinel_torch_step_ended() { return a_step_ended; }

EXPORT int sentinel_torch_tensor_facts(void* tensor, TensorFacts* facts) {
  *facts = {};
  try {
    note_tensor(static_cast<c10::TensorImpl*>(tensor), *facts);
    return 0;
  } catch (const std::exception&) {
    *facts = {};
    return -ENOTSUP;
  }
}

// An example: the storage is a part of the storage `of`; the tensor lies in the memory of the
// Python object `of`. 1: the likes of it are known from now on.
EXPORT int sentinel_torch_learn_slice(void* storage, const void* of) {
  return foreign.learn_slice(*static_cast<c10::StorageImpl*>(storage), of);
}
EXPORT int sentinel_torch_learn_object(void* tensor, const void* of) {
  return foreign.learn_object(
      *static_cast<c10::TensorImpl*>(tensor)->storage().unsafeGetStorageImpl(), of);
}

// The storage's bytes move into the arena, if only `uses` hold it still and no step has ended.
// `mapped`: its pages are of a file that nobody else sees through this mapping.
EXPORT int sentinel_torch_bring(void* storage, std::size_t uses, int mapped) {
  auto* impl = static_cast<c10::StorageImpl*>(storage);
  if (in_child || gpu >= 0 || held_by(impl, 0) != uses) return -EBUSY;
  if (a_step_ended) return -EALREADY;
  const auto bytes = impl->nbytes();
  const auto from = reinterpret_cast<std::uintptr_t>(impl->data_ptr().get());
  const auto lead = from % kLine;
  auto* block = static_cast<char*>(sentinel_malloc(lead + bytes));
  if (block == nullptr) return -ENOMEM;
  std::memcpy(block + lead, impl->data_ptr().get(), bytes);
  c10::profiledCPUMemoryReporter().New(block, lead + bytes);
  const auto old =
      impl->set_data_ptr({block + lead, block, &deallocate, c10::Device(c10::DeviceType::CPU)});
  if (mapped != 0) drop_pages(from, bytes);
  return 0;
}
