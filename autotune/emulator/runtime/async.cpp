// Asynchronous copies, thread by thread.
#include "emulator/async.hpp"

#include <string.h>

#include "hooks.hpp"
#include "worker.hpp"

namespace emulator {

namespace {

std::vector<PendingCopy>& pending_copies() {
  const Block& block = *self().block;
  std::vector<std::vector<PendingCopy>>& copies = block.worker->copies;
  if (copies.size() < block.threads_total) copies.resize(block.threads_total);
  return copies[&self() - block.threads];
}

void make(const PendingCopy& copy) {
  memcpy(copy.to, copy.from, copy.valid);
  memset(static_cast<char*>(copy.to) + copy.valid, 0, copy.bytes - copy.valid);
  EMULATOR_TRACED(worker->tracer->copied(copy.to, copy.bytes);)
}

}  // namespace

void copy_async(void* to, const void* from, size_t bytes, size_t valid) {
  if (reinterpret_cast<size_t>(to) % bytes || (valid && reinterpret_cast<size_t>(from) % bytes)) {
    EMULATOR_TRACED(worker->tracer->misaligned_copy(to, from, bytes, __builtin_return_address(0));)
    fail("misaligned address of an asynchronous copy");
  }
  EMULATOR_TRACED(worker->tracer->copy(to, from, bytes, valid, __builtin_return_address(0));)
  memset(to, self().block->garbage, bytes);
  pending_copies().push_back({to, from, bytes, valid});
}

void commit_copies() { pending_copies().push_back({nullptr, nullptr, 0, 0}); }

void wait_for_copies(unsigned groups) {
  std::vector<PendingCopy>& pending = pending_copies();
  size_t ended = 0, made = 0;
  for (const PendingCopy& copy : pending) ended += !copy.to;
  for (; ended > groups; ++made) {
    if (pending[made].to)
      make(pending[made]);
    else
      --ended;
  }
  pending.erase(pending.begin(), pending.begin() + made);
}

}  // namespace emulator
