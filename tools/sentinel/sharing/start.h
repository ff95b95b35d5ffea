// The broker that `sentinel run` starts for the user where none listens.
#pragma once

#include "options/options.h"

namespace sentinel::cli {

// Throws Error where no broker listens and none can be started.
void ensure_broker(const SessionOptions&);

}  // namespace sentinel::cli
