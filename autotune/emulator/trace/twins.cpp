// What emulated twins of instructions call (emulator/trace.hpp).
#include "emulator/trace.hpp"

#include "tracer.hpp"

namespace emulator {

void traced_matrix_row(const void* row) {
  if (trace::Tracer* tracer = trace::here())
    tracer->touch(reinterpret_cast<uintptr_t>(row), 16, trace::Access::matrix_read, __builtin_return_address(0));
}

void traced_atomic(const void* address, size_t bytes) {
  if (trace::Tracer* tracer = trace::here())
    tracer->touch(reinterpret_cast<uintptr_t>(address), static_cast<uint32_t>(bytes), trace::Access::atomic,
                  __builtin_return_address(0));
}

Untraced::Untraced() {
  if (trace::Tracer* tracer = trace::here()) tracer->mute();
}
Untraced::~Untraced() {
  if (trace::Tracer* tracer = trace::here()) tracer->unmute();
}

}  // namespace emulator
