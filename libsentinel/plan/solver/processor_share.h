#pragma once

namespace sentinel::plan {

// How much of a processor the calling thread has had of the time in which it could run, over its
// whole life: 1 where nobody else wanted it, or where the kernel does not say. Solvers know limits
// of the processor's time alone, or look at the clock too seldom: on a busy machine they get less
// done by it. Safe from any thread.
double processor_share();

}  // namespace sentinel::plan
