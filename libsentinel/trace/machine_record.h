#pragma once

#include "sentinel/profile.h"

namespace sentinel {

// The machine this runs on, from /proc, /sys and sysconf; what cannot be found out stays empty.
MachineRecord this_machine();

}  // namespace sentinel
