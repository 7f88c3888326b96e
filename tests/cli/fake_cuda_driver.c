/* What `sluice --version --json` calls of libcuda.so.1, answered from the environment:
 * FAKE_CUDA_VERSION, FAKE_CUDA_ERROR of cuInit, and FAKE_CUDA_DEVICES, their number. */
#include <stdio.h>
#include <stdlib.h>

static int Given(const char* name) {
  const char* text = getenv(name);
  return text == NULL ? 0 : atoi(text);
}

int cuDriverGetVersion(int* version) {
  *version = Given("FAKE_CUDA_VERSION");
  return 0;
}
int cuInit(unsigned flags) { return flags == 0 ? Given("FAKE_CUDA_ERROR") : 1; }
int cuDeviceGetCount(int* count) {
  *count = Given("FAKE_CUDA_DEVICES");
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = 10 + index;
  return 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, (size_t)size, "Fake %d", device);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : device - 10;
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = ((size_t)device) << 30;
  return 0;
}
