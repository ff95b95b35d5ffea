// The paper's three calls as ops of a graph: each hands its input on, and makes its call when that
// is computed. Loaded by sentinel/tensorflow.py through tf.load_op_library.
#include "sentinel/sentinel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace {

template <int (*call)()>
class Mark final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    context->set_output(0, context->input(0));
    if (call() != 0) context->SetStatus(absl::FailedPreconditionError(sentinel_last_error()));
  }
};

}  // namespace

#define MARK(name, call)                                                                     \
  REGISTER_OP(name).Input("x: T").Output("y: T").Attr("T: type").SetIsStateful().SetShapeFn( \
      tensorflow::shape_inference::UnchangedShape);                                          \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), Mark<call>)

MARK("SentinelStartProfile", sentinel_start_profile);
MARK("SentinelEndProfile", sentinel_end_profile);
MARK("SentinelAddLayer", sentinel_add_layer);
