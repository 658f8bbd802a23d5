// What emulated instructions tell the tracer of a traced build; nothing at all in an ordinary build.
#pragma once

#include <stddef.h>

namespace emulator {

#ifdef EMULATOR_TRACE

// One access by the calling thread, as if the line that calls had made it.
__attribute__((noinline)) void traced_access(const void* address, size_t bytes, bool is_write);

// While it lives, accesses are not the running lane's own: it computes for the others.
class Untraced {
 public:
  Untraced();
  ~Untraced();
};

#else

inline void traced_access(const void*, size_t, bool) {}
struct Untraced {
  Untraced() {}  // not trivial, so that an unused one is no warning
};

#endif

}  // namespace emulator
