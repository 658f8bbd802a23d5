#include "shadow.hpp"

#include <sched.h>
#include <sys/mman.h>

namespace emulator::trace {

GlobalShadow::GlobalShadow(size_t bytes) : count_(bytes / 4 + 8) {
  void* memory = mmap(nullptr, count_ * sizeof(GlobalCell), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cells_ = memory == MAP_FAILED ? nullptr : static_cast<GlobalCell*>(memory);
}

GlobalShadow::~GlobalShadow() {
  if (cells_) munmap(cells_, count_ * sizeof(GlobalCell));
}

void GlobalShadow::set_written() {
  for (size_t i = 0; i < count_; ++i) cells_[i].written = 15;
}

namespace {
constexpr size_t lock_count = 4096;
std::atomic_flag locks[lock_count];
}  // namespace

CellLock::CellLock(uintptr_t address) : flag_(locks[address / 256 % lock_count]) {
  while (flag_.test_and_set(std::memory_order_acquire)) sched_yield();
}

}  // namespace emulator::trace
