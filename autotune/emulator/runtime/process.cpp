// The kernels' assert() and abort(): hidden, so that they replace the C library's for this library alone. No header of the
// C library is included: it would declare them visible.
#include "emulator/thread.hpp"

extern "C" {

[[noreturn]] __attribute__((visibility("hidden"))) void __assert_fail(
    const char* expression, const char* file, unsigned line, const char*) {
  emulator::fail("assertion failed at %s:%u: %s", file, line, expression);
}

[[noreturn]] __attribute__((visibility("hidden"))) void abort() { emulator::fail("abort() was called"); }

}
