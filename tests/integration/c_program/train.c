/*
 * A training loop of its own, without any framework: two layers by hand, on a task that it makes up.
 * Usage: train STEPS HIDDEN PROFILED-STEP     (PROFILED-STEP -1: none)
 * Prints each step's loss to the last bit. cc -O2 train.c -lsentinel -lm
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sentinel/sentinel.h"

enum { kBatch = 128, kInputs = 16 };

static float *tensor(size_t count) {
  float *values = sentinel_malloc(count * sizeof(float));
  if (values == NULL) {
    fprintf(stderr, "train: %s\n", sentinel_last_error());
    exit(1);
  }
  return values;
}

static void must(int code) {
  if (code == 0) return;
  fprintf(stderr, "train: %s\n", sentinel_last_error());
  exit(1);
}

static float noise(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / (1 << 24) - 0.5f;
}

static void fill(float *values, size_t count, float scale, unsigned seed) {
  for (size_t i = 0; i < count; i++) values[i] = scale * noise(&seed);
}

/* out[n][m] = in[n][k] * weight[k][m] */
static void multiply(float *out, const float *in, const float *weight, int n, int k, int m) {
  memset(out, 0, sizeof(float) * (size_t)n * (size_t)m);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < k; j++)
      for (int c = 0; c < m; c++) out[(size_t)i * m + c] += in[(size_t)i * k + j] * weight[(size_t)j * m + c];
}

static void descend(float *weight, const float *in, const float *gradient, int n, int k, int m) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < k; j++)
      for (int c = 0; c < m; c++)
        weight[(size_t)j * m + c] -= 1e-4f * in[(size_t)i * k + j] * gradient[(size_t)i * m + c];
}

int main(int argc, char **argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 6, hidden = argc > 2 ? atoi(argv[2]) : 256;
  const int profiled = argc > 3 ? atoi(argv[3]) : 2;
  const size_t in = (size_t)kBatch * kInputs, mid = (size_t)kBatch * hidden;
  float *first = tensor((size_t)kInputs * hidden), *second = tensor(hidden);
  fill(first, (size_t)kInputs * hidden, 0.05f, 1);
  fill(second, hidden, 0.05f, 2);
  for (int step = 0; step < steps; step++) {
    if (step == profiled) must(sentinel_start_profile());
    float *images = tensor(in);
    fill(images, in, 1, 3u + (unsigned)step);

    float *active = tensor(mid);
    multiply(active, images, first, kBatch, kInputs, hidden);
    for (size_t i = 0; i < mid; i++) active[i] = tanhf(active[i]);
    must(sentinel_add_layer());

    float *error = tensor(kBatch), loss = 0;
    multiply(error, active, second, kBatch, hidden, 1);
    for (int i = 0; i < kBatch; i++) {
      error[i] -= images[(size_t)i * kInputs];
      loss += error[i] * error[i] / kBatch;
    }
    must(sentinel_add_layer());

    float *gradient = tensor(mid);
    for (int i = 0; i < kBatch; i++)
      for (int c = 0; c < hidden; c++) {
        const float a = active[(size_t)i * hidden + c];
        gradient[(size_t)i * hidden + c] = error[i] * second[c] * (1 - a * a);
      }
    descend(second, active, error, kBatch, hidden, 1);
    must(sentinel_add_layer());

    descend(first, images, gradient, kBatch, kInputs, hidden);
    sentinel_free(gradient);
    sentinel_free(error);
    sentinel_free(active);
    sentinel_free(images);
    if (step == profiled) must(sentinel_end_profile());
    else must(sentinel_step());
    printf("step %d loss %a\n", step, (double)loss);
  }
  sentinel_free(second);
  sentinel_free(first);
  return 0;
}
