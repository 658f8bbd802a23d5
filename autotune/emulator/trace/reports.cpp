// From a fault to the record of it.
#include "access.hpp"
#include "session.hpp"
#include "tracer.hpp"

namespace emulator::trace {

Finding Tracer::finding(Kind kind, uint32_t pc, uint32_t thread) const {
  Finding found{};
  found.kind = kind;
  found.launch = launch_;
  found.pc = pc;
  found.block = found.other_block = number_;
  found.thread = thread;
  found.space = no_space;
  found.count = 1;
  return found;
}

// The thread that had something done asynchronously, or the one that it is.
uint32_t Tracer::thread_behind(uint32_t thread) const {
  uint32_t threads = worker_.block.threads_total;
  if (thread < threads || thread == nobody) return thread;
  for (unsigned i = 0; i < copier_.size(); ++i)
    if (order_.copies_of(i) == thread) return copier_[i];
  for (unsigned group = 0; 128 * group < threads; ++group)
    if (order_.products_of(group) == thread) return 128 * group;
  return 0;
}

void Tracer::report(Kind kind, const Thread& thread, const Thread* other, uint32_t mask) {
  Finding found = finding(kind, place(thread.pc), index_of(thread));
  if (other) found.other_pc = place(other->pc), found.other_thread = index_of(*other);
  found.mask = mask;
  session.add(found);
}

// A thread waits for ever at an mbarrier.
void Tracer::report_lacking(const Thread& thread, const Thread* other, uintptr_t mbarrier, uint32_t arrivals, uint32_t bytes) {
  Finding found = finding(deadlocked, place(thread.pc), index_of(thread));
  if (other) found.other_pc = place(other->pc), found.other_thread = index_of(*other);
  bool is_static = mbarrier - static_ < static_bytes_;
  found.space = is_static ? static_shared : dynamic_shared;
  found.offset = static_cast<int64_t>(mbarrier - (is_static ? static_ : shared_));
  found.mask = arrivals;
  found.bytes = bytes;
  session.add(found);
}

void Tracer::report(Kind kind, const Touch& touch, uint32_t space, int64_t offset) {
  report(kind, touch, space, offset, {number_, 0, 0, false});
}

void Tracer::report(Kind kind, const Touch& touch, uint32_t space, int64_t offset, const Earlier& earlier) {
  Finding found = finding(kind, touch.pc, touch.thread);
  found.is_write = !is_read(touch.access);
  found.space = space;
  found.bytes = touch.bytes;
  found.offset = offset;
  found.other_block = earlier.block;
  found.other_thread = thread_behind(earlier.thread);
  found.other_pc = earlier.pc;
  found.other_is_write = earlier.is_write;
  session.add(found);
}

void Tracer::misaligned_access(uintptr_t address, uint32_t alignment, bool is_write, const void* pc) {
  Finding found = finding(misaligned, place(pc), index_of(self()));
  found.is_write = is_write;
  found.mask = alignment;
  found.offset = static_cast<int64_t>(address);
  if (address - shared_guard_ < shared_guard_bytes_) found.space = dynamic_shared, found.offset -= shared_;
  else if (address - static_ < static_bytes_) found.space = static_shared, found.offset -= static_;
  for (uint32_t i = 0; i < session.buffers.size(); ++i) {
    const BufferPlace& place = session.buffers[i].place;
    if (address - (place.address - place.margin) < place.bytes + 2 * place.margin)
      found.space = i, found.offset = static_cast<int64_t>(address - place.address);
  }
  session.add(found);
}

void Tracer::bad_index(int64_t index, uint32_t bound, const void* pc) {
  Finding found = finding(index_out_of_bounds, place(pc), index_of(self()));
  found.offset = index;
  found.mask = bound;
  session.add(found);
}

void Tracer::crash(const void* instruction) {
  if (reinterpret_cast<uintptr_t>(instruction) - base_ >= entered_.size()) return;  // in another library
  session.add(finding(crashed, place(instruction) + 1, index_of(self())));          // + 1: as return addresses are
}

}  // namespace emulator::trace
