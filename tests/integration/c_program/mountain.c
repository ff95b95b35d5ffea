/* mountain STEPS SIZE_MIB OP_MS: a step that makes 24 tensors in its forward ops, checks and frees them in its backward
 * ops, and updates weights of three tensors' size. It holds most in its middle. An op takes as long as it is told to.
 * Prints a sum of all that was read, and the wall time of the second half of the steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sentinel/adaptor.h"
#include "sentinel/sentinel.h"

enum { TENSORS = 24, WEIGHTS = 3 };

static size_t bytes;
static long op_ms;

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void begin(const char* name, int phase, void* tensor, int access) {
  sentinel_op_start(name, phase, NULL);
  if (tensor && sentinel_wants_tensors()) sentinel_op_tensor(tensor, bytes, access);
  sentinel_op_run();
}

static void end(void) {
  const struct timespec rest = {op_ms / 1000, op_ms % 1000 * 1000000L};
  nanosleep(&rest, NULL);
  sentinel_op_end();
}

static unsigned long sum_of(const unsigned char* tensor, unsigned char expected) {
  unsigned long sum = 0;
  for (size_t at = 0; at < bytes; at += 512) {
    if (tensor[at] != expected) {
      printf("byte %zu is %u, not %u\n", at, tensor[at], expected);
      exit(1);
    }
    sum += tensor[at];
  }
  return sum;
}

int main(int count, char** words) {
  if (count != 4) return 2;
  const int steps = atoi(words[1]);
  bytes = (size_t)atol(words[2]) << 20;
  op_ms = atol(words[3]);
  if (sentinel_attach("mountain", SENTINEL_IN_SEQUENCE) < 0) {
    fprintf(stderr, "%s\n", sentinel_last_error());
    return 125;
  }
  unsigned char *weights[WEIGHTS], *made[TENSORS];
  for (int w = 0; w < WEIGHTS; ++w) memset(weights[w] = sentinel_malloc(bytes), w, bytes);
  unsigned long sum = 0;
  double half_s = now_s();
  for (int step = 0; step < steps; ++step) {
    if (step == steps / 2) half_s = now_s();
    for (int t = 0; t < TENSORS; ++t) {
      sentinel_op_start("forward", SENTINEL_FORWARD, NULL);
      made[t] = sentinel_malloc(bytes);
      if (sentinel_wants_tensors()) sentinel_op_tensor(made[t], bytes, SENTINEL_WRITE);
      sentinel_op_run();
      memset(made[t], (step + t) % 251, bytes);
      end();
    }
    for (int t = TENSORS; t-- > 0;) {
      begin("backward", SENTINEL_BACKWARD, made[t], SENTINEL_READ);
      sum += sum_of(made[t], (unsigned char)((step + t) % 251));
      sentinel_free(made[t]);
      end();
    }
    for (int w = 0; w < WEIGHTS; ++w) {
      begin("update", SENTINEL_OPTIMIZER, weights[w], SENTINEL_READ | SENTINEL_WRITE);
      sum += sum_of(weights[w], (unsigned char)((w + step) % 251));
      memset(weights[w], (w + step + 1) % 251, bytes);
      end();
    }
    sentinel_step();
  }
  printf("sum %lu\n", sum);
  printf("second half %.3f s\n", now_s() - half_s);
  for (int w = 0; w < WEIGHTS; ++w) sentinel_free(weights[w]);
  sentinel_detach(NULL);
  return 0;
}
