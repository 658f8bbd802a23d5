// The functions that instrumented code calls. The compiler writes the calls (-fsanitize=thread and others); no sanitizer
// runtime is linked.
#include <stdlib.h>
#include <string.h>

#include "tracer.hpp"

using emulator::trace::Access;
using emulator::trace::here;
using emulator::trace::Tracer;

namespace {

inline __attribute__((always_inline)) void touch(const void* address, uint32_t bytes, Access access, const void* pc) {
  if (Tracer* tracer = here()) tracer->touch(reinterpret_cast<uintptr_t>(address), bytes, access, pc);
}

// A copy of a type with a small alignment: the GPU moves it in pieces of that alignment, of which four bytes are taken.
void touch_range(const char* address, size_t bytes, Access access, const void* pc) {
  uint32_t piece = (reinterpret_cast<uintptr_t>(address) | bytes) % 4 ? 1 : 4;
  for (size_t at = 0; at < bytes; at += piece) touch(address + at, piece, access, pc);
}

// Sixteen bytes that are aligned to eight only are two accesses.
void touch_16(const char* address, Access access, const void* pc) {
  if (reinterpret_cast<uintptr_t>(address) % 16 == 0) return touch(address, 16, access, pc);
  touch(address, 8, access, pc);
  touch(address + 8, 8, access, pc);
}

struct Location {
  const char* file;
  uint32_t line, column;
};
struct TypeDescriptor {
  uint16_t kind, info;
  char name[1];
};
struct TypeMismatch {
  Location location;
  const TypeDescriptor* type;
  uint8_t log_alignment, check;
};
struct OutOfBounds {
  Location location;
  const TypeDescriptor *array, *index;
};

}  // namespace

#define PC __builtin_return_address(0)
#define SIZED(bytes)                                                                                      \
  void __tsan_read##bytes(void* address) { touch(address, bytes, Access::read, PC); }                     \
  void __tsan_write##bytes(void* address) { touch(address, bytes, Access::write, PC); }                   \
  void __tsan_unaligned_read##bytes(void* address) { touch(address, bytes, Access::read, PC); }           \
  void __tsan_unaligned_write##bytes(void* address) { touch(address, bytes, Access::write, PC); }

#define ATOMIC_FETCH(bits, T, name, builtin)                                                              \
  T __tsan_atomic##bits##_##name(volatile T* address, T value, int) {                                     \
    touch(const_cast<T*>(address), bits / 8, Access::atomic, PC);                                         \
    return builtin(address, value, __ATOMIC_SEQ_CST);                                                     \
  }
#define ATOMIC(bits, T)                                                                                   \
  T __tsan_atomic##bits##_load(const volatile T* address, int) { return __atomic_load_n(address, __ATOMIC_SEQ_CST); } \
  void __tsan_atomic##bits##_store(volatile T* address, T value, int) {                                   \
    touch(const_cast<T*>(address), bits / 8, Access::exchange, PC);                                       \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                       \
  T __tsan_atomic##bits##_exchange(volatile T* address, T value, int) {                                   \
    touch(const_cast<T*>(address), bits / 8, Access::exchange, PC);                                       \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                         \
  }                                                                                                       \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* address, T* expected, T value, int, int) { \
    touch(const_cast<T*>(address), bits / 8, Access::atomic, PC);                                         \
    return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                       \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* address, T expected, T value, int, int) {      \
    touch(const_cast<T*>(address), bits / 8, Access::atomic, PC);                                         \
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    return expected;                                                                                      \
  }                                                                                                       \
  ATOMIC_FETCH(bits, T, fetch_add, __atomic_fetch_add)                                                    \
  ATOMIC_FETCH(bits, T, fetch_sub, __atomic_fetch_sub)                                                    \
  ATOMIC_FETCH(bits, T, fetch_and, __atomic_fetch_and)                                                    \
  ATOMIC_FETCH(bits, T, fetch_or, __atomic_fetch_or)                                                      \
  ATOMIC_FETCH(bits, T, fetch_xor, __atomic_fetch_xor)                                                    \
  ATOMIC_FETCH(bits, T, fetch_nand, __atomic_fetch_nand)

extern "C" {

SIZED(1)
SIZED(2)
SIZED(4)
SIZED(8)
void __tsan_read16(void* address) { touch_16(static_cast<char*>(address), Access::read, PC); }
void __tsan_write16(void* address) { touch_16(static_cast<char*>(address), Access::write, PC); }
void __tsan_unaligned_read16(void* address) { touch_16(static_cast<char*>(address), Access::read, PC); }
void __tsan_unaligned_write16(void* address) { touch_16(static_cast<char*>(address), Access::write, PC); }
void __tsan_read_range(void* address, size_t bytes) { touch_range(static_cast<char*>(address), bytes, Access::read, PC); }
void __tsan_write_range(void* address, size_t bytes) { touch_range(static_cast<char*>(address), bytes, Access::write, PC); }
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (Tracer* tracer = here()) tracer->fence();
}
void __tsan_atomic_signal_fence(int) {}

// A basic block begins.
void __sanitizer_cov_trace_pc() {
  if (Tracer* tracer = here()) tracer->enter(PC);
}

void __ubsan_handle_type_mismatch_v1(TypeMismatch* what, void* address) {
  Tracer* tracer = here();
  if (!tracer) return;
  tracer->misaligned_access(reinterpret_cast<uintptr_t>(address), 1u << what->log_alignment, what->check == 1, PC);
  emulator::fail("misaligned address");
}

void __ubsan_handle_out_of_bounds(OutOfBounds* what, void* index) {
  const char* bracket = strchr(what->array->name, '[');
  Tracer* tracer = here();
  if (tracer) tracer->bad_index(reinterpret_cast<intptr_t>(index), bracket ? static_cast<uint32_t>(atoi(bracket + 1)) : 0, PC);
}

}
