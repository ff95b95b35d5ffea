// The end of the command that started this process, however it comes: `sentinel run` that is killed
// ends its training, wherever below it that runs.
#pragma once

#include <sys/types.h>

#include <functional>

namespace sentinel {

// Once the process is gone, a thread of ours calls `gone`, which may never come; it runs in no
// forked child. Nothing happens where the process cannot be watched (before Linux 5.3).
void when_process_ends(pid_t process, std::function<void()> gone);

}  // namespace sentinel
