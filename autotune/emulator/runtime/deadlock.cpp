// How a deadlock is told.
#include <stdio.h>

#include "hooks.hpp"
#include "proxy.hpp"
#include "worker.hpp"

namespace emulator {

namespace {

const char* format_thread(char (&text)[48], const Thread& thread) {
  snprintf(text, sizeof text, "(%u,%u,%u)", thread.index.x, thread.index.y, thread.index.z);
  return text;
}

void describe(char* text, size_t size, const Thread& thread) {
  char name[48];
  int length = snprintf(text, size, "thread %s waits in %s at %s:%d", format_thread(name, thread), thread.waits_in,
                        thread.place.file, thread.place.line);
  if (thread.state == State::at_warp_operation && length > 0 && static_cast<size_t>(length) < size)
    snprintf(text + length, size - length, " (mask 0x%08x)", thread.waits_mask);
  if ((thread.state == State::at_mbarrier || thread.state == State::at_wgmma) && length > 0 && static_cast<size_t>(length) < size)
    describe_wait(text + length, size - length, thread);
}

bool waits_elsewhere(const Thread& a, const Thread& b) {
  return a.state != b.state || a.waits_mask != b.waits_mask || a.place.line != b.place.line;
}

}  // namespace

// Every thread waits and none can go on: names one of them and one that waits for something else.
void deadlock(Block& block) {
  const Thread* one = nullptr;
  const Thread* other = nullptr;
  unsigned waiting = 0;
  for (unsigned i = 0; i < block.threads_total; ++i) {
    const Thread& thread = block.threads[i];
    if (thread.state == State::done) continue;
    ++waiting;
    if (!one) one = &thread;
    if (!other && waits_elsewhere(*one, thread)) other = &thread;
  }
  char first[480], second[480] = "";
  describe(first, sizeof first, *one);
  if (other) describe(second, sizeof second, *other);
  current = const_cast<Thread*>(one);
  EMULATOR_TRACED(trace::report_deadlock(block, *one, other);)
  fail("deadlock: %s%s%s, and %u of %u threads have exited", first, other ? ", " : "", second,
       block.threads_total - waiting, block.threads_total);
}

}  // namespace emulator
