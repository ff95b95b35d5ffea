// For builds that run on other systems than this one (SENTINEL_PORTABLE), linked with --wrap: what
// waits on a condition variable waits under the older of the two names that this function has in
// libstdc++. The newer one differs in nothing but that a thread's cancellation may leave it, and is
// all that asks for a libstdc++ of 2022.
extern "C" {
void sentinel_older_wait(void* condition, void* lock);
__asm__(
    ".symver sentinel_older_wait,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(void* condition, void* lock) {
  sentinel_older_wait(condition, lock);
}
}
