#include "tracer.hpp"

#include <link.h>
#include <string.h>

#include "../runtime/hooks.hpp"
#include "access.hpp"
#include "session.hpp"

namespace emulator::trace {

namespace {

struct Code {
  uintptr_t base = 0, bytes = 0;
};

int find_ours(dl_phdr_info* info, size_t, void* found) {
  uintptr_t here = reinterpret_cast<uintptr_t>(&find_ours);
  bool ours = false;
  uintptr_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    uintptr_t start = info->dlpi_addr + header.p_vaddr;
    ours = ours || (here >= start && here < start + header.p_memsz);
    if (header.p_flags & PF_X) end = header.p_vaddr + header.p_memsz;
  }
  if (ours) *static_cast<Code*>(found) = {info->dlpi_addr, end};
  return ours;
}

}  // namespace

bool has_fibers = false;

Tracer::Tracer(Worker& worker) : worker_(worker) { find_code(); }

void Tracer::find_code() {
  Code code;
  dl_iterate_phdr(find_ours, &code);
  base_ = code.base;
  entered_.assign(code.bytes, 0);
}

void Tracer::begin_launch(Launch& launch) {
  launch_ = session.launches - 1;
  uint32_t threads = launch.block.x * launch.block.y * launch.block.z;
  current_ = worker_.block.current;
  stacks_ = reinterpret_cast<uintptr_t>(worker_.stacks.memory());
  stack_bytes_ = worker_.stacks.bytes();
  shared_guard_ = reinterpret_cast<uintptr_t>(worker_.shared.mapping());
  shared_guard_bytes_ = worker_.shared.mapping_bytes();
  shared_ = reinterpret_cast<uintptr_t>(worker_.shared.start());
  shared_bytes_ = launch.shared_bytes;
  static_ = reinterpret_cast<uintptr_t>(worker_.static_shared);
  static_bytes_ = worker_.static_shared ? worker_.static_shared_bytes : 0;
  shadow_.reserve((shared_bytes_ + 3) / 4 + (static_bytes_ + 3) / 4 + 8);
  order_.begin_launch(threads);
  fences_ = 0;
  fenced_at_.assign(threads, 0);
  loads_.assign(threads, {});
  requests_.clear();
  requests_.begin_launch(launch_, threads, entered_.size());
  std::fill(entered_.begin(), entered_.end(), 0);
  light_accesses_ = full_accesses_ = first_accesses_ = 0;
  muted_ = 0;
  in_block_ = false;
  counting_ = nullptr;
}

void Tracer::end_launch() {
  end_block();  // of a block that failed
  session.collect(requests_.stats(), entered_,
                  {light_accesses_, full_accesses_, requests_.logged(), requests_.dropped(), first_accesses_});
}

void Tracer::begin_block(uint64_t number) {
  if (number == 0) first_accesses_ -= light_accesses_ + full_accesses_;  // `end_block` adds what they are then
  number_ = number;
  in_block_ = true;
  full_ = session.is_sampled(number);
  counting_ = full_ ? entered_.data() : nullptr;
  order_.begin_block();
  for (auto& loads : loads_) loads.clear();
  fenced_ = false;
  known_blocks_.clear();
  begin_block_of_overlap();
}

void Tracer::end_block() {
  if (in_block_ && number_ == 0) first_accesses_ += light_accesses_ + full_accesses_;
  if (in_block_) end_block_of_overlap();
  in_block_ = false;
  if (!full_) return;
  requests_.merge_all();
  full_ = false;
  counting_ = nullptr;
}

// Whether what is there belongs to the emulator: `threadIdx` and its like.
bool Tracer::is_emulators(uintptr_t address) const {
  const std::vector<Thread>& threads = worker_.threads;
  return address == reinterpret_cast<uintptr_t>(current_) ||
         address - reinterpret_cast<uintptr_t>(threads.data()) < threads.size() * sizeof(Thread) ||
         address - reinterpret_cast<uintptr_t>(&worker_) < sizeof(Worker);
}

void Tracer::check(uintptr_t address, uint32_t bytes, Access access, const void* pc, bool asynchronous) {
  if (is_emulators(address)) return;
  if (address - shared_guard_ < shared_guard_bytes_) {
    uint64_t offset = address - shared_;
    ++(full_ ? full_accesses_ : light_accesses_);
    bool inside = address >= shared_ && offset + bytes <= shared_bytes_;
    if (inside && !full_) return;
    Touch touch{address, bytes, access, asynchronous, place(pc), index_of(running())};
    if (!inside) return report(out_of_bounds, touch, dynamic_shared, static_cast<int64_t>(address - shared_));
    return touch_shared(touch, dynamic_shared, shared_, 0);
  }
  if (address - static_ < static_bytes_) {
    if (address == reinterpret_cast<uintptr_t>(&worker)) return;
    ++(full_ ? full_accesses_ : light_accesses_);
    if (!full_) return;
    return touch_static({address, bytes, access, asynchronous, place(pc), index_of(running())});
  }
  touch_global({address, bytes, access, asynchronous, place(pc), 0});
}

uint32_t Tracer::index_of_running() const { return index_of(running()); }

void Tracer::log(const Touch& touch, Operation operation) {
  requests_.log(touch.thread, {touch.address, touch.pc, static_cast<uint16_t>(touch.bytes), static_cast<uint16_t>(operation)});
}

void begin_launch(bool overlaps) { session.begin_launch(overlaps); }

void prepare(Worker& worker, Launch& launch) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Tracer>> tracers;
  if (!worker.tracer) {
    std::lock_guard<std::mutex> lock(mutex);
    tracers.push_back(std::make_unique<Tracer>(worker));
    worker.tracer = tracers.back().get();
  }
  worker.stacks.note(worker.tracer);
  has_fibers = true;
  worker.tracer->begin_launch(launch);
}

}  // namespace emulator::trace
