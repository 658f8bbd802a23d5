// The memory a worker needs: fiber stacks and shared memory, each against pages that must not be touched.
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker.hpp"

namespace emulator {

__thread Worker* worker;

namespace {


// Stacks whose tops lie at the same offset in a page would all use the same few cache sets.
constexpr size_t colours = 16, colour_bytes = 1088;

size_t page() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

char* map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

}  // namespace

Stacks::~Stacks() {
  if (mapping_) munmap(mapping_, bytes_ + stack_bytes);
}

void Stacks::reserve(unsigned count) {
  if (count > stacks_.size()) {
    if (mapping_) munmap(mapping_, bytes_ + stack_bytes);
    bytes_ = count * stack_bytes;
    mapping_ = map(bytes_ + stack_bytes);
    memory_ = reinterpret_cast<char*>(round_up(reinterpret_cast<size_t>(mapping_), stack_bytes));
    stacks_.assign(mapping_ ? count : 0, Stack{});
    for (unsigned i = 0; i < stacks_.size(); ++i) {
      char* bottom = memory_ + i * stack_bytes;
      mprotect(bottom, page(), PROT_NONE);
      stacks_[i].bottom = bottom + page();
      stacks_[i].top = bottom + stack_bytes - note_bytes - i % colours * colour_bytes;
    }
  }
  unused_.clear();
  for (size_t i = stacks_.size(); i-- > 0;) {
    stacks_[i].parked = false;
    unused_.push_back(&stacks_[i]);
  }
}

Stack* Stacks::take() {
  if (unused_.empty()) fail("out of memory for the threads' stacks");
  Stack* stack = unused_.back();
  unused_.pop_back();
  if (!stack->parked) make_context(stack->context, stack->bottom, stack->top, fiber_main);
  return stack;
}

void Stacks::note(void* owner) {
  for (size_t i = 0; i < stacks_.size(); ++i)
    memcpy(memory_ + (i + 1) * stack_bytes - sizeof owner, &owner, sizeof owner);
}

bool Stacks::is_guard(const void* address) const {
  const char* byte = static_cast<const char*>(address);
  return mapping_ && byte >= memory_ && byte < memory_ + bytes_ && (byte - memory_) % stack_bytes < page();
}

SharedMemory::~SharedMemory() {
  if (mapping_) munmap(mapping_, mapped_ + 2 * page());
}

void SharedMemory::reserve(size_t bytes, size_t alignment) {
  size_t needed = round_up(bytes, page());
  if (!mapping_ || needed > mapped_) {
    if (mapping_) munmap(mapping_, mapped_ + 2 * page());
    mapped_ = needed;
    mapping_ = reinterpret_cast<unsigned char*>(map(mapped_ + 2 * page()));
    mprotect(mapping_, page(), PROT_NONE);
    mprotect(mapping_ + page() + mapped_, page(), PROT_NONE);
  }
  start_ = mapping_ + page() + mapped_ - round_up(bytes, alignment);
}

void SharedMemory::fill(unsigned char byte) {
  size_t touched = static_cast<size_t>(mapping_ + page() + mapped_ - start_);
  touched = round_up(touched, page());  // with what lies before the start in its page
  memset(mapping_ + page() + mapped_ - touched, byte, touched);
}

bool SharedMemory::contains_guard(const void* address) const {
  const unsigned char* byte = static_cast<const unsigned char*>(address);
  return mapping_ && byte >= mapping_ && byte < mapping_ + mapped_ + 2 * page();
}

size_t SharedMemory::mapping_bytes() const { return mapping_ ? mapped_ + 2 * page() : 0; }

namespace {

// This library's thread-local variables, in this OS thread.
struct ThreadLocal {
  char* start = nullptr;
  size_t bytes = 0;
};

int find_thread_local(dl_phdr_info* info, size_t, void* found) {
  uintptr_t here = reinterpret_cast<uintptr_t>(&find_thread_local);
  bool ours = false;
  size_t bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && here >= start && here < start + header.p_memsz) ours = true;
    if (header.p_type == PT_TLS) bytes = header.p_memsz;
  }
  if (!ours) return 0;
  *static_cast<ThreadLocal*>(found) = {static_cast<char*>(info->dlpi_tls_data), bytes};
  return 1;
}

ThreadLocal thread_local_variables() {
  ThreadLocal found;
  asm volatile("" : : "r"(&current));  // asking for an address makes this thread's copy
  dl_iterate_phdr(find_thread_local, &found);
  return found;
}

// The emulator's own thread-local variables; all others are `__shared__` variables of kernels.
constexpr size_t own_bytes = sizeof(current) + sizeof(worker);

}  // namespace

void find_static_shared(Worker& here) {
  ThreadLocal found = thread_local_variables();
  here.static_shared = found.bytes > own_bytes ? found.start : nullptr;
  here.static_shared_bytes = found.bytes;
}

void fill_static_shared(Worker& here, unsigned char byte) {
  if (!here.static_shared) return;
  Thread* kept_current = current;
  Worker* kept_worker = worker;
  memset(here.static_shared, byte, here.static_shared_bytes);
  current = kept_current;
  worker = kept_worker;
}

}  // namespace emulator
