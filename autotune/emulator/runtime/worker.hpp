// One OS thread of a launch: its fiber stacks, its block's state, where it goes when a kernel fails.
#pragma once

#include <atomic>
#include <memory>
#include <setjmp.h>
#include <vector>

#include "emulator/launch.hpp"
#include "emulator/thread.hpp"

namespace emulator {

struct Stack {
  char* bottom;  // above a page that must not be touched
  char* top;
  Context context;
  bool parked;  // in fiber_main, ready for another thread; else it has to be begun anew
};

// Stack memory for the fibers of one block; kept between blocks and launches. Each stack is aligned to its size, and its
// last word is a note to whoever knows an address of it (trace/tracer.hpp).
constexpr size_t stack_bytes = 256 * 1024;  // address space: only what is touched costs memory
constexpr size_t note_bytes = 64;

class Stacks {
 public:
  ~Stacks();
  void reserve(unsigned count);      // at least so many, all of them fresh
  Stack* take();                     // an unused one
  void give_back(Stack* stack) {
    stack->parked = true;
    unused_.push_back(stack);
  }
  void note(void* owner);            // in every stack
  bool is_guard(const void* address) const;
  const char* memory() const { return memory_; }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<Stack> stacks_;
  std::vector<Stack*> unused_;
  char* mapping_ = nullptr;
  char* memory_ = nullptr;
  size_t bytes_ = 0;
};

// A block's dynamic shared memory, its end against a page that must not be touched.
class SharedMemory {
 public:
  ~SharedMemory();
  void reserve(size_t bytes, size_t alignment);
  void fill(unsigned char byte);
  unsigned char* start() const { return start_; }
  bool contains_guard(const void* address) const;
  const unsigned char* mapping() const { return mapping_; }  // with the guard pages
  size_t mapping_bytes() const;

 private:
  unsigned char* mapping_ = nullptr;
  unsigned char* start_ = nullptr;
  size_t mapped_ = 0;
};

// What all workers of a launch share.
struct Launch {
  const Entry* entry;
  const void* arguments;
  dim3 grid, block, cluster;
  size_t shared_bytes;
  uint64_t order_seed = 0;
  Order block_order{1, 0, 1};
  std::atomic<uint64_t> next_block{0};
  std::atomic<bool> stopped{false};  // a worker failed
  Result* result;
};

// An asynchronous copy that has not been waited for; a null destination ends a group.
struct PendingCopy {
  void* to;
  const void* from;
  size_t bytes, valid;
};

#ifdef EMULATOR_TRACE
namespace trace {
class Tracer;
}
#endif

struct Asynchronous;
struct AsynchronousEnd {
  void operator()(Asynchronous* state) const;
};

struct Worker {
#ifdef EMULATOR_TRACE
  trace::Tracer* tracer;
#endif
  Launch* launch;
  Block block;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Stacks stacks;
  SharedMemory shared;
  std::vector<std::vector<PendingCopy>> copies;  // by thread, oldest first
  std::unique_ptr<Asynchronous, AsynchronousEnd> asynchronous;  // null: the block has used no instruction of that kind
  Context main;  // the OS thread's own stack
  sigjmp_buf recover;
  std::vector<char> signal_stack;
  char* static_shared;  // this OS thread's copy of the kernels' static __shared__ variables
  size_t static_shared_bytes;
};

// The worker of this OS thread while it runs a kernel.
extern __thread Worker* worker __attribute__((visibility("hidden")));

void prepare(Worker& worker, Launch& launch);
void run_block(Worker& worker, uint64_t number);

// The scheduler: runs a block that has been set up to its end; what every fiber runs.
void run_threads(Block& block);
void fiber_main();

// Ends the launch: every thread of the block waits and none can go on.
[[noreturn]] void deadlock(Block& block);

// Ends the launch: the first failure is kept. Does not return.
[[noreturn]] void stop(const Result& result);

// Static __shared__ variables: where this OS thread's copy lies; filling it with a byte.
void find_static_shared(Worker& worker);
void fill_static_shared(Worker& worker, unsigned char byte);

void use_signal_stack(Worker& worker);

// While it lives, faults in kernels end the launch instead of the process.
class SignalHandlers {
 public:
  SignalHandlers();
  ~SignalHandlers();
};

}  // namespace emulator
