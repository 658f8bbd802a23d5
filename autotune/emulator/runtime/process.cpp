// The kernels' assert() and abort(). exports.map keeps them inside the library, so that they replace the C library's for the
// kernels alone.
#include <stdio.h>

#include "emulator/thread.hpp"

extern "C" {

[[noreturn]] void __assert_fail(const char* expression, const char* file, unsigned line, const char*) {
  if (emulator::current) emulator::fail("assertion failed at %s:%u: %s", file, line, expression);
  fprintf(stderr, "%s:%u: assertion failed: %s\n", file, line, expression);
  __builtin_trap();
}

[[noreturn]] void abort() {
  if (emulator::current) emulator::fail("abort() was called");
  __builtin_trap();
}

}
