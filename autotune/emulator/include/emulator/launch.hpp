// Calling a kernel by name with a packed argument buffer.
#pragma once

#include <stddef.h>
#include <string.h>
#include <type_traits>
#include <utility>

#include "thread.hpp"

namespace emulator {

// One kernel of a translation unit.
struct Entry {
  const char* name;
  Kernel call;
  size_t argument_bytes;
};

// Where each parameter lies: CUDA's parameter layout, every one at its natural alignment.
template <class... P>
struct Layout {
  size_t offset[sizeof...(P) + 1] = {};
  size_t bytes = 0;

  constexpr Layout() {
    constexpr size_t size[] = {sizeof(P)..., 0};
    constexpr size_t alignment[] = {alignof(P)..., 1};
    for (size_t i = 0; i < sizeof...(P); ++i) {
      offset[i] = (bytes + alignment[i] - 1) / alignment[i] * alignment[i];
      bytes = offset[i] + size[i];
    }
  }
};

template <class P>
inline P read_argument(const char* address) {
  static_assert(std::is_trivially_copyable<P>::value, "kernel parameters are passed by value, byte for byte");
  alignas(P) char bytes[sizeof(P)];
  memcpy(bytes, address, sizeof(P));
  return *reinterpret_cast<P*>(bytes);
}

template <class... P, size_t... I>
inline void call_kernel(void (*kernel)(P...), const char* arguments, std::index_sequence<I...>) {
  constexpr Layout<P...> layout;
  kernel(read_argument<P>(arguments + layout.offset[I])...);
}

template <class... P>
inline void call_kernel(void (*kernel)(P...), const void* arguments) {
  call_kernel(kernel, static_cast<const char*>(arguments), std::index_sequence_for<P...>{});
}

template <class... P>
constexpr size_t bytes_of_arguments(void (*)(P...)) {
  return Layout<P...>{}.bytes;
}

template <auto kernel>
void call(const void* arguments) {
  call_kernel(kernel, arguments);
}

template <auto kernel>
constexpr Entry entry(const char* name) {
  return Entry{name, call<kernel>, bytes_of_arguments(kernel)};
}

// What a launch left: `kind` 0 is success. Read by Python, so plain C.
enum Kind : int { ok = 0, failed = 1, illegal_access = 2 };

struct Result {
  int kind;
  int is_write;  // of an illegal access: 1 a write, 0 a read, -1 unknown
  uint64_t address;
  int in_kernel;  // whether `block` and `thread` say where
  unsigned block[3];
  unsigned thread[3];
  char message[1024];
};

}  // namespace emulator

extern "C" {
// Ends with an entry whose name is null; made by the translation unit.
extern const emulator::Entry emulator_entries[] __attribute__((visibility("hidden")));
// Of dynamic shared memory: the largest that a kernel declares, at least 16.
extern const size_t emulator_shared_alignment __attribute__((visibility("hidden")));

__attribute__((visibility("default"))) int emulator_launch(
    const char* kernel, const unsigned grid[3], const unsigned block[3], size_t shared_bytes, const void* arguments,
    size_t argument_bytes, unsigned os_threads, emulator::Result* result);

// How many blocks a cluster of later launches has; the default is one.
__attribute__((visibility("default"))) void emulator_cluster(const unsigned cluster[3]);

// Whether later launches may begin before the one before them has ended; the default is that they may not.
__attribute__((visibility("default"))) void emulator_overlaps(int overlaps);

// In which order later launches run blocks, and start the warps of a block and the lanes of a warp: 0, the default, by
// number, any other seed another permutation.
__attribute__((visibility("default"))) void emulator_order(uint64_t seed);
}
