// What overlapping kernels say of themselves.
#include "emulator/overlap.hpp"

#include "hooks.hpp"
#include "worker.hpp"

namespace emulator {

void wait_for_previous_kernel() { EMULATOR_TRACED(worker->tracer->waited_for_previous();) }

void let_next_kernel_begin() { EMULATOR_TRACED(worker->tracer->let_next_begin();) }

}  // namespace emulator
