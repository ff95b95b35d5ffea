// The broker that `sentinel run` starts for the user where none listens.
#pragma once

#include "base/descriptor.h"
#include "options/options.h"

namespace sentinel::cli {

// A connection: a broker that ends when nobody is there stays as long as it is open. Throws Error
// where no broker listens and none can be started.
Descriptor ensure_broker(const SessionOptions&);

}  // namespace sentinel::cli
