/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training loop in C, against Sentinel's C interface (include/sentinel/sentinel.h).
 *
 *     cc -O2 examples/c/train.c -Iinclude -Lbuild/lib -lsentinel -Wl,-rpath,$PWD/build/lib -o train
 *     ./train                                     writes profile.sentinel of the third step
 *     sentinel report profile.sentinel heatmap
 *     sentinel run --fast 40M -- ./train           keeps 40 MiB of its tensors in memory, and the rest on the SSD
 *
 * The model is made up: each layer adds its weights to its input, and the backward pass moves each weight a little.
 * The program allocates, marks and frees as a real training does.
 */
#include <sentinel/sentinel.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLayers = 12, kSteps = 8, kProfiled = 2, kCount = 1 << 21 /* floats a tensor: 8 MiB */ };

/* A function of the interface returns 0, or a negative errno and a sentence that says what to do. */
static void check(int code) {
  if (code == 0) return;
  fprintf(stderr, "train: %s\n", sentinel_last_error());
  exit(1);
}

static float *tensor(void) {
  float *values = sentinel_malloc(kCount * sizeof(float));
  check(values == NULL ? -1 : 0);
  return values;
}

int main(void) {
  float *weights[kLayers], *activations[kLayers + 1];
  for (int l = 0; l < kLayers; l++) { /* weights persist: they live from step to step */
    weights[l] = tensor();
    for (int i = 0; i < kCount; i++) weights[l][i] = 1e-3f * (float)(i % 7);
  }
  for (int step = 0; step < kSteps; step++) {
    if (step == kProfiled) check(sentinel_start_profile()); /* accesses are counted from here on */
    activations[0] = tensor();
    for (int i = 0; i < kCount; i++) activations[0][i] = 1;

    for (int l = 0; l < kLayers; l++) { /* forward: each activation is kept for the backward pass */
      activations[l + 1] = tensor();
      for (int i = 0; i < kCount; i++) activations[l + 1][i] = activations[l][i] + weights[l][i];
      check(sentinel_add_layer()); /* the end of a layer */
    }
    const float loss = activations[kLayers][kCount - 1];

    for (int l = kLayers - 1; l >= 0; l--) { /* backward: activations are freed in the other order */
      for (int i = 0; i < kCount; i++) weights[l][i] -= 1e-3f * activations[l + 1][i] * activations[l][i];
      sentinel_free(activations[l + 1]);
      check(sentinel_add_layer());
    }
    sentinel_free(activations[0]);

    if (step == kProfiled)
      check(sentinel_end_profile()); /* writes the profile; the step ends with it */
    else
      check(sentinel_step()); /* the end of a step */
    printf("step %d  loss %.9f\n", step, (double)loss);
  }
  for (int l = 0; l < kLayers; l++) sentinel_free(weights[l]);
  return 0;
}
