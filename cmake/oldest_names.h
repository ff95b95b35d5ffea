// For builds that run on other systems than this one (SENTINEL_PORTABLE): included first in each C++ source. The newer
// name of this function differs in nothing but that it may be left by a thread's cancellation, and is the only one that
// asks for a libstdc++ of 2022.
#pragma once
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
