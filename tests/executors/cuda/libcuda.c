/* A library with the functions of NVIDIA's driver that cvm calls, so that the package cuda-bindings can be tested
 * without a GPU: it converts arguments between Python and C, which no driver written in Python sees.
 *
 * There is one GPU. Its memory is memory of this process. Copies are made at once, also while a stream is captured;
 * launches are not run. Every launch is a line on the standard output with its numbers and its parameters, of which
 * there are as many as the PTX says. Code without ".entry" is refused with a line in the log of the caller.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result;
typedef uint64_t address;
enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_PTX = 218, NOT_FOUND = 500 };
enum { LOG = 5, LOG_SIZE = 6 };

struct module { char *text; };
struct function { struct module *module; char name[64]; };

result cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
result cuDriverGetVersion(int *version) { *version = 12020; return SUCCESS; }
result cuGetErrorName(result error, const char **name) {
    *name = error == INVALID_PTX ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}
result cuGetErrorString(result error, const char **words) { *words = "words"; return error < 0; }
result cuDeviceGetCount(int *count) { *count = 1; return SUCCESS; }
result cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal != 0; }
result cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, length, "GPU of C");
    return device != 0;
}
result cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)1 << 36; return device != 0; }
result cuDeviceGetAttribute(int *value, int kind, int device) {
    *value = kind == 75 ? 9 : 0;
    return device != 0;
}
result cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)0x77; return device != 0; }
result cuDevicePrimaryCtxRelease_v2(int device) { printf("released\n"); fflush(stdout); return device != 0; }
result cuCtxPushCurrent_v2(void *context) { return context == (void *)0x77 ? SUCCESS : INVALID_VALUE; }
result cuCtxPopCurrent_v2(void **context) { *context = (void *)0x77; return SUCCESS; }

result cuMemGetInfo_v2(size_t *free_, size_t *total) { *total = (size_t)1 << 36; *free_ = *total / 2; return SUCCESS; }
result cuMemAlloc_v2(address *made, size_t size) {
    *made = (address)aligned_alloc(256, (size + 255) / 256 * 256);
    return SUCCESS;
}
result cuMemFree_v2(address at) { free((void *)at); return SUCCESS; }
result cuMemHostAlloc(void **made, size_t size, unsigned flags) { *made = malloc(size); return flags; }
result cuMemFreeHost(void *at) { free(at); return SUCCESS; }
result cuMemcpyHtoDAsync_v2(address to, const void *from, size_t size, void *stream) {
    memcpy((void *)to, from, size);
    return stream ? SUCCESS : INVALID_VALUE;
}
result cuMemcpyDtoHAsync_v2(void *to, address from, size_t size, void *stream) {
    memcpy(to, (void *)from, size);
    return stream ? SUCCESS : INVALID_VALUE;
}

result cuStreamCreate(void **stream, unsigned flags) { *stream = malloc(8); return flags != 1; }
result cuStreamDestroy_v2(void *stream) { free(stream); return SUCCESS; }
result cuStreamSynchronize(void *stream) { return stream ? SUCCESS : INVALID_VALUE; }
result cuStreamBeginCapture_v2(void *stream, int mode) { return !stream || mode != 2; }
result cuStreamEndCapture(void *stream, void **graph) { *graph = malloc(8); return stream ? SUCCESS : INVALID_VALUE; }
result cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
    *made = malloc(8);
    return !graph || flags;
}
result cuGraphDestroy(void *graph) { free(graph); return SUCCESS; }
result cuGraphExecDestroy(void *graph) { free(graph); return SUCCESS; }
result cuGraphLaunch(void *graph, void *stream) { return !graph || !stream; }
result cuEventCreate(void **event, unsigned flags) { *event = malloc(8); return flags; }
result cuEventRecord(void *event, void *stream) { return !event || !stream; }
result cuEventElapsedTime(float *milliseconds, void *from, void *to) { *milliseconds = 0.25f; return !from || !to; }
result cuEventElapsedTime_v2(float *milliseconds, void *from, void *to) {
    return cuEventElapsedTime(milliseconds, from, to);
}
result cuEventDestroy_v2(void *event) { free(event); return SUCCESS; }

static void say(unsigned count, const int *options, void **values) {
    char *log = NULL;
    size_t room = 0;
    for (unsigned k = 0; k < count; k++) {
        if (options[k] == LOG) log = values[k];
        if (options[k] == LOG_SIZE) room = (size_t)values[k];
    }
    if (log) snprintf(log, room, "no entry in %zu bytes of log", room);
}
result cuModuleLoadDataEx(void **made, const void *image, unsigned count, int *options, void **values) {
    if (!strstr(image, ".entry")) {
        say(count, options, values);
        return INVALID_PTX;
    }
    struct module *module = malloc(sizeof *module);
    module->text = strdup(image);
    *made = module;
    return SUCCESS;
}
result cuModuleUnload(void *module) { free(((struct module *)module)->text); free(module); return SUCCESS; }
result cuModuleGetFunction(void **made, void *module, const char *name) {
    struct function *function = malloc(sizeof *function);
    function->module = module;
    snprintf(function->name, sizeof function->name, "%s", name);
    *made = function;
    return strstr(function->module->text, name) ? SUCCESS : NOT_FOUND;
}
result cuFuncSetAttribute(void *function, int kind, int value) {
    printf("%s may have %d bytes\n", ((struct function *)function)->name, value);
    fflush(stdout);
    return kind != 8;
}
result cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned i, unsigned j, unsigned k,
                      unsigned shared, void *stream, void **parameters, void **extra) {
    struct function *one = function;
    char header[128];
    snprintf(header, sizeof header, ".entry %s(", one->name);
    const char *at = strstr(one->module->text, header);
    if (!stream || extra || !at) return INVALID_VALUE;
    const char *end = strchr(at + strlen(header), ')');
    printf("%s %u %u %u, %u %u %u, %u:", one->name, x, y, z, i, j, k, shared);
    for (; (at = strstr(at, ".param")) && at < end; at++, parameters++)
        printf(" %llx", (unsigned long long)*(uint64_t *)*parameters);
    printf("\n");
    fflush(stdout);
    return SUCCESS;
}

/* The package asks for functions by the names of their first versions. */
result cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    static const char *const newer[] = {"_v2", "", "WithFlags"};
    char full[96];
    (void)version, (void)flags;
    *found = NULL;
    if (!strcmp(name, "cuGetProcAddress")) *found = cuGetProcAddress_v2;
    if (!strcmp(name, "cuGraphInstantiate")) *found = cuGraphInstantiateWithFlags;
    for (int k = 0; k < 3 && !*found; k++) {
        snprintf(full, sizeof full, "%s%s", name, newer[k]);
        *found = dlsym(RTLD_DEFAULT, full);
    }
    if (status) *status = *found ? 0 : 1;
    return *found ? SUCCESS : NOT_FOUND;
}
result cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, found, version, flags, NULL);
}
