// An extension of PyTorch whose functions compute past its dispatcher, as C++ and CUDA extensions
// do: of what they touch no op tells.
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

namespace {

void multiply(const at::Tensor& out, const at::Tensor& value, const at::Tensor& table) {
  auto* to = static_cast<float*>(out.data_ptr());
  const auto *from = static_cast<const float*>(value.data_ptr()),
             *by = static_cast<const float*>(table.data_ptr());
  for (int64_t i = 0; i < out.numel(); ++i) to[i] = from[i] * by[i];
}

class Multiplier {
 public:
  void keep(const at::Tensor& table) { table_ = table; }
  void multiply(const at::Tensor& out, const at::Tensor& value) const {
    ::multiply(out, value, table_);
  }

 private:
  at::Tensor table_;
};

}  // namespace

PYBIND11_MODULE(gpu_extension, module) {
  module.def("multiply", &multiply);
  module.def("name", [] { return "gpu_extension"; });
  module.def_submodule("inner").def("multiply", &multiply);
  pybind11::class_<Multiplier>(module, "Multiplier")
      .def(pybind11::init<>())
      .def("keep", &Multiplier::keep)
      .def("multiply", &Multiplier::multiply)
      .def_static("at_once", &multiply);
}
