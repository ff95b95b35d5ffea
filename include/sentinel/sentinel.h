/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sentinel's C interface (stable).
 *
 * A program that trains by itself takes its tensors from sentinel_malloc(), marks the end of each
 * layer and of each step, and brackets the step to be profiled. Under `sentinel record` or
 * `sentinel run` the same marks serve; without either, sentinel_start_profile() writes its profile
 * to $SENTINEL_OUTPUT, or profile.sentinel in the current directory.
 *
 * Unless said otherwise a function returns 0 or a negative errno, and sentinel_last_error() then
 * says what failed and what to do; it may be called from any thread, but steps, layers and profiles
 * are marked by one thread, the training thread. Nothing here throws.
 */
#ifndef SENTINEL_SENTINEL_H
#define SENTINEL_SENTINEL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SENTINEL_API __attribute__((visibility("default")))

/* Begins to profile: page accesses are counted from here on. -EALREADY: it has begun. */
SENTINEL_API int sentinel_start_profile(void);
/* Ends it and writes the profile. -EINVAL: none was begun. */
SENTINEL_API int sentinel_end_profile(void);
/* Marks the end of a layer. */
SENTINEL_API int sentinel_add_layer(void);
/* Marks the end of a training step. */
SENTINEL_API int sentinel_step(void);

/* Memory for one tensor, aligned to 64 bytes at least; NULL (and errno ENOMEM) where there is none,
 * and for a size of 0. */
SENTINEL_API void* sentinel_malloc(size_t bytes);
/* Accepts NULL and pointers from sentinel_malloc() only. */
SENTINEL_API void sentinel_free(void* tensor);

/* The calling thread's last failure, as a sentence; never NULL, valid until its next call. */
SENTINEL_API const char* sentinel_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
