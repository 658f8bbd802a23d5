// Setting up a launch's threads and warps, and one block after the other.
#include "hooks.hpp"
#include "worker.hpp"

namespace emulator {

namespace {

void set_place(Block& block, uint64_t number) {
  block.index.x = static_cast<unsigned>(number % block.grid.x);
  block.index.y = static_cast<unsigned>(number / block.grid.x % block.grid.y);
  block.index.z = static_cast<unsigned>(number / block.grid.x / block.grid.y);
}

void reset(Block& block) {
  block.threads_started = 0;
  block.barriers_waited_at = 0;
  block.threads_alive = block.threads_total;
  block.ready.first = block.gathering.first = nullptr;
  for (Barrier& barrier : block.barriers) barrier.waiting.first = nullptr, barrier.arrived = barrier.expected = 0;
  for (unsigned i = 0; i < block.threads_total; ++i) {
    block.threads[i].state = State::unstarted;
    block.threads[i].stack = nullptr;
  }
  for (unsigned i = 0; i < block.warps_total; ++i) {
    unsigned lanes = block.threads_total - 32 * i;
    block.warps[i].exited = lanes >= 32 ? 0 : 0xffffffffu << lanes;
    block.warps[i].pending = 0;
  }
}

}  // namespace

void prepare(Worker& worker, Launch& launch) {
  Block& block = worker.block;
  block = Block{};
  block.dim = launch.block;
  block.grid = launch.grid;
  block.cluster = launch.cluster;
  block.threads_total = launch.block.x * launch.block.y * launch.block.z;
  block.warps_total = (block.threads_total + 31) / 32;
  worker.threads.assign(block.threads_total, Thread{});
  worker.warps.assign(block.warps_total, Warp{});
  block.threads = worker.threads.data();
  block.warps = worker.warps.data();
  for (unsigned i = 0; i < block.threads_total; ++i) {
    Thread& thread = block.threads[i];
    thread.index = {i % block.dim.x, i / block.dim.x % block.dim.y, i / block.dim.x / block.dim.y};
    thread.lane = i % 32;
    thread.block = &block;
    thread.warp = &block.warps[i / 32];
    if (thread.lane == 0) thread.warp->threads = &thread;
  }
  worker.launch = &launch;
  worker.stacks.reserve(block.threads_total);
  worker.shared.reserve(launch.shared_bytes, emulator_shared_alignment);
  block.shared = worker.shared.start();
  block.shared_bytes = launch.shared_bytes;
  block.kernel = launch.entry->call;
  block.arguments = launch.arguments;
  block.worker = &worker;
  block.warp_order = Order::make(launch.order_seed, block.threads_total / 32);
  block.lane_order = Order::make(launch.order_seed, 32);
  block.garbage = garbage_of(launch.order_seed);
  block.current = &current;
  EMULATOR_TRACED(trace::prepare(worker, launch);)
}

void run_block(Worker& worker, uint64_t number) {
  Block& block = worker.block;
  set_place(block, number);
  reset(block);
  worker.shared.fill(block.garbage);
  fill_static_shared(worker, block.garbage);
  for (auto& copies : worker.copies) copies.clear();
  worker.asynchronous.reset();
  EMULATOR_TRACED(worker.tracer->begin_block(number);)
  run_threads(block);
  EMULATOR_TRACED(worker.tracer->end_block();)
}

}  // namespace emulator
