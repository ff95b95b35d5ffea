// Whether PyTorch boxes the inputs of ops for an observer now, in the calling thread.
#include <ATen/record_function.h>

extern "C" int inputs_are_boxed() {
  return at::getStepCallbacks(at::RecordScope::FUNCTION).needs_inputs_ ? 1 : 0;
}
