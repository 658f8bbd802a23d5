// The tracer of one OS thread: it sees every access and every synchronisation of the block that runs there.
#pragma once

#include <stdint.h>

#include <atomic>
#include <memory>
#include <vector>

#include "../runtime/worker.hpp"
#include "findings.hpp"
#include "order.hpp"
#include "requests.hpp"
#include "shadow.hpp"

namespace emulator::trace {

enum class Access : uint8_t { read, matrix_read, write, atomic, exchange };  // the last: an atomic operation that ignores what was there

// One access on its way through the checks.
struct Touch {
  uintptr_t address;
  uint32_t bytes;
  Access access;
  bool asynchronous;  // the write of a copy that is under way
  uint32_t pc;
  uint32_t thread;
};

class Session;

class Tracer {
 public:
  explicit Tracer(Worker& worker);

  void begin_launch(Launch& launch);
  void end_launch();
  void begin_block(uint64_t number);
  void end_block();

  bool is_full() const { return full_; }
  bool is_muted() const { return muted_ != 0; }
  void mute() {
    ++muted_;
    counting_ = nullptr;
  }
  void unmute() {
    if (--muted_ == 0 && full_) counting_ = entered_.data();
  }

  // Inline: what most accesses are, to a stack or, in a block that is not traced in full, to shared memory.
  void touch(uintptr_t address, uint32_t bytes, Access access, const void* pc, bool asynchronous = false) {
    if (address - stacks_ < stack_bytes_ || muted_) return;
    if (!full_ && address - shared_ < shared_bytes_ && address - shared_ + bytes <= shared_bytes_) {
      ++light_accesses_;
      return;
    }
    check(address, bytes, access, pc, asynchronous);
  }
  void copy(void* to, const void* from, size_t bytes, size_t valid, const void* pc);  // begins, asynchronously
  void copied(void* to, size_t bytes);                                                // has been waited for
  void misaligned_copy(void* to, const void* from, size_t bytes, const void* pc);

  // mbarriers (by number), the running thread; `pc` as below.
  void mbarrier_made(unsigned number, uintptr_t address, const void* pc);
  void mbarrier_arrived(unsigned number, uintptr_t address, const void* pc);
  void mbarrier_left(unsigned number, uintptr_t address, const void* pc);
  void phase_ended(unsigned number);
  void fence_async();
  // The running thread hands registers to a product: what it has loaded is there.
  void registers_taken() { took(index_of_running()); }

  // TMA's loads: the running thread begins one, of bytes that a mbarrier counts; in device memory it reads these.
  void load_began(uintptr_t mbarrier, bool is_fenced, uintptr_t to, uint32_t bytes, unsigned number, const void* pc);
  void async_reads(const void* from, uint32_t bytes, const void* pc);
  void load_ended(uintptr_t to, uint32_t bytes, unsigned number);

  // What reads shared memory later: may it, begins, ends in the running thread's sight; a store's writes then.
  void check_async_read(uintptr_t from, uint32_t bytes, const void* pc);
  void async_read_began(uintptr_t from, uint32_t bytes, const void* pc);
  void async_read_ended(uintptr_t from, uint32_t bytes);
  void async_wrote(const void* to, uint32_t bytes, bool adds, const void* pc);

  // The running thread has waited for the launch before; lets the next one begin.
  void waited_for_previous();
  void let_next_begin();

  // What a load, a store or a warp group's product amounts to.
  void count_load(uint32_t bytes, uint64_t sectors, const void* pc);
  void count_store(uint32_t bytes, uint64_t sectors, bool adds, const void* pc);
  void count_product(uint32_t columns, uint32_t depth, uint32_t shared_bytes, const void* pc);

  // A warp group's product has read 16 bytes; has read all; its end has been waited for by the running thread.
  void product_read(uintptr_t from, unsigned group);
  void product_ended(unsigned group);
  void products_waited_for(unsigned group);

  // `pc`: where the thread called; after the runtime has counted the arrival.
  void arrive(Barrier& barrier, const Thread& thread, bool waits, const void* pc);
  void arrive(const Thread& thread, const char* name, const void* pc);
  // Before the runtime lets the waiting threads go on.
  void complete(Barrier& barrier, Block& block);
  void complete(const Warp& warp, const WarpOperation& operation);

  // A thread that waits for ever, or calls what it must not; `other` does something else.
  void report(Kind kind, const Thread& thread, const Thread* other, uint32_t mask);
  void report_lacking(const Thread& thread, const Thread* other, uintptr_t mbarrier, uint32_t arrivals, uint32_t bytes);
  void misaligned_access(uintptr_t address, uint32_t alignment, bool is_write, const void* pc);
  void bad_index(int64_t index, uint32_t bound, const void* pc);
  void crash(const void* instruction);  // which ended the launch
  void enter(const void* pc) {  // a basic block of code
    if (counting_) ++counting_[place(pc)];
  }
  void fence() { fenced_ = true; }

  uint32_t place(const void* pc) const { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pc) - base_); }

 private:
  void check(uintptr_t address, uint32_t bytes, Access access, const void* pc, bool asynchronous);
  bool is_emulators(uintptr_t address) const;
  const Thread& running() const { return **current_; }
  void touch_static(const Touch& touch);
  void touch_shared(const Touch& touch, uint32_t space, uintptr_t start, uint32_t first_cell);
  void read_shared(SharedCell& cell, uint8_t mask, const Touch& touch, uint32_t space, int64_t offset);
  void write_shared(SharedCell& cell, uint8_t mask, const Touch& touch, uint32_t space, int64_t offset);
  void note_reader(SharedCell& cell, uint8_t mask, uint32_t thread, uint32_t pc);
  void check_made(unsigned number, uintptr_t address, const void* pc);
  void note_load(SharedCell& cell, const Touch& touch);
  void took(uint32_t thread) { loads_[thread].clear(); }
  void note_overtaken(uint32_t thread);
  uint32_t index_of_running() const;
  template <class F>
  void each_cell(uintptr_t address, uint32_t bytes, F visit);
  void report_unfenced(const SharedCell& cell, const Touch& touch, uint32_t space, int64_t offset);
  bool is_fenced(const SharedCell& cell) const {
    return cell.generic_writer == nobody || fenced_at_[cell.generic_writer] > cell.generic_serial;
  }
  void touch_global(const Touch& touch);
  void touch_buffer(const Touch& touch, uint32_t index);
  void visit(GlobalCell& cell, uint8_t mask, const Touch& touch, uint32_t index, int64_t offset);
  bool has_waited(uint32_t thread) const;
  void begin_block_of_overlap();
  void end_block_of_overlap();
  void check_overlap(const GlobalCell& cell, const Touch& touch, uint32_t index, int64_t offset);
  bool is_before(const Visit& visit, uint16_t thread, uint32_t now) const;
  Finding finding(Kind kind, uint32_t pc, uint32_t thread) const;
  uint32_t thread_behind(uint32_t thread) const;
  void report(Kind kind, const Touch& touch, uint32_t space, int64_t offset);
  void report(Kind kind, const Touch& touch, uint32_t space, int64_t offset, const Earlier& earlier);
  void log(const Touch& touch, Operation operation);
  void log_meeting(const Thread& thread, Operation operation, uint32_t pc, uint16_t size = 0);
  void find_code();
  struct Named {
    const char* name;
    Operation operation;
    uint16_t size;  // of a tensor-core product: its multiply-adds
  };
  const Named& operation_called(const char* name);  // of a warp

  Worker& worker_;
  Thread* const* current_ = nullptr;  // of the OS thread
  uintptr_t base_ = 0;          // of the library
  uintptr_t stacks_ = 0, stack_bytes_ = 0;
  uintptr_t shared_ = 0, shared_bytes_ = 0, shared_guard_ = 0, shared_guard_bytes_ = 0;
  uintptr_t static_ = 0, static_bytes_ = 0;
  bool full_ = false;
  unsigned muted_ = 0;
  uint64_t number_ = 0;         // of the block
  bool in_block_ = false;
  uint32_t launch_ = 0;
  uint32_t last_buffer_ = 0;
  uint64_t light_accesses_ = 0, full_accesses_ = 0, first_accesses_ = 0;
  Order order_;
  SharedShadow shadow_;
  Requests requests_;
  struct Phase {
    uint32_t pc, thread;
    bool last_waits;                    // the one that arrived last
  };
  Phase phases_[16];                    // of each barrier: where its first thread arrived
  Named named_[16] = {};
  uint32_t fences_ = 0;                 // of the asynchronous proxy, by all threads
  std::vector<uint32_t> fenced_at_;     // by thread: number of its latest
  struct Made {
    uint32_t epoch, clock, thread, pc;
  };
  std::vector<Made> made_;              // by mbarrier: who initialised it, and when
  std::vector<uint16_t> copier_;        // by mbarrier: the thread that began its latest load
  struct Load {
    SharedCell* cell;
    uint32_t clock, pc;
  };
  std::vector<std::vector<Load>> loads_;  // by thread: of shared memory, which nothing that it did since has needed
  bool fenced_ = false;                 // a thread of this block has executed __threadfence
  struct Wait {
    uint32_t epoch, clock, thread;
  };
  std::vector<Wait> waits_;             // of this block, for the launch before
  bool let_next_early_ = false;         // this block has let the next launch begin before it waited
  std::vector<bool> known_blocks_;      // whose writes this block may rely on
  std::vector<uint32_t> entered_;       // by offset of code: executions in full blocks
  uint32_t* counting_ = nullptr;        // `entered_` while code is counted
};

void begin_launch(bool overlaps);
void prepare(Worker& worker, Launch& launch);

// Every thread of the block waits; `one` is among them, and `other` waits for something else.
void report_deadlock(const Block& block, const Thread& one, const Thread* other);

// Whether lanes of a warp are about to meet in different operations: reported, before the runtime ends the launch.
void report_mixture(const Warp& warp, const Thread& thread, uint32_t mask, const char* name);

// Whether a launch has begun: instrumented code that runs before initialises variables, and there are no fibers yet.
extern bool has_fibers;

// The tracer of the kernel that runs here, or null. Looked up from the stack's last word, which is quicker than a
// thread-local variable of a shared library.
inline __attribute__((always_inline)) Tracer* here() {
  if (!has_fibers) return nullptr;
  uintptr_t stack;
#if defined(__x86_64__)
  asm("movq %%rsp, %0" : "=r"(stack));
#elif defined(__aarch64__)
  asm("mov %0, sp" : "=r"(stack));
#else
  stack = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
#endif
  return *reinterpret_cast<Tracer**>((stack | (stack_bytes - 1)) + 1 - sizeof(Tracer*));
}

}  // namespace emulator::trace
