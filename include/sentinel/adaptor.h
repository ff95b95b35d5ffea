/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a framework's adaptor tells Sentinel, beside sentinel.h: which op runs, which memory it
 * names, which layer has begun. Internal to the project: it changes with the library.
 *
 * All of it is called by the framework's own threads while training; nothing here throws or blocks
 * for longer than the tensors of the op take to arrive. Names must stay valid for the life of the
 * process, and equal pointers must mean equal names.
 */
#ifndef SENTINEL_ADAPTOR_H
#define SENTINEL_ADAPTOR_H

#include <stdint.h>

#include "sentinel/sentinel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sentinel_phase { SENTINEL_FORWARD, SENTINEL_BACKWARD, SENTINEL_OPTIMIZER };
/* SENTINEL_OVERWRITE, with SENTINEL_WRITE: the op writes every byte of the storage and reads none,
 * so that what it held is not fetched and may be lost at once. */
enum sentinel_access { SENTINEL_READ = 1, SENTINEL_WRITE = 2, SENTINEL_OVERWRITE = 4 };

/* Whether a step's ops run one after the other, in the thread that trains, or at the same time in
 * any threads, in an order that may differ from step to step. */
enum sentinel_order { SENTINEL_IN_SEQUENCE, SENTINEL_IN_ANY_ORDER };

/* Starts the session that the environment asks for (see `sentinel help run`). Called once, from the
 * thread that will train. 1: it only allocates; nothing below needs to be called. -ENOENT: the
 * environment asks for none. */
SENTINEL_API int sentinel_attach(const char* framework, int order);

/* Whether sentinel_op_tensor() is wanted now; it may change from one op to the next. Storages that
 * are overwritten may always be named. */
SENTINEL_API int sentinel_wants_tensors(void);

/* 0, from a sentinel_step() on: nothing leaves fast memory, so ops and layers need not be told. It
 * may be 1 again after any allocation, and from a profile's start on: the ops that begin after that
 * have to be told. On a GPU, for an op that is not, sentinel_compute_on() is called, and that it
 * begins (1) and ends (0), which takes no lock. sentinel_op_untold(1) answers 0, or -EAGAIN where
 * that has come true already: the op has to be told, or must not run.
 */
SENTINEL_API int sentinel_wants_ops(void);
SENTINEL_API int sentinel_op_untold(int begins);

/* A step seems to have ended, where nothing marks one: 0 where it is taken for the end of one. It
 * is not from the first sentinel_step() on. */
SENTINEL_API int sentinel_step_found(void);

/* The outermost op that is not a mere composite begins, in the calling thread. Tensors named
 * between start and run are its inputs (and what it updates in place); `sentinel_op_run` then waits
 * for what the plan wants in fast memory. What the thread allocates before the op's end belongs to
 * the op. `layer`: of which it is (one that has begun in this step does not begin again), or NULL
 * for the one that began last. */
SENTINEL_API void sentinel_op_start(const char* name, int phase, const char* layer);
SENTINEL_API void sentinel_op_tensor(const void* storage, size_t bytes, int access);
SENTINEL_API void sentinel_op_run(void);
SENTINEL_API void sentinel_op_end(void);

/* Where the fast tier is a GPU's memory (--tiers fast=gpu0,...): the device's number, else -1.
 * There sentinel_malloc() gives memory of that device or NULL, which means that the budget has no
 * room beside what the op uses; every op names its tensors, and the calling thread names the stream
 * (a CUstream) on which it launches what follows. */
SENTINEL_API int sentinel_gpu(void);
SENTINEL_API void sentinel_compute_on(void* stream);
/* Before a program destroys a stream on which it has computed. What was launched there is
 * still waited for; nothing may be launched any more, and a thread that computed there names
 * another before it launches (else it is taken to compute on the default stream). */
SENTINEL_API void sentinel_forget_stream(void* stream);
/* The tensor at `storage` is used on that stream by what no op names: by a library's kernels, say.
 * It is there for what is launched on it next, and what the stream was given is waited for from now
 * on before the memory of any tensor is another's. The calling thread computes on it until it names
 * another. */
SENTINEL_API void sentinel_used_on(const void* storage, void* stream);
/* The address of the tensor at `storage` is known where no op names it: it is there, and stays
 * until it is freed. 1: it may have left until now; 0: it could not, or is no tensor of the
 * session's. */
SENTINEL_API int sentinel_pin(const void* storage);
/* Bytes of the device that tensors may have, as far as that is known now: a share is of the most
 * that was alive until now. */
SENTINEL_API size_t sentinel_gpu_budget(void);
/* 1: beside all tensors that are alive the device has so many bytes, whatever the budget: a program
 * without Sentinel would have been given them. */
SENTINEL_API int sentinel_gpu_has_room(size_t bytes);
/* Memory of another device than the session's, which is not managed: no op names it. From the
 * driver, in that device's primary context; what is freed goes back once all is over that the
 * device was given until then, and nobody waits for that but who finds the device full. 0,
 * or a negative errno with sentinel_last_error(); -ENOMEM: that device is full. */
SENTINEL_API int sentinel_unmanaged_malloc(int device, size_t bytes, void** memory);
SENTINEL_API void sentinel_unmanaged_free(int device, void* memory);
/* Bytes: of tensors alive on a device, and the most that were; of the device's memory that is held
 * for them, and the most that was (of a device that is not managed: with what is freed and has not
 * gone back); the budget, or 0. `reset`: the most is what is now, from here on; but of what is held
 * on the device that is managed it stays the program's. */
SENTINEL_API void sentinel_gpu_memory(int device, size_t figures[5], int reset);

/* Where compiled adaptors lie, for the adaptors' Python sides; both give a descriptor for the
 * caller to close, or a negative errno with sentinel_last_error(). The user's cache, made where
 * there is none; refused where others could write to it. A library in a folder, to be loaded
 * through /proc/self/fd; -ENOENT: there is none; else refused, being another user's or writable by
 * others. */
SENTINEL_API int sentinel_cache_open(void);
SENTINEL_API int sentinel_library_open(int folder, const char* name);

/* Replays: an op that computes once more what a tensor held (docs/design/replays.md). A recipe is
 * all that an adaptor needs for that: the op and its arguments, tensors among them as descriptions,
 * so that no tensor lives longer for it. A tensor's number is its alone; addresses are used again.
 *
 * replay: runs the recipes in order. What an earlier one has made is read from the replay's own
 * memory, all else at its address. In the end it gives each tensor that was written, as it is then;
 * `bytes` have to last until `give` returns. Not 0: an op failed. Meanwhile the calling thread
 * tells no op, and what it allocates is outside the plan. It is called by a thread that trains, or
 * by one of Sentinel's own, by two at the same time perhaps, and never from within an op that
 * computes.
 * drop: the core needs the recipe no more. From any thread, and under no lock of the core.
 * able: 0 where ops cannot be described by the settings of now; none: they always can.
 * launches: before the inputs of a replay are waited for, in the thread that replays: on a GPU it
 * names the stream (sentinel_compute_on) on which the replay is going to be launched. There `bytes`
 * are the device's, and what is launched need not be over when replay() returns. None: no GPU. */
typedef void (*sentinel_give)(void* context, uint64_t number, const void* bytes, size_t size);
struct sentinel_replayer {
  int (*replay)(void* const* recipes, size_t count, sentinel_give give, void* context);
  void (*drop)(void* recipe);
  int (*able)(void);
  void (*launches)(void);
};
/* Before sentinel_attach(); it stays valid. */
SENTINEL_API void sentinel_replay_with(const struct sentinel_replayer* replayer);
/* 1: plans may replay ops in this session. After sentinel_attach(). */
SENTINEL_API int sentinel_may_replay(void);
/* 1: the plan in use replays ops, whose recipes will be wanted. */
SENTINEL_API int sentinel_wants_recipes(void);
/* 1: the plan replays the calling thread's op. After sentinel_op_start(). */
SENTINEL_API int sentinel_op_wants_recipe(void);
/* Of the living tensor that begins there; 0: none of ours. */
SENTINEL_API uint64_t sentinel_tensor_number(const void* storage);
/* The program gets the address of the tensor that begins there, and may write to it unseen: until
 * the tensor dies (lasting), or in this step. What a plan would make from it is made before this
 * returns. From any thread, outside ops. */
SENTINEL_API void sentinel_reached(const void* storage, int lasting);
/* Something changes on which the results of all ops depend, as the number of threads. All that a
 * plan has given up is made again before this returns. From any thread, outside ops. */
SENTINEL_API void sentinel_remake_all(void);
/* Once the op has computed, before sentinel_op_end(): the tensors it read, those that it made and
 * those that it updated in place. What is read for its own update alone, as a running mean is, may
 * be among those written alone: then the replay does not need it as it was. The core owns the
 * recipe from now on, whatever it does with it. With a number of 0 among what it read or wrote the
 * recipe is dropped. */
SENTINEL_API void sentinel_op_recipe(void* recipe, const uint64_t* read, size_t reads,
                                     const uint64_t* written, size_t writes);

/* A layer begins. `name` is copied. */
SENTINEL_API void sentinel_layer_start(const char* name, int phase);

/* What is trained, for the profile: the model's name, and the samples of one step (0: unknown). The
 * first call counts. `name` is copied. */
SENTINEL_API void sentinel_model(const char* name, size_t batch);

/* Something that this version cannot manage (torch.compile, say): training goes on unmanaged. */
SENTINEL_API void sentinel_unsupported(const char* what);
/* The program ends: writes what is still to be written. Called once, from the interpreter's exit.
 */
SENTINEL_API void sentinel_detach(const char* reason);

#ifdef __cplusplus
}
#endif
#endif
