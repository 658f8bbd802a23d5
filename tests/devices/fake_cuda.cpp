// A CUDA driver that notes what it is asked, with the prototypes of the real one: arguments of other types would show.
#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <string>

static std::string notes;
static int next_status = 0;

template <class... T>
static CUresult note(const char* format, T... values)
{
    char line[512];
    std::snprintf(line, sizeof line, format, values...);
    notes += line;
    notes += '\n';
    const int status = next_status;
    next_status = 0;
    return static_cast<CUresult>(status);
}

template <class T>
static T handle(unsigned long long number)
{
    return reinterpret_cast<T>(number);
}

template <class T>
static unsigned long long number(T pointer)
{
    return reinterpret_cast<unsigned long long>(pointer);
}

extern "C" {

const char* fake_notes() { return notes.c_str(); }
void fake_clear() { notes.clear(); }
void fake_fail(int status) { next_status = status; }

CUresult cuInit(unsigned flags) { return note("init %u", flags); }
CUresult cuGetErrorString(CUresult status, const char** text)
{
    *text = "it went wrong";
    return status == 999 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int index) { return *device = 10 + index, note("device %d", index); }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device)
{
    return *context = handle<CUcontext>(0x7f0000000000ull + device), note("retain %d", device);
}
CUresult cuCtxPushCurrent(CUcontext context) { return note("push %llx", number(context)); }
CUresult cuCtxPopCurrent(CUcontext* context) { return *context = nullptr, note("pop"); }
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode)
{
    const int asked = *mode;
    *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return note("mode %d", asked);
}
CUresult cuModuleLoadData(CUmodule* module, const void* image)
{
    return *module = handle<CUmodule>(0x7f1000000000ull), note("load %.5s", static_cast<const char*>(image) + 1);
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name)
{
    return *function = handle<CUfunction>(0x7f2000000000ull), note("function %llx %s", number(module), name);
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function)
{
    return *value = 100 + attribute, note("get %d of %llx", attribute, number(function));
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    return note("set %d of %llx to %d", attribute, number(function), value);
}
CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes)
{
    return *address = 0x7f3000000000ull, note("allocate %zu", bytes);
}
CUresult cuMemFree(CUdeviceptr address) { return note("free %llx", address); }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes)
{
    return note("in %llx %.5s %zu", to, static_cast<const char*>(from), bytes);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes)
{
    return std::memset(to, 'x', bytes), note("out %llx %zu", from, bytes);
}
CUresult cuEventCreate(CUevent* event, unsigned flags)
{
    return *event = handle<CUevent>(0x7f4000000000ull), note("event %u", flags);
}
CUresult cuEventRecord(CUevent event, CUstream stream) { return note("record %llx %llx", number(event), number(stream)); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    return note("wait %llx %llx %u", number(stream), number(event), flags);
}
CUresult cuEventDestroy(CUevent event) { return note("destroy %llx", number(event)); }
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char byte, size_t bytes, CUstream stream)
{
    return note("memset %llx %d %zu %llx", address, byte, bytes, number(stream));
}

// One kernel, of a pointer, a 64-bit stride, a float and an int.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra)
{
    struct Parameters {
        unsigned long long data;
        long long stride;
        float scale;
        int length;
    } given;
    bool whole = !parameters && (config->numAttrs == 0) == !config->attrs;
    for (unsigned i = 0; whole && i < config->numAttrs; ++i) {
        const CUlaunchAttribute& attribute = config->attrs[i];
        const auto& size = attribute.value.clusterDim;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            note("cluster %u %u %u", size.x, size.y, size.z);
        else if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            note("overlaps %d", attribute.value.programmaticStreamSerializationAllowed);
        else
            whole = false;
    }
    whole = whole && extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER && extra[2] == CU_LAUNCH_PARAM_BUFFER_SIZE &&
            extra[4] == CU_LAUNCH_PARAM_END && *static_cast<size_t*>(extra[3]) == sizeof given;
    if (!whole) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(&given, extra[1], sizeof given);
    return note("launch %llx grid %u %u %u block %u %u %u smem %u stream %llx: %llx %lld %g %d", number(function),
                config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                config->blockDimZ, config->sharedMemBytes, number(config->hStream), given.data, given.stride,
                static_cast<double>(given.scale), given.length);
}
}
