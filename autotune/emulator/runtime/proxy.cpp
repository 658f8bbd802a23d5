// What asynchronous instructions share: the block's state of them, addresses, and what must not be left under way.
#include "proxy.hpp"

#include <stdarg.h>
#include <stdio.h>

#include "hooks.hpp"
#include "worker.hpp"

namespace emulator {

namespace {

// Shared memory that contains these bytes: where it starts, or null.
const unsigned char* shared_start(const Worker& here, uintptr_t address, size_t bytes) {
  const unsigned char* dynamic = here.block.shared;
  if (address - reinterpret_cast<uintptr_t>(dynamic) + bytes <= here.block.shared_bytes &&
      address >= reinterpret_cast<uintptr_t>(dynamic))
    return dynamic;
  const unsigned char* fixed = reinterpret_cast<const unsigned char*>(here.static_shared);
  if (fixed && address - reinterpret_cast<uintptr_t>(fixed) < here.static_shared_bytes) return fixed;
  return nullptr;
}

}  // namespace

#ifdef EMULATOR_TRACE
void fail_here(const char* format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  worker->tracer->crash(static_cast<const char*>(self().pc) - 1);
  fail("%s", message);
}
#endif

void AsynchronousEnd::operator()(Asynchronous* state) const { delete state; }

Asynchronous& asynchronous(Block& block) {
  auto& held = block.worker->asynchronous;
  if (!held) {
    held.reset(new Asynchronous);
    held->stores.resize(block.threads_total);
    held->wgmma.resize(block.threads_total);
    held->groups.resize((block.warps_total + 3) / 4);
    held->registers.assign(block.warps_total, 0);
  }
  return *held;
}

void check_shared(uintptr_t address, size_t bytes, unsigned alignment, const char* what) {
  const Worker& here = *self().block->worker;
  const unsigned char* start = shared_start(here, address, bytes);
  long long offset = static_cast<long long>(address - reinterpret_cast<uintptr_t>(here.block.shared));
  if (!start)
    fail_here("%s: %zu bytes at byte %lld of dynamic shared memory, which has %zu bytes", what, bytes, offset,
         here.block.shared_bytes);
  if (address % alignment)
    fail_here("%s: byte %lld of shared memory is not aligned to %u bytes", what, offset, alignment);
}

void describe_wait(char* text, size_t size, const Thread& thread) {
  const Asynchronous& state = asynchronous(*thread.block);
  if (thread.state == State::at_wgmma) {
    snprintf(text, size, " (for a product that some of its warp group's 128 threads have not issued)");
    return;
  }
  const Mbarrier& barrier = state.barriers[thread.waits_mask >> 1];
  long long offset = static_cast<long long>(barrier.address - reinterpret_cast<uintptr_t>(thread.block->shared));
  snprintf(text, size,
           " (for parity %u of the mbarrier at byte %lld of shared memory: phase %llu lacks %u of %u arrivals and %lld bytes)",
           thread.waits_mask & 1, offset, static_cast<unsigned long long>(barrier.phase), barrier.missing,
           barrier.arrivals, static_cast<long long>(barrier.bytes));
}

void check_nothing_under_way(Block& block) {
  const Asynchronous& state = *block.worker->asynchronous;
  if (!state.loads.empty())
    fail("the block ended while %zu asynchronous loads were under way: nobody waited for them", state.loads.size());
  for (const WgmmaThread& thread : state.wgmma)
    if (!thread.under_way.empty()) fail("the block ended while wgmma was under way: wgmma_wait<0> is missing");
  for (size_t warp = 0; warp + 3 < state.registers.size(); warp += 4)
    for (size_t other = warp + 1; other < warp + 4; ++other)
      if (state.registers[other] != state.registers[warp])
        fail("setmaxnreg was not executed alike by the four warps from warp %zu", warp);
}

}  // namespace emulator
