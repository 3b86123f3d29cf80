/* A libnvidia-ml.so.1 whose answers come from a text file, so that the real nvidia-ml-py can be run against any machine.
 *
 * The file is named by FAKE_NVML_STATE and read again at every call. Its lines are `KEY VALUES` or `KEY@DEVICE VALUES`,
 * where DEVICE is a GPU's index (0) or a slice's (0:1); the first with the device counts, else the first without one.
 *
 *   count N                            number of GPUs (1)
 *   name TEXT    uuid TEXT             (NVIDIA Test, GPU-0, MIG-0-1)
 *   mem TOTAL FREE USED RESERVED       bytes; without it NOT_SUPPORTED
 *   util PERCENT   temp CELSIUS   power MILLIWATTS     likewise
 *   proc PID BYTES|na                  a process that computes; any number of these lines
 *   graphics PID BYTES|na              likewise in the list of graphics processes
 *   mig N                              MIG is on and there are N places for slices
 *   slice 1                            this place is not empty
 *   err FUNCTION CODE                  the function fails so
 *   hang FUNCTION MILLISECONDS         the function comes back only then, or when the line is gone
 *   calls FILE                         names of the functions called are appended to the file
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DRIVER_VERSION
#define DRIVER_VERSION "580.95.05"
#endif

typedef unsigned long long bytes;
typedef struct { int gpu, slice; } *device;

enum {
  SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
  FUNCTION_NOT_FOUND = 13
};
enum { MAX_GPUS = 64, MAX_SLICES = 7, LINE = 1024 };

static int initialised;

static device handle_of(int gpu, int slice) {
  static struct { int gpu, slice; } devices[MAX_GPUS][MAX_SLICES + 1];
  devices[gpu][slice + 1].gpu = gpu;
  devices[gpu][slice + 1].slice = slice;
  return (device)&devices[gpu][slice + 1];
}

/* The values of the nth line with exactly this key (and device). */
static int find(const char *key, int nth, char *values) {
  const char *path = getenv("FAKE_NVML_STATE");
  FILE *file = path ? fopen(path, "r") : NULL;
  size_t length = strlen(key);
  char line[LINE];
  int found = 0;
  if (!file) return 0;
  while (!found && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, key, length) == 0 && line[length] == ' ' && nth-- == 0) {
      snprintf(values, LINE, "%s", line + length + 1);
      found = 1;
    }
  }
  fclose(file);
  return found;
}

static int find_of(device d, const char *key, int nth, char *values) {
  char full[LINE];
  if (d && d->slice >= 0) {
    snprintf(full, sizeof full, "%s@%d:%d", key, d->gpu, d->slice);
    return find(full, nth, values); /* a slice shares nothing with its GPU */
  }
  if (d) {
    snprintf(full, sizeof full, "%s@%d", key, d->gpu);
    if (find(full, nth, values)) return 1;
  }
  return find(key, nth, values);
}

/* What every call does first: it is noted, hangs and fails as told. */
static int begin(const char *function, device d, int needs_init) {
  char key[LINE], values[LINE];
  if (find("calls", 0, values)) {
    FILE *calls = fopen(values, "a");
    if (calls) {
      fprintf(calls, "%s\n", function);
      fclose(calls);
    }
  }
  snprintf(key, sizeof key, "hang %s", function);
  for (long waited = 0; find(key, 0, values) && waited < atol(values); waited += 10) usleep(10000);
  snprintf(key, sizeof key, "err %s", function);
  if (find_of(d, key, 0, values) && atoi(values)) return atoi(values);
  return needs_init && !initialised ? UNINITIALIZED : SUCCESS;
}
#define BEGIN(d) do { int code_ = begin(__func__, d, 1); if (code_) return code_; } while (0)

static int text(device d, const char *key, const char *otherwise, char *out, unsigned size) {
  char values[LINE];
  const char *found = find_of(d, key, 0, values) ? values : otherwise;
  if (strlen(found) + 1 > size) return INSUFFICIENT_SIZE;
  strcpy(out, found);
  return SUCCESS;
}

static int number(device d, const char *key, unsigned *out) {
  char values[LINE];
  if (!find_of(d, key, 0, values)) return NOT_SUPPORTED;
  *out = (unsigned)strtoul(values, NULL, 10);
  return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
  int code = begin(__func__, NULL, 0);
  (void)flags;
  if (!code) initialised++;
  return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { BEGIN(NULL); initialised--; return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "as the test says"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { BEGIN(NULL); return text(NULL, "driver", DRIVER_VERSION, out, size); }

static unsigned count(void) {
  unsigned n = 1;
  number(NULL, "count", &n);
  return n < MAX_GPUS ? n : MAX_GPUS;
}
int nvmlDeviceGetCount_v2(unsigned *n) { BEGIN(NULL); *n = count(); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *out) {
  if (index >= count()) return INVALID_ARGUMENT;
  BEGIN(handle_of((int)index, -1));
  *out = handle_of((int)index, -1);
  return SUCCESS;
}

int nvmlDeviceGetName(device d, char *out, unsigned size) { BEGIN(d); return text(d, "name", "NVIDIA Test", out, size); }

int nvmlDeviceGetUUID(device d, char *out, unsigned size) {
  char otherwise[64];
  BEGIN(d);
  if (d->slice < 0) snprintf(otherwise, sizeof otherwise, "GPU-%d", d->gpu);
  else snprintf(otherwise, sizeof otherwise, "MIG-%d-%d", d->gpu, d->slice);
  return text(d, "uuid", otherwise, out, size);
}

struct memory { bytes total, free, used; };
struct memory_v2 { unsigned version; bytes total, reserved, free, used; };

static int memory(device d, struct memory_v2 *m) {
  char values[LINE];
  if (!find_of(d, "mem", 0, values)) return NOT_SUPPORTED;
  m->total = m->free = m->used = m->reserved = 0;
  sscanf(values, "%llu %llu %llu %llu", &m->total, &m->free, &m->used, &m->reserved);
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device d, struct memory *out) {
  struct memory_v2 m;
  int code;
  BEGIN(d);
  if ((code = memory(d, &m))) return code;
  out->total = m.total;
  out->free = m.free;
  out->used = m.used + m.reserved; /* the first version does not tell them apart */
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(device d, struct memory_v2 *out) {
  BEGIN(d);
  if (out->version != (sizeof *out | 2u << 24)) return FUNCTION_NOT_FOUND;
  return memory(d, out);
}

struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(device d, struct utilization *out) {
  BEGIN(d);
  out->memory = 0;
  return number(d, "util", &out->gpu);
}
int nvmlDeviceGetTemperature(device d, int sensor, unsigned *out) { BEGIN(d); (void)sensor; return number(d, "temp", out); }
struct temperature { unsigned version; int sensor, value; };
int nvmlDeviceGetTemperatureV(device d, struct temperature *out) { BEGIN(d); return number(d, "temp", (unsigned *)&out->value); }
int nvmlDeviceGetPowerUsage(device d, unsigned *out) { BEGIN(d); return number(d, "power", out); }

struct process { unsigned pid; bytes used; unsigned gpu_instance, compute_instance; };
static int processes(device d, const char *key, unsigned *n, struct process *out) {
  char values[LINE], used[LINE];
  unsigned found = 0, room = *n;
  while (find_of(d, key, (int)found, values)) {
    if (out && found < room) {
      struct process *p = &out[found];
      sscanf(values, "%u %1000s", &p->pid, used);
      p->used = strcmp(used, "na") ? strtoull(used, NULL, 10) : ULLONG_MAX;
      p->gpu_instance = p->compute_instance = UINT_MAX;
    }
    found++;
  }
  *n = found;
  return found > room || (found && !out) ? INSUFFICIENT_SIZE : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *n, struct process *out) { BEGIN(d); return processes(d, "proc", n, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device d, unsigned *n, struct process *out) { BEGIN(d); return processes(d, "graphics", n, out); }

int nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *pending) {
  char values[LINE];
  BEGIN(d);
  *now = *pending = d->slice < 0 && find_of(d, "mig", 0, values);
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(device d, unsigned *n) { BEGIN(d); return number(d, "mig", n); }
int nvmlDeviceGetMigDeviceHandleByIndex(device d, unsigned index, device *out) {
  char values[LINE];
  BEGIN(d);
  if (index >= MAX_SLICES || !find_of(handle_of(d->gpu, (int)index), "slice", 0, values)) return NOT_FOUND;
  *out = handle_of(d->gpu, (int)index);
  return SUCCESS;
}
