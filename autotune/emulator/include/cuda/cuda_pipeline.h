// Asynchronous copies: made at once, which is one of the moments at which the hardware may make them.
#pragma once

#include <string.h>

inline void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes, size_t zero_filled = 0) {
  memcpy(shared, global, bytes - zero_filled);
  memset(static_cast<char*>(shared) + bytes - zero_filled, 0, zero_filled);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(size_t) {}
