// A block's threads as fibers: who runs next, barriers, warp operations, and how a deadlock is told.
#include <string.h>

#include <algorithm>

#include "emulator/barrier.hpp"
#include "emulator/warp.hpp"
#include "hooks.hpp"
#include "proxy.hpp"
#include "worker.hpp"

namespace emulator {

__thread Thread* current;

namespace {

bool same_place(const Thread& a, const Thread& b) {
  return a.warp == b.warp && a.place.line == b.place.line && strcmp(a.place.file, b.place.file) == 0;
}

// Nothing else can run: the first thread in __activemask goes on, with the lanes of its warp that stand at the same call.
void end_gathering(Block& block) {
  Queue waiting = block.gathering, together{}, rest{};
  block.gathering.first = nullptr;
  uint32_t lanes = 0;
  const Thread* leader = waiting.first;
  while (Thread* thread = waiting.pop()) {
    bool joins = same_place(*thread, *leader);
    (joins ? together : rest).push(thread);
    if (joins) lanes |= 1u << thread->lane;
  }
  for (Thread* thread = together.first; thread; thread = thread->next) thread->waits_mask = lanes;
  block.gathering = rest;
  block.ready.take_all(together);
}

// Which thread is the place-th to be started: warp by warp, lane by lane, both in the launch's order.
unsigned to_start(const Block& block, unsigned place) {
  unsigned whole = block.threads_total / 32 * 32;
  if (place >= whole) return place;
  return static_cast<unsigned>(32 * block.warp_order[place / 32] + block.lane_order[place % 32]);
}

// The next thread that can run, with a stack; null if there is none.
Thread* next_thread(Block& block, Stack* reuse) {
  if (block.threads_started < block.threads_total) {
    Thread* thread = &block.threads[to_start(block, block.threads_started++)];
    thread->stack = reuse ? reuse : block.worker->stacks.take();
    return thread;
  }
  if (!block.ready.first && block.gathering.first) end_gathering(block);
  while (!block.ready.first && block.threads_alive && make_oldest_load(block)) {
  }
  return block.ready.pop();
}

void resume(Thread* thread, Context& from) {
  thread->state = State::ready;
  *thread->block->current = thread;
  switch_context(from, thread->stack->context);
}

void complete(Barrier& barrier, Block& block) {
  EMULATOR_TRACED(block.worker->tracer->complete(barrier, block);)
  block.barriers_waited_at &= ~(1u << (&barrier - block.barriers));
  barrier.last_count = barrier.count;
  barrier.last_all = barrier.all;
  barrier.last_any = barrier.any;
  barrier.arrived = barrier.expected = 0;
  block.ready.take_all(barrier.waiting);
}

bool is_complete(const Barrier& barrier, const Block& block) {
  return barrier.arrived == (barrier.expected ? barrier.expected : block.threads_alive);
}

void count_arrival(Block& block, Barrier& barrier, unsigned threads, int predicate, Place place) {
  if (barrier.arrived == 0) {
    block.barriers_waited_at |= 1u << (&barrier - block.barriers);
    barrier.expected = threads;
    barrier.count = barrier.any = 0;
    barrier.all = 1;
    if (threads) std::fill_n(barrier.lanes, block.warps_total, 0u);
  } else if (barrier.expected != threads) {
    fail("a barrier is called for %u threads at %s:%d but was begun for %u", threads, place.file, place.line,
         barrier.expected);
  }
  if (threads) {  // a second arrival stands for a thread that is still missing: the others go on without it
    const Thread& thread = self();
    uint32_t& lanes = barrier.lanes[thread.warp - block.warps];
    if (lanes >> thread.lane & 1)
      fail("a thread arrives at barrier %u twice in one phase, at %s:%d", static_cast<unsigned>(&barrier - block.barriers),
           place.file, place.line);
    lanes |= 1u << thread.lane;
  }
  ++barrier.arrived;
  barrier.count += predicate != 0;
  barrier.all = barrier.all && predicate;
  barrier.any = barrier.any || predicate;
}

void complete(Warp& warp, WarpOperation& operation, Block& block) {
  EMULATOR_TRACED(block.worker->tracer->complete(warp, operation);)
  if (operation.combine) operation.combine(warp.items, operation.arrived);
  for (uint32_t rest = operation.arrived; rest; rest &= rest - 1) {
    Thread* thread = warp.threads + __builtin_ctz(rest);
    if (thread->state == State::at_warp_operation) block.ready.push(thread);
  }
  operation.mask = 0;
  while (warp.pending && warp.operations[warp.pending - 1].mask == 0) --warp.pending;
}

WarpOperation& find_operation(Warp& warp, uint32_t mask, Combine combine, const char* name, Place place) {
  WarpOperation* free = nullptr;
  for (unsigned i = 0; i < warp.pending; ++i) {
    WarpOperation& operation = warp.operations[i];
    if (operation.mask == mask) {
      if (operation.combine != combine || (operation.name != name && strcmp(operation.name, name) != 0))
        fail("lanes of one warp call different operations with mask 0x%08x: %s at %s:%d while others wait in %s", mask,
             name, place.file, place.line, operation.name);
      return operation;
    }
    if (operation.mask == 0) free = &operation;
  }
  if (!free) free = &warp.operations[warp.pending++];
  *free = WarpOperation{mask, 0, combine, name};
  return *free;
}

void leave_warp(Thread& thread) {
  Warp& warp = *thread.warp;
  warp.exited |= 1u << thread.lane;
  for (unsigned i = 0; i < warp.pending; ++i) {
    WarpOperation& operation = warp.operations[i];
    if (operation.mask && operation.arrived == (operation.mask & ~warp.exited)) complete(warp, operation, *thread.block);
  }
}

void leave_block(Thread& thread) {
  Block& block = *thread.block;
  if (block.worker->asynchronous) finish_stores(thread);
  thread.state = State::done;
  --block.threads_alive;
  if (block.worker->asynchronous && block.threads_alive == 0) check_nothing_under_way(block);
  for (unsigned rest = block.barriers_waited_at; rest; rest &= rest - 1) {
    Barrier& barrier = block.barriers[__builtin_ctz(rest)];
    if (!barrier.expected && is_complete(barrier, block)) complete(barrier, block);
  }
  leave_warp(thread);
}

}  // namespace

void suspend(Thread& thread) {
  Thread* next = next_thread(*thread.block, nullptr);
  if (!next) deadlock(*thread.block);
  if (next == &thread) {
    thread.state = State::ready;
    return;
  }
  resume(next, thread.stack->context);
}

Barrier& wait_at_barrier(unsigned id, unsigned threads, int predicate, const char* name, Place place) {
  Thread& thread = self();
  Block& block = *thread.block;
  Barrier& barrier = block.barriers[id & 15];
  EMULATOR_TRACED(thread.pc = __builtin_return_address(0);)
  count_arrival(block, barrier, threads, predicate, place);
  EMULATOR_TRACED(block.worker->tracer->arrive(barrier, thread, true, thread.pc);)
  if (is_complete(barrier, block)) {
    complete(barrier, block);
    return barrier;
  }
  thread.state = State::at_barrier;
  thread.waits_in = name;
  thread.waits_mask = 0;
  thread.place = place;
  barrier.waiting.push(&thread);
  suspend(thread);
  return barrier;
}

void arrive_at_barrier(unsigned id, unsigned threads, Place place) {
  Block& block = *self().block;
  Barrier& barrier = block.barriers[id & 15];
  count_arrival(block, barrier, threads, 0, place);
  EMULATOR_TRACED(block.worker->tracer->arrive(barrier, self(), false, __builtin_return_address(0));)
  if (is_complete(barrier, block)) complete(barrier, block);
}

void warp_operation(uint32_t mask, void* item, Combine combine, const char* name, Place place) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  uint32_t bit = 1u << thread.lane;
  EMULATOR_TRACED(thread.pc = __builtin_return_address(0); thread.block->worker->tracer->arrive(thread, name, thread.pc);)
  EMULATOR_TRACED(if (!(mask & bit)) thread.block->worker->tracer->report(trace::wrong_mask, thread, nullptr, mask);)
  if (!(mask & bit))
    fail("%s at %s:%d is called by lane %u, which its mask 0x%08x does not name", name, place.file, place.line,
         thread.lane, mask);
  EMULATOR_TRACED(trace::report_mixture(warp, thread, mask, name);)
  WarpOperation& operation = find_operation(warp, mask, combine, name, place);
  operation.arrived |= bit;
  warp.items[thread.lane] = item;
  if (operation.arrived == (mask & ~warp.exited)) {
    complete(warp, operation, *thread.block);
    return;
  }
  thread.state = State::at_warp_operation;
  thread.waits_in = name;
  thread.waits_mask = mask;
  thread.place = place;
  suspend(thread);
}

uint32_t active_lanes(Place place) {
  Thread& thread = self();
  EMULATOR_TRACED(thread.pc = __builtin_return_address(0);)
  thread.state = State::gathering;
  thread.place = place;
  thread.block->gathering.push(&thread);
  suspend(thread);
  return thread.waits_mask;
}

void yield() {
  Thread& thread = self();
  Block& block = *thread.block;
  if (block.worker->launch->stopped.load(std::memory_order_relaxed)) fail("stopped");
  // Who polls must not keep the copies waiting that it polls for.
  if (!block.ready.first || ++block.yields % 64 == 0) make_oldest_load(block);
  block.ready.push(&thread);
  suspend(thread);
}

// What every fiber runs: threads to their end, one after the other, until no thread needs a new stack.
void fiber_main() {
  for (;;) {
    Block& block = *self().block;
    block.kernel(block.arguments);
    Thread& finished = self();
    Stack* stack = finished.stack;
    leave_block(finished);
    Thread* next = next_thread(block, stack);
    if (next && next->stack == stack) {
      next->state = State::ready;
      *block.current = next;
      continue;
    }
    block.worker->stacks.give_back(stack);
    if (next)
      resume(next, stack->context);
    else if (block.threads_alive == 0)
      switch_context(stack->context, block.worker->main);
    else
      deadlock(block);
  }
}

void run_threads(Block& block) { resume(next_thread(block, nullptr), block.worker->main); }

}  // namespace emulator
