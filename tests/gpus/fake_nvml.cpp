// NVIDIA's management library over a GPU that is a file: what one process sets another one sees, and so does a test.
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct State
{
    unsigned clock, limit, permitted, mig, power;  // MHz (0: not locked), mW, bool, bool, mW
    unsigned counter, sets, reserved;              // bool: it has one; how often something was set
    unsigned long long energy;                     // mJ
};

static State* state;
static char gpu;

extern "C" {

int nvmlInit_v2()
{
    const char* path = std::getenv("FAKE_NVML");
    const int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return 9;
    state = static_cast<State*>(mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
    return 0;
}
const char* nvmlErrorString(int status) { return status == 4 ? "Insufficient Permissions" : "Not Supported"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle)
{
    return *handle = &gpu, std::strcmp(id, "0000:3B:00.0") ? 6 : 0;
}
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz)
{
    return *mhz = state->clock ? state->clock : 1980, kind == 1 ? 0 : 2;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* mw) { return *mw = state->power, state->power ? 0 : 3; }
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { return *celsius = 41, 0; }
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* mj)
{
    return *mj = state->energy += 500, state->counter ? 0 : 3;
}
int nvmlDeviceGetMigMode(void*, unsigned* now, unsigned* next) { return *now = *next = state->mig, 0; }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* mw) { return *mw = state->limit, 0; }
int nvmlDeviceGetPowerManagementLimit(void*, unsigned* mw) { return *mw = state->limit, 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(void*, unsigned* mw) { return *mw = 700000, 0; }
int nvmlDeviceGetPowerManagementLimitConstraints(void*, unsigned* least, unsigned* most)
{
    return *least = 200000, *most = 700000, 0;
}
int nvmlDeviceSetPowerManagementLimit(void*, unsigned mw)
{
    if (!state->permitted) return 4;
    if (state->permitted == 2) return 0;  // as a virtual machine's: taken, and nothing follows
    return state->limit = mw, ++state->sets, 0;
}
int nvmlDeviceGetSupportedMemoryClocks(void*, unsigned* count, unsigned* mhz)
{
    const unsigned room = *count;
    *count = 1;
    if (room < 1) return 7;
    return mhz[0] = 3201, 0;
}
int nvmlDeviceGetSupportedGraphicsClocks(void*, unsigned memory, unsigned* count, unsigned* mhz)
{
    const unsigned room = *count;
    *count = 5;
    if (memory != 3201 || room < 5) return memory == 3201 ? 7 : 2;
    for (unsigned i = 0; i < 5; ++i) mhz[i] = 1980 - 195 * i;  // 1980 1785 1590 1395 1200
    return 0;
}
int nvmlDeviceSetGpuLockedClocks(void*, unsigned least, unsigned most)
{
    if (!state->permitted) return 4;
    return state->clock = least == most ? least : 1, ++state->sets, 0;
}
int nvmlDeviceResetGpuLockedClocks(void*) { return state->clock = 0, ++state->sets, 0; }

}
