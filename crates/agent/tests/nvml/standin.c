/* A stand-in for NVIDIA's management library: two GPUs whose figures stand in the file STATE, which is read at each call.
 * Its lines are `GPU KEY VALUE` with the keys busy, used, milliwatts, celsius, and mig: into how many instances the GPU is
 * divided. With OLD, some functions are missing, as in an old driver; with NO_DRIVER, nothing begins. */
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };
enum { GPUS = 2, INSTANCES = 7 };

struct device {
  unsigned gpu;
  int is_instance;
};
static struct device devices[GPUS] = {{0, 0}, {1, 0}};
static struct device instances[GPUS][INSTANCES];

static unsigned long long state(unsigned gpu, const char *key, unsigned long long otherwise) {
  FILE *file = fopen(STATE, "r");
  unsigned of;
  char name[32];
  unsigned long long value;
  if (file == NULL) {
    return otherwise;
  }
  while (fscanf(file, "%u %31s %llu", &of, name, &value) == 3) {
    if (of == gpu && strcmp(name, key) == 0) {
      otherwise = value;
    }
  }
  fclose(file);
  return otherwise;
}

int nvmlInit_v2(void) {
#ifdef NO_DRIVER
  return DRIVER_NOT_LOADED;
#else
  return SUCCESS;
#endif
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = GPUS;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned gpu, struct device **device) {
  if (gpu >= GPUS) {
    return NOT_FOUND;
  }
  *device = &devices[gpu];
  return SUCCESS;
}

int nvmlDeviceGetName(struct device *device, char *name, unsigned length) {
  snprintf(name, length, device->is_instance ? "Stand-in GPU MIG 1g.10gb" : "Stand-in GPU");
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct device *device, unsigned long long *memory) {
  memory[0] = (device->is_instance ? 10ull : 80ull) << 30;
  memory[2] = state(device->gpu, "used", 0);
  memory[1] = memory[0] - memory[2];
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct device *device, unsigned *rates) {
  if (device->is_instance) {
    return NOT_SUPPORTED;
  }
  rates[0] = (unsigned)state(device->gpu, "busy", 0);
  rates[1] = 0;
  return SUCCESS;
}

int nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *celsius) {
  if (device->is_instance || sensor != 0) {
    return NOT_SUPPORTED;
  }
  *celsius = (unsigned)state(device->gpu, "celsius", 40);
  return SUCCESS;
}

#ifndef OLD
int nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts) {
  if (device->is_instance) {
    return NOT_SUPPORTED;
  }
  *milliwatts = (unsigned)state(device->gpu, "milliwatts", 100000);
  return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count) {
  *count = state(device->gpu, "mig", 0) > 0 ? INSTANCES : 0;
  return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned place, struct device **instance) {
  if (place >= INSTANCES || place >= state(device->gpu, "mig", 0)) {
    return NOT_FOUND;
  }
  instances[device->gpu][place] = (struct device){device->gpu, 1};
  *instance = &instances[device->gpu][place];
  return SUCCESS;
}
#endif
