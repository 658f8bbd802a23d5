// Barriers and warp operations: what they order, and what is wrong with them.
#include <stdio.h>
#include <string.h>

#include "../runtime/proxy.hpp"
#include "access.hpp"
#include "session.hpp"
#include "tracer.hpp"

namespace emulator::trace {

namespace {

Operation warp_operation_called(const char* name) {
  if (strstr(name, "shfl")) return shuffle;
  if (!strcmp(name, "__syncwarp")) return warp_barrier;
  if (!strncmp(name, "mma", 3)) return tensor;
  if (!strcmp(name, "ldmatrix")) return matrix_load;
  if (strstr(name, "ballot") || strstr(name, "any") || strstr(name, "all") || strstr(name, "uni")) return vote;
  return other_warp;
}

// Multiply-adds of a warp's `mma.m16n8k8`; a bare `mma` is m16n8k16.
uint16_t products_of(const char* name) {
  unsigned m = 16, n = 8, k = 16;
  sscanf(name, "mma.m%un%uk%u", &m, &n, &k);
  return static_cast<uint16_t>(m * n * k);
}

}  // namespace

// Names are literals: what was found for one holds for its address.
const Tracer::Named& Tracer::operation_called(const char* name) {
  Named& known = named_[reinterpret_cast<uintptr_t>(name) / 16 % (sizeof named_ / sizeof *named_)];
  if (known.name != name) {
    known = {name, warp_operation_called(name), 0};
    if (known.operation == tensor) known.size = products_of(name);
  }
  return known;
}

void Tracer::log_meeting(const Thread& thread, Operation operation, uint32_t pc, uint16_t size) {
  if (full_) requests_.log(index_of(thread), {0, pc, size, static_cast<uint16_t>(operation)});
}

void Tracer::arrive(Barrier& barrier, const Thread& thread, bool waits, const void* pc) {
  unsigned id = static_cast<unsigned>(&barrier - thread.block->barriers);
  uint32_t at = place(pc), index = index_of(thread);
  log_meeting(thread, emulator::trace::barrier, at);
  took(index);
  if (barrier.arrived == 1) phases_[id] = {at, index, waits};
  phases_[id].last_waits = waits;
  if (waits && phases_[id].pc != at && !barrier.expected) {
    Finding found = finding(divergent_barrier, at, index);
    found.other_pc = phases_[id].pc;
    found.other_thread = phases_[id].thread;
    session.add(found);
  }
  if (barrier.expected) order_.arrive(id, index);
}

void Tracer::complete(Barrier& barrier, Block& block) {
  unsigned id = static_cast<unsigned>(&barrier - block.barriers);
  if (barrier.expected) {
    for (Thread* thread = barrier.waiting.first; thread; thread = thread->next) order_.leave(id, index_of(*thread));
    if (phases_[id].last_waits) order_.leave(id, index_of(self()));
    order_.end_phase(id);
    return;
  }
  for (unsigned warp = 0; block.threads_alive < block.threads_total && warp < block.warps_total; ++warp) {
    uint32_t gone = 0, there = 0;
    for (unsigned i = 32 * warp; i < 32 * warp + 32 && i < block.threads_total; ++i)
      (block.threads[i].state == State::done ? gone : there) |= 1u << i % 32;
    if (!gone || !there) continue;
    Finding found = finding(divergent_barrier, phases_[id].pc, phases_[id].thread);
    found.other_thread = 32 * warp + __builtin_ctz(gone);
    found.mask = gone;
    session.add(found);
  }
  if (full_) requests_.merge_all();
  order_.meet_all();
}

void Tracer::arrive(const Thread& thread, const char* name, const void* pc) {
  const Named& called = operation_called(name);
  if (called.operation != warp_barrier) took(index_of(thread));
  if (called.operation != matrix_load)  // an ldmatrix's read has been logged
    log_meeting(thread, called.operation, place(pc), called.size);
}

void Tracer::complete(const Warp& warp, const WarpOperation& operation) {
  const Thread& first = *warp.threads;
  uint32_t index = index_of(first);
  unsigned left = first.block->threads_total - index;
  uint32_t real = left >= 32 ? 0xffffffffu : (1u << left) - 1;
  uint32_t missing = operation.mask & real & ~operation.arrived;
  if (missing) {
    uint32_t lane = __builtin_ctz(operation.arrived);
    Finding found = finding(wrong_mask, place(warp.threads[lane].pc), index + lane);
    found.other_thread = index + __builtin_ctz(missing);
    found.mask = operation.mask;
    session.add(found);
  }
  if (operation_called(operation.name).operation == warp_barrier) order_.meet(index, operation.arrived);
  if (full_ && operation.arrived == (real & ~warp.exited)) requests_.merge(index / 32);
}

void report_deadlock(const Block& block, const Thread& one, const Thread* other) {
  const Thread* told = &one;
  auto tells_more = [&](const Thread& thread) {
    if (thread.state == State::at_warp_operation) return 2;
    if (thread.state != State::at_mbarrier) return 0;
    return block.worker->asynchronous->barriers[thread.waits_mask >> 1].bytes ? 3 : 1;  // a wrong count of bytes
  };
  if (other && tells_more(*other) > tells_more(one)) std::swap(told, other);
  if (told->state == State::at_mbarrier) {
    const Mbarrier& barrier = block.worker->asynchronous->barriers[told->waits_mask >> 1];
    return block.worker->tracer->report_lacking(*told, other, barrier.address, barrier.missing, static_cast<uint32_t>(barrier.bytes));
  }
  bool in_warp = told->state == State::at_warp_operation;
  block.worker->tracer->report(in_warp ? wrong_mask : deadlocked, *told, other, in_warp ? told->waits_mask : 0);
}

void report_mixture(const Warp& warp, const Thread& thread, uint32_t mask, const char* name) {
  for (unsigned i = 0; i < warp.pending; ++i) {
    const WarpOperation& operation = warp.operations[i];
    if (operation.mask != mask || !strcmp(operation.name, name)) continue;
    const Thread& other = warp.threads[__builtin_ctz(operation.arrived)];
    thread.block->worker->tracer->report(wrong_mask, thread, &other, mask);
  }
}

}  // namespace emulator::trace
