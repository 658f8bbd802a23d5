// Asynchronous copies by the CUDA headers' own names.
#pragma once

inline void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes, size_t zero_filled = 0) {
  emulator::copy_async(shared, global, bytes, bytes - zero_filled);
}
inline void __pipeline_commit() { emulator::commit_copies(); }
inline void __pipeline_wait_prior(size_t groups) { emulator::wait_for_copies(static_cast<unsigned>(groups)); }
