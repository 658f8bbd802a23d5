// Shared memory that asynchronous instructions read and write, and what orders them: mbarriers, waits, proxy fences.
#include "access.hpp"
#include "session.hpp"
#include "tracer.hpp"

namespace emulator::trace {

// Calls visit(cell, space, offset) for the words of shared memory that hold these bytes, in blocks traced in full; stops
// where visit says so by returning true.
template <class F>
void Tracer::each_cell(uintptr_t address, uint32_t bytes, F visit) {
  if (!full_) return;
  uint32_t space = dynamic_shared;
  uintptr_t begin = address - shared_, first_cell = 0;
  if (address - static_ < static_bytes_)
    space = static_shared, begin = address - static_, first_cell = (shared_bytes_ + 3) / 4;
  else if (begin + bytes > shared_bytes_)
    return;
  for (uintptr_t word = begin / 4; word < (begin + bytes + 3) / 4; ++word)
    if (visit(shadow_.at(first_cell + word, order_.epoch(), order_.first_epoch()), space, static_cast<int64_t>(4 * word)))
      return;
}

void Tracer::mbarrier_made(unsigned number, uintptr_t address, const void* pc) {
  touch(address, 8, Access::write, pc);
  if (number >= made_.size()) made_.resize(number + 1);
  uint32_t me = index_of(running());
  made_[number] = {order_.epoch(), order_.clock(me), me, place(pc)};
}

// Whether the running thread may rely on an mbarrier: it made it, or has met the thread that did.
void Tracer::check_made(unsigned number, uintptr_t address, const void* pc) {
  const Made& made = made_[number];
  Touch touch{address, 8, Access::atomic, false, place(pc), index_of(running())};
  if (made.epoch == order_.epoch() && !order_.is_before(made.thread, made.clock, touch.thread))
    each_cell(address, 4, [&](const SharedCell&, uint32_t space, int64_t offset) {
      report(shared_race, touch, space, offset, {number_, made.thread, made.pc, true});
      return true;
    });
}

void Tracer::mbarrier_arrived(unsigned number, uintptr_t address, const void* pc) {
  if (!full_) return;
  check_made(number, address, pc);
  const uint32_t me = index_of(running());
  order_.arrive_at_mbarrier(number, me);
  note_overtaken(me);
}

void Tracer::mbarrier_left(unsigned number, uintptr_t address, const void* pc) {
  if (!full_) return;
  check_made(number, address, pc);
  order_.leave_mbarrier(number, index_of(running()));
}

void Tracer::phase_ended(unsigned number) {
  if (full_) order_.end_phase_of_mbarrier(number);
}

void Tracer::fence_async() {
  const uint32_t me = index_of(running());
  fenced_at_[me] = ++fences_;
  took(me);
}

namespace {

constexpr size_t registers = 255;  // of a thread: what it loaded before as many other words has been taken

}  // namespace

void Tracer::note_load(SharedCell& cell, const Touch& touch) {
  if (made_.empty()) return;
  std::vector<Load>& loads = loads_[touch.thread];
  if (loads.size() == registers) loads.erase(loads.begin(), loads.begin() + registers / 2);
  loads.push_back({&cell, order_.clock(touch.thread), touch.pc});
}

// An arrival does not wait for loads that its warp has under way; seen on an H200: where products keep shared memory busy,
// TMA, which waited for the arrival, overwrote what was still to be loaded.
void Tracer::note_overtaken(uint32_t thread) {
  uint32_t first = thread / 32 * 32;
  for (uint32_t lane = first; lane < first + 32 && lane < loads_.size(); ++lane)
    for (const Load& load : loads_[lane])
      if (lane == thread || order_.is_before(lane, load.clock, thread))
        load.cell->overtaken = static_cast<uint16_t>(lane), load.cell->overtaken_pc = load.pc;
}

void Tracer::report_unfenced(const SharedCell& cell, const Touch& touch, uint32_t space, int64_t offset) {
  report(not_fenced, touch, space, offset, {number_, cell.generic_writer, cell.writer_pc, true});
}

void Tracer::load_began(uintptr_t mbarrier, bool is_fenced_barrier, uintptr_t to, uint32_t bytes, unsigned number, const void* pc) {
  if (!full_) return;
  Touch touch{to, bytes, Access::write, true, place(pc), index_of(running())};
  if (!is_fenced_barrier) {
    Touch counts = touch;
    counts.bytes = 8;
    each_cell(mbarrier, 8, [&](const SharedCell&, uint32_t space, int64_t offset) {
      report(not_fenced, counts, space, offset);
      return true;
    });
  }
  if (number >= copier_.size()) copier_.resize(number + 1);
  copier_[number] = static_cast<uint16_t>(touch.thread);
  bool told = false;
  each_cell(to, bytes, [&](SharedCell& cell, uint32_t space, int64_t offset) {
    if (!told && cell.pending) {
      report(not_waited_for, touch, space, offset, {number_, cell.writer, cell.writer_pc, true});
      told = true;
    } else if (!told && !is_fenced(cell)) {
      report_unfenced(cell, touch, space, offset);
      told = true;
    } else if (!told && cell.overtaken != nobody) {
      report(overwritten, touch, space, offset, {number_, cell.overtaken, cell.overtaken_pc, false});
      told = true;
    }
    write_shared(cell, 15, touch, space, offset);
    cell.generic_writer = nobody;
    return false;
  });
}

void Tracer::async_reads(const void* from, uint32_t bytes, const void* pc) {
  touch(reinterpret_cast<uintptr_t>(from), bytes, Access::read, pc, true);
}

namespace {

constexpr uint32_t copied_bytes = 16;  // what counts of copies are told apart by
constexpr uint32_t line_bytes = 128;   // that shared memory moves at a time

}  // namespace

void Tracer::count_load(uint32_t bytes, uint64_t sectors, const void* pc) {
  if (!full_) return;
  requests_.add(place(pc), global_load, copied_bytes, {1, 1, sectors, 0});
  requests_.add(place(pc), async_copy, copied_bytes, {1, 1, 0, (bytes + line_bytes - 1) / line_bytes});
}

void Tracer::count_store(uint32_t bytes, uint64_t sectors, bool adds, const void* pc) {
  if (full_)
    requests_.add(place(pc), adds ? global_atomic : global_store, copied_bytes,
                  {1, 1, sectors, (bytes + line_bytes - 1) / line_bytes});
}

// As products of warps, 16 rows and 8 columns each: a quarter of the group's rows is a warp's.
void Tracer::count_product(uint32_t columns, uint32_t depth, uint32_t shared_bytes, const void* pc) {
  if (full_) requests_.add(place(pc), tensor, 16 * 8 * depth, {columns / 2, 16 * columns, 0, shared_bytes / line_bytes});
}

void Tracer::load_ended(uintptr_t to, uint32_t bytes, unsigned number) {
  if (!full_) return;
  uint32_t copier = order_.copies_of(number);
  each_cell(to, bytes, [&](SharedCell& cell, uint32_t, int64_t) {
    cell.pending = 0;
    cell.by_writer = 15;
    cell.atomic = 0;
    cell.writer = static_cast<uint16_t>(copier);
    cell.writer_clock = order_.clock(copier);
    return false;
  });
  order_.arrive_at_mbarrier(number, copier);
}

void Tracer::check_async_read(uintptr_t from, uint32_t bytes, const void* pc) {
  Touch touch{from, bytes, Access::read, true, place(pc), index_of(running())};
  each_cell(from, bytes, [&](SharedCell& cell, uint32_t space, int64_t offset) {
    Earlier writer{number_, cell.writer, cell.writer_pc, true};
    if (cell.pending)
      report(not_waited_for, touch, space, offset, writer);
    else if (cell.written != 15)
      report(not_written, touch, space, offset);
    else if (cell.writer != nobody && !order_.is_before(cell.writer, cell.writer_clock, touch.thread))
      report(shared_race, touch, space, offset, writer);
    else if (!is_fenced(cell))
      report_unfenced(cell, touch, space, offset);
    else
      return false;
    return true;
  });
}

void Tracer::async_read_began(uintptr_t from, uint32_t bytes, const void* pc) {
  if (!full_) return;
  uint16_t me = static_cast<uint16_t>(index_of(running()));
  uint32_t at = place(pc);
  each_cell(from, bytes, [&](SharedCell& cell, uint32_t, int64_t) {
    if (cell.reads_under_way < 255) ++cell.reads_under_way;
    cell.reads_for = me;
    cell.reads_pc = at;
    return false;
  });
}

void Tracer::async_read_ended(uintptr_t from, uint32_t bytes) {
  uint32_t me = index_of(running());
  each_cell(from, bytes, [&](SharedCell& cell, uint32_t, int64_t) {
    if (cell.reads_under_way) --cell.reads_under_way;
    note_reader(cell, 15, me, cell.reads_pc);
    return false;
  });
}

void Tracer::async_wrote(const void* to, uint32_t bytes, bool adds, const void* pc) {
  touch(reinterpret_cast<uintptr_t>(to), bytes, adds ? Access::atomic : Access::write, pc, true);
}

void Tracer::product_read(uintptr_t from, unsigned group) {
  each_cell(from, 16, [&](SharedCell& cell, uint32_t, int64_t) {
    if (cell.reads_under_way) --cell.reads_under_way;
    note_reader(cell, 15, order_.products_of(group), cell.reads_pc);
    return false;
  });
}

void Tracer::product_ended(unsigned group) {
  if (full_) order_.advance(order_.products_of(group));
}

void Tracer::products_waited_for(unsigned group) {
  if (full_) order_.meet_products(group, index_of(running()));
}

}  // namespace emulator::trace
