// What emulated instructions tell the tracer of a traced build; nothing at all in an ordinary build.
#pragma once

#include <stddef.h>

namespace emulator {

#ifdef EMULATOR_TRACE

// A function that makes no calls to the tracer.
#define EMULATOR_UNTRACED __attribute__((no_sanitize("thread"), no_sanitize("undefined"), no_sanitize_coverage))

// The calling thread's part of an ldmatrix: 16 bytes of shared memory.
__attribute__((noinline)) void traced_matrix_row(const void* row);

// One atomic operation on several elements by the calling thread.
__attribute__((noinline)) void traced_atomic(const void* address, size_t bytes);

// While it lives, accesses are not the running lane's own: it computes for the others.
class Untraced {
 public:
  Untraced();
  ~Untraced();
};

#else

inline void traced_matrix_row(const void*) {}
inline void traced_atomic(const void*, size_t) {}
struct Untraced {
  Untraced() {}  // not trivial, so that an unused one is no warning
};

#endif

}  // namespace emulator
