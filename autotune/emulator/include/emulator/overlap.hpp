// Kernels that may begin before the one before them has ended. They are executed one after the other, so that neither does
// anything in an ordinary build; a traced one notes them, and finds what a kernel touches too early.
#pragma once

namespace emulator {

void wait_for_previous_kernel();
void let_next_kernel_begin();

}  // namespace emulator
