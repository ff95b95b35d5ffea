// A value of each thread that outlives the thread's own thread_local variables: their destructors
// free tensors, and to free one asks for such values.
#pragma once

#include <pthread.h>

namespace sentinel {

// The calling thread's T, made when it first asks. A key's destructor ends it, after those of
// thread_local variables (pthread_key_create(3)); a later destructor that asks gets a new one. The
// thread that ends the process keeps its T, as do all where the system has no key left.
template <class T>
T& of_thread() {
  static thread_local T* value = nullptr;
  if (value != nullptr) return *value;
  static const auto key = [] {
    struct Key {
      pthread_key_t number = 0;
      bool made = false;
    } made;
    made.made = pthread_key_create(&made.number, [](void* held) {
                  value = nullptr;
                  delete static_cast<T*>(held);
                }) == 0;
    return made;
  }();
  value = new T;
  if (key.made) pthread_setspecific(key.number, value);
  return *value;
}

}  // namespace sentinel
