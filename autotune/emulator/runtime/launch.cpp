// Running one launch: blocks spread over OS threads.
#include "emulator/launch.hpp"

#include <stdio.h>

#include <memory>
#include <mutex>
#include <thread>

#include "hooks.hpp"
#include "worker.hpp"

namespace emulator {

namespace {

uint64_t order_seed = 0;                        // of the next launches
dim3 cluster(1, 1, 1);                          // of the next launches
bool overlaps = false;                          // the next launches: what was launched before them
std::mutex one_launch;                          // signal handlers belong to the process
std::vector<std::unique_ptr<Worker>> workers;   // their memory is kept from launch to launch

void run_blocks(Worker& here, Launch& launch, uint64_t blocks) {
  use_signal_stack(here);
  find_static_shared(here);
  prepare(here, launch);
  worker = &here;
  if (sigsetjmp(here.recover, 1) == 0) {
    while (!launch.stopped.load(std::memory_order_relaxed)) {
      uint64_t number = launch.next_block.fetch_add(1, std::memory_order_relaxed);
      if (number >= blocks) break;
      run_block(here, launch.block_order[number]);
    }
  }
  EMULATOR_TRACED(here.tracer->end_launch();)
  current = nullptr;
  worker = nullptr;
}

int refuse(Result& result, const char* format, const char* kernel, size_t asked, size_t given) {
  result = Result{};
  result.kind = failed;
  snprintf(result.message, sizeof result.message, format, kernel, asked, given);
  return failed;
}

const Entry* find_entry(const char* kernel) {
  for (const Entry* entry = emulator_entries; entry->name; ++entry)
    if (!__builtin_strcmp(entry->name, kernel)) return entry;
  return nullptr;
}

void run_on_threads(Launch& launch, unsigned count, uint64_t blocks) {
  while (workers.size() < count) workers.push_back(std::make_unique<Worker>());
  SignalHandlers handlers;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i)
    threads.emplace_back([&launch, blocks, i] { run_blocks(*workers[i], launch, blocks); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace emulator

int emulator_launch(const char* kernel, const unsigned grid[3], const unsigned block[3], size_t shared_bytes,
                    const void* arguments, size_t argument_bytes, unsigned os_threads, emulator::Result* result) {
  using namespace emulator;
  std::lock_guard<std::mutex> lock(one_launch);
  const Entry* entry = find_entry(kernel);
  if (!entry) return refuse(*result, "there is no kernel %s", kernel, 0, 0);
  if (entry->argument_bytes != argument_bytes)
    return refuse(*result, "kernel %s takes %zu bytes of arguments, its launch passes %zu", kernel,
                  entry->argument_bytes, argument_bytes);
  *result = Result{};
  EMULATOR_TRACED(trace::begin_launch(overlaps);)
  Launch launch;
  launch.entry = entry;
  launch.arguments = arguments;
  launch.grid = dim3(grid[0], grid[1], grid[2]);
  launch.block = dim3(block[0], block[1], block[2]);
  launch.cluster = cluster;
  launch.shared_bytes = shared_bytes;
  launch.result = result;
  uint64_t blocks = uint64_t{grid[0]} * grid[1] * grid[2];
  launch.order_seed = order_seed;
  launch.block_order = Order::make(order_seed, blocks);
  unsigned count = static_cast<unsigned>(blocks < os_threads ? blocks : os_threads);
  run_on_threads(launch, count, blocks);
  return result->kind;
}

void emulator_order(uint64_t seed) {
  std::lock_guard<std::mutex> lock(emulator::one_launch);
  emulator::order_seed = seed;
}

void emulator_overlaps(int value) {
  std::lock_guard<std::mutex> lock(emulator::one_launch);
  emulator::overlaps = value != 0;
}

void emulator_cluster(const unsigned sizes[3]) {
  std::lock_guard<std::mutex> lock(emulator::one_launch);
  emulator::cluster = dim3(sizes[0], sizes[1], sizes[2]);
}
