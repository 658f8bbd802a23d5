#include "tracer.hpp"

#include <link.h>
#include <string.h>

#include "../runtime/hooks.hpp"
#include "emulator/trace.hpp"
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

uint32_t index_of(const Thread& thread) { return static_cast<uint32_t>(&thread - thread.block->threads); }

bool is_read(Access access) { return access <= Access::matrix_read; }
Operation global_operation(Access access) {
  return is_read(access) ? global_load : access == Access::write ? global_store : global_atomic;
}
Operation shared_operation(Access access) {
  if (access == Access::matrix_read) return matrix_load;
  return is_read(access) ? shared_load : access == Access::write ? shared_store : shared_atomic;
}
bool is_atomic(Access access) { return access >= Access::atomic; }

Operation warp_operation_called(const char* name) {
  if (strstr(name, "shfl")) return shuffle;
  if (!strcmp(name, "__syncwarp")) return warp_barrier;
  if (!strncmp(name, "mma", 3)) return tensor;
  if (strstr(name, "ballot") || strstr(name, "any") || strstr(name, "all") || strstr(name, "uni")) return vote;
  return other_warp;
}

// The part of the word at `word` that [address, address + bytes) covers, a bit a byte.
uint8_t mask_in(uintptr_t word, uintptr_t address, uint32_t bytes) {
  uintptr_t first = address > word ? address - word : 0;
  uintptr_t end = address + bytes < word + 4 ? address + bytes - word : 4;
  return static_cast<uint8_t>((1u << end) - (1u << first));
}

}  // namespace

std::atomic<int> full_blocks{0};

Tracer::Tracer(Worker& worker) : worker_(worker) { find_code(); }

void Tracer::find_code() {
  Code code;
  dl_iterate_phdr(find_ours, &code);
  base_ = code.base;
  entered_.assign(code.bytes, 0);
}

uint32_t Tracer::place(const void* pc) const {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pc) - base_);
}

void Tracer::begin_launch(Launch& launch) {
  launch_ = session.launches - 1;
  uint32_t threads = launch.block.x * launch.block.y * launch.block.z;
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
  requests_.clear();
  requests_.begin_launch(launch_, threads, entered_.size());
  std::fill(entered_.begin(), entered_.end(), 0);
  light_accesses_ = full_accesses_ = 0;
  muted_ = 0;
}

void Tracer::end_launch() {
  end_block();  // of a block that failed
  session.collect(requests_.stats(), entered_,
                  {light_accesses_, full_accesses_, requests_.logged(), requests_.dropped()});
}

void Tracer::begin_block(uint64_t number) {
  number_ = number;
  full_ = session.is_sampled(number);
  if (full_) full_blocks.fetch_add(1, std::memory_order_relaxed);
  order_.begin_block();
  fenced_ = false;
  known_blocks_.clear();
}

void Tracer::end_block() {
  if (!full_) return;
  requests_.merge_all();
  full_ = false;
  full_blocks.fetch_sub(1, std::memory_order_relaxed);
}

void Tracer::enter(const void* pc) {
  if (full_ && !muted_) ++entered_[place(pc)];
}

void Tracer::touch(uintptr_t address, uint32_t bytes, Access access, const void* pc, bool asynchronous) {
  if (address - stacks_ < stack_bytes_ || muted_) return;
  if (address - shared_guard_ < shared_guard_bytes_) {
    uint64_t offset = address - shared_;
    ++(full_ ? full_accesses_ : light_accesses_);
    bool inside = address >= shared_ && offset + bytes <= shared_bytes_;
    if (inside && !full_) return;
    Touch touch{address, bytes, access, asynchronous, place(pc), index_of(self())};
    if (!inside) return report(out_of_bounds, touch, dynamic_shared, static_cast<int64_t>(address - shared_));
    return touch_shared(touch, dynamic_shared, shared_, 0);
  }
  if (address - static_ < static_bytes_) {
    if (address == reinterpret_cast<uintptr_t>(&current) || address == reinterpret_cast<uintptr_t>(&worker)) return;
    ++(full_ ? full_accesses_ : light_accesses_);
    if (!full_) return;
    return touch_static({address, bytes, access, asynchronous, place(pc), index_of(self())});
  }
  touch_global({address, bytes, access, asynchronous, place(pc), 0});
}

void Tracer::touch_static(const Touch& touch) {
  uintptr_t offset = touch.address - static_;
  for (const StaticPlace& variable : session.statics) {
    if (offset < variable.offset || offset + touch.bytes > uint64_t{variable.offset} + variable.bytes) continue;
    if (!variable.is_guard) touch_shared(touch, static_shared, static_, static_cast<uint32_t>((shared_bytes_ + 3) / 4));
    return;
  }
  report(out_of_bounds, touch, static_shared, static_cast<int64_t>(offset));
}

void Tracer::log(const Touch& touch, Operation operation) {
  requests_.log(touch.thread, {touch.address, touch.pc, static_cast<uint16_t>(touch.bytes), static_cast<uint16_t>(operation)});
}

void Tracer::log_meeting(const Thread& thread, Operation operation, uint32_t pc) {
  if (full_) requests_.log(index_of(thread), {0, pc, 0, static_cast<uint16_t>(operation)});
}

void Tracer::touch_shared(const Touch& touch, uint32_t space, uintptr_t start, uint32_t first_cell) {
  uintptr_t begin = touch.address - start, end = begin + touch.bytes;
  for (uintptr_t word = begin & ~uintptr_t{3}; word < end; word += 4) {
    SharedCell& cell = shadow_.at(first_cell + word / 4, order_.epoch(), order_.first_epoch());
    uint8_t mask = mask_in(word, begin, touch.bytes);
    int64_t offset = static_cast<int64_t>(word > begin ? word : begin);
    if (is_read(touch.access) || touch.access == Access::atomic) read_shared(cell, mask, touch, space, offset);
    if (!is_read(touch.access)) write_shared(cell, mask, touch, space, offset);
  }
  log(touch, touch.asynchronous ? async_copy : shared_operation(touch.access));
}

void Tracer::read_shared(SharedCell& cell, uint8_t mask, const Touch& touch, uint32_t space, int64_t offset) {
  Earlier writer{number_, cell.writer, cell.writer_pc, true};
  if (cell.pending & mask) return report(not_waited_for, touch, space, offset, writer);
  if ((cell.written & mask) != mask) report(not_written, touch, space, offset);
  bool both_atomic = cell.atomic && is_atomic(touch.access);
  if (cell.writer != nobody && (cell.by_writer & mask) && !both_atomic &&
      !order_.is_before(cell.writer, cell.writer_clock, touch.thread))
    report(shared_race, touch, space, offset, writer);
  if (!is_read(touch.access)) return;
  uint32_t clock = order_.clock(touch.thread);
  if (cell.reader == nobody || cell.reader == touch.thread) {
    if (cell.reader == nobody) cell.by_readers = 0;
    cell.reader = static_cast<uint16_t>(touch.thread);
    cell.reader_clock = clock;
    cell.reader_pc = touch.pc;
  } else if (cell.other_reader == nobody || cell.other_reader / 32 != touch.thread / 32 || cell.other_reader == touch.thread) {
    cell.other_reader = static_cast<uint16_t>(touch.thread);
    cell.other_reader_clock = clock;
    cell.other_reader_pc = touch.pc;
  }
  cell.by_readers |= mask;
}

void Tracer::write_shared(SharedCell& cell, uint8_t mask, const Touch& touch, uint32_t space, int64_t offset) {
  uint32_t me = touch.thread;
  bool both_atomic = cell.atomic && is_atomic(touch.access);
  if ((cell.pending & mask) && !touch.asynchronous) {
    report(not_waited_for, touch, space, offset, {number_, cell.writer, cell.writer_pc, true});
  } else if (cell.writer != nobody && (cell.by_writer & mask) && !both_atomic &&
             !order_.is_before(cell.writer, cell.writer_clock, me)) {
    report(shared_race, touch, space, offset, {number_, cell.writer, cell.writer_pc, true});
  } else if (cell.by_readers & mask) {
    if (cell.reader != nobody && !order_.is_before(cell.reader, cell.reader_clock, me))
      report(shared_race, touch, space, offset, {number_, cell.reader, cell.reader_pc, false});
    else if (cell.other_reader != nobody && !order_.is_before(cell.other_reader, cell.other_reader_clock, me))
      report(shared_race, touch, space, offset, {number_, cell.other_reader, cell.other_reader_pc, false});
  }
  uint32_t clock = order_.clock(me);
  bool goes_on = cell.writer == me && cell.writer_clock == clock && cell.writer_pc == touch.pc;
  cell.by_writer = static_cast<uint8_t>(goes_on ? cell.by_writer | mask : mask);
  cell.writer = static_cast<uint16_t>(me);
  cell.writer_clock = clock;
  cell.writer_pc = touch.pc;
  cell.atomic = is_atomic(touch.access);
  cell.written |= mask;
  if (touch.asynchronous) cell.pending |= mask;
  if ((cell.by_readers & ~mask) == 0) cell.reader = cell.other_reader = nobody, cell.by_readers = 0;
}

void Tracer::copy(void* to, const void* from, size_t bytes, size_t valid, const void* pc) {
  if (valid) touch(reinterpret_cast<uintptr_t>(from), static_cast<uint32_t>(valid), Access::read, pc);
  touch(reinterpret_cast<uintptr_t>(to), static_cast<uint32_t>(bytes), Access::write, pc, true);
}

// The calling thread has waited for its copy to shared memory: its own from now on, everyone's after a barrier.
void Tracer::copied(void* to, size_t bytes) {
  uintptr_t address = reinterpret_cast<uintptr_t>(to);
  if (!full_) return;
  uintptr_t begin = address - shared_, cell_of_start = 0;
  if (address - static_ < static_bytes_)
    begin = address - static_, cell_of_start = (shared_bytes_ + 3) / 4;
  else if (begin + bytes > shared_bytes_)
    return;
  uint32_t me = index_of(self());
  for (uintptr_t word = begin / 4; word < (begin + bytes + 3) / 4; ++word) {
    SharedCell& cell = shadow_.at(cell_of_start + word, order_.epoch(), order_.first_epoch());
    cell.pending = 0;
    cell.by_writer = 15;
    cell.atomic = 0;
    cell.writer = static_cast<uint16_t>(me);
    cell.writer_clock = order_.clock(me);
  }
}

void Tracer::misaligned_copy(void* to, const void* from, size_t bytes, const void* pc) {
  bool is_destination = reinterpret_cast<uintptr_t>(to) % bytes != 0;
  uintptr_t address = reinterpret_cast<uintptr_t>(is_destination ? to : from);
  misaligned_access(address, static_cast<uint32_t>(bytes), is_destination, pc);
}

void Tracer::touch_global(const Touch& touch) {
  uint32_t count = static_cast<uint32_t>(session.buffers.size());
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t index = last_buffer_ + i < count ? last_buffer_ + i : last_buffer_ + i - count;
    const BufferPlace& place = session.buffers[index].place;
    if (touch.address - (place.address - place.margin) >= place.bytes + 2 * place.margin) continue;
    last_buffer_ = index;
    ++(full_ ? full_accesses_ : light_accesses_);
    Touch found = touch;
    found.thread = index_of(self());
    return touch_buffer(found, index);
  }
}

void Tracer::touch_buffer(const Touch& touch, uint32_t index) {
  const Session::Held& held = session.buffers[index];
  const BufferPlace& place = held.place;
  int64_t offset = static_cast<int64_t>(touch.address - place.address);
  if (offset < 0 || static_cast<uint64_t>(offset) + touch.bytes > place.bytes)
    return report(out_of_bounds, touch, index, offset);
  if (full_) log(touch, global_operation(touch.access));
  for (uint64_t element = offset / place.element_bytes;
       place.covered && element * place.element_bytes < static_cast<uint64_t>(offset) + touch.bytes; ++element)
    if (!place.covered[element])
      return report(outside_tensors, touch, index, static_cast<int64_t>(element * place.element_bytes));
  if (place.is_input) {
    if (!is_read(touch.access)) report(input_written, touch, index, offset);
    return;
  }
  if (is_atomic(touch.access) && fenced_) session.merge_blocks(touch.address, number_, known_blocks_);
  CellLock lock(touch.address);
  for (uint64_t word = offset & ~int64_t{3}; word < static_cast<uint64_t>(offset) + touch.bytes; word += 4) {
    uint8_t mask = mask_in(word, offset, touch.bytes);
    visit(held.shadow->at(word / 4), mask, touch, index, static_cast<int64_t>(word) > offset ? static_cast<int64_t>(word) : offset);
  }
}

bool Tracer::is_before(const Visit& visit, uint16_t thread, uint32_t now) const {
  if (visit.block == number_ + 1) return visit.epoch < order_.epoch() || order_.is_before(thread, visit.clock, now);
  return visit.block - 1 < known_blocks_.size() && known_blocks_[visit.block - 1];
}

void Tracer::visit(GlobalCell& cell, uint8_t mask, const Touch& touch, uint32_t index, int64_t offset) {
  if (cell.launch != static_cast<uint16_t>(launch_ + 1)) {
    cell.launch = static_cast<uint16_t>(launch_ + 1);
    cell.write.block = cell.read.block = 0;
    cell.by_writer = cell.by_readers = cell.many_blocks = 0;
  }
  bool reads = is_read(touch.access) || touch.access == Access::atomic;
  if (reads && (cell.written & mask) != mask) report(not_written, touch, index, offset);
  bool both_atomic = cell.atomic && is_atomic(touch.access);
  uint32_t me = static_cast<uint32_t>(number_ + 1);
  auto conflict = [&](const Visit& other, uint16_t thread, bool is_write) {
    Kind kind = other.block == me ? global_race : block_race;
    report(kind, touch, index, offset, {other.block - 1, thread, other.pc, is_write});
  };
  if (cell.write.block && (cell.by_writer & mask) && !both_atomic && !is_before(cell.write, cell.writer, touch.thread))
    conflict(cell.write, cell.writer, true);
  else if (!is_read(touch.access) && cell.read.block && (cell.by_readers & mask) &&
           !is_before(cell.read, cell.reader, touch.thread))
    conflict(cell.read, cell.reader, false);
  Visit now{me, order_.epoch(), order_.clock(touch.thread), touch.pc};
  if (is_read(touch.access)) {
    // A reader from another block is kept: it conflicts with whatever this block writes.
    if (cell.read.block == 0 || cell.read.block == me) cell.read = now, cell.reader = static_cast<uint16_t>(touch.thread);
    cell.by_readers |= mask;
    return;
  }
  bool goes_on = cell.write.block == me && cell.writer == touch.thread && cell.write.pc == touch.pc;
  cell.by_writer = static_cast<uint8_t>(goes_on ? cell.by_writer | mask : mask);
  cell.write = now;
  cell.writer = static_cast<uint16_t>(touch.thread);
  cell.atomic = is_atomic(touch.access);
  cell.written |= mask;
}

void Tracer::arrive(Barrier& barrier, const Thread& thread, bool waits, const void* pc) {
  unsigned id = static_cast<unsigned>(&barrier - thread.block->barriers);
  uint32_t at = place(pc), index = index_of(thread);
  log_meeting(thread, emulator::trace::barrier, at);
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
  if (!strcmp(name, "ldmatrix")) return;  // its read has been logged
  log_meeting(thread, warp_operation_called(name), place(pc));
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
  if (!strcmp(operation.name, "__syncwarp")) order_.meet(index, operation.arrived);
  if (full_ && operation.arrived == (real & ~warp.exited)) requests_.merge(index / 32);
}

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

void Tracer::report(Kind kind, const Thread& thread, const Thread* other, uint32_t mask) {
  Finding found = finding(kind, place(thread.pc), index_of(thread));
  if (other) found.other_pc = place(other->pc), found.other_thread = index_of(*other);
  found.mask = mask;
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
  found.other_thread = earlier.thread;
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

void begin_launch() { session.begin_launch(); }

void prepare(Worker& worker, Launch& launch) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Tracer>> tracers;
  if (!worker.tracer) {
    std::lock_guard<std::mutex> lock(mutex);
    tracers.push_back(std::make_unique<Tracer>(worker));
    worker.tracer = tracers.back().get();
  }
  worker.tracer->begin_launch(launch);
}

void report_deadlock(const Block& block, const Thread& one, const Thread* other) {
  const Thread* told = &one;
  if (other && other->state == State::at_warp_operation) std::swap(told, other);
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

namespace emulator {

void traced_matrix_row(const void* row) {
  if (trace::Tracer* tracer = trace::here())
    tracer->touch(reinterpret_cast<uintptr_t>(row), 16, trace::Access::matrix_read, __builtin_return_address(0));
}

void traced_atomic(const void* address, size_t bytes) {
  if (trace::Tracer* tracer = trace::here())
    tracer->touch(reinterpret_cast<uintptr_t>(address), static_cast<uint32_t>(bytes), trace::Access::atomic,
                  __builtin_return_address(0));
}

Untraced::Untraced() {
  if (trace::Tracer* tracer = trace::here()) tracer->mute();
}
Untraced::~Untraced() {
  if (trace::Tracer* tracer = trace::here()) tracer->unmute();
}

}  // namespace emulator
