/* Reads floats in many threads at once, past whatever the program's framework knows of. */
float touch(const float* values, int count) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(3) schedule(static)
  for (int i = 0; i < count; i += 1021) sum += values[i];
  return (float)sum;
}
