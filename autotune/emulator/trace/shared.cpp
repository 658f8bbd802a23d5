// Accesses to shared memory, and copies that fill it asynchronously.
#include "access.hpp"
#include "session.hpp"
#include "tracer.hpp"

namespace emulator::trace {

namespace {

Operation shared_operation(Access access) {
  if (access == Access::matrix_read) return matrix_load;
  return is_read(access) ? shared_load : access == Access::write ? shared_store : shared_atomic;
}

}  // namespace

void Tracer::touch_static(const Touch& touch) {
  uintptr_t offset = touch.address - static_;
  for (const StaticPlace& variable : session.statics) {
    if (offset < variable.offset || offset + touch.bytes > uint64_t{variable.offset} + variable.bytes) continue;
    if (!variable.is_guard) touch_shared(touch, static_shared, static_, static_cast<uint32_t>((shared_bytes_ + 3) / 4));
    return;
  }
  report(out_of_bounds, touch, static_shared, static_cast<int64_t>(offset));
}

void Tracer::touch_shared(const Touch& touch, uint32_t space, uintptr_t start, uint32_t first_cell) {
  uintptr_t begin = touch.address - start, end = begin + touch.bytes;
  for (uintptr_t word = begin & ~uintptr_t{3}; word < end; word += 4) {
    SharedCell& cell = shadow_.at(first_cell + word / 4, order_.epoch(), order_.first_epoch());
    uint8_t mask = mask_in(word, begin, touch.bytes);
    int64_t offset = static_cast<int64_t>(word > begin ? word : begin);
    if (is_read(touch.access) || touch.access == Access::atomic) read_shared(cell, mask, touch, space, offset);
    if (!is_read(touch.access)) write_shared(cell, mask, touch, space, offset);
    if (touch.access == Access::read) note_load(cell, touch);
  }
  if (!is_read(touch.access) && !touch.asynchronous) took(touch.thread);
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
  if (is_read(touch.access)) note_reader(cell, mask, touch.thread, touch.pc);
}

void Tracer::note_reader(SharedCell& cell, uint8_t mask, uint32_t thread, uint32_t pc) {
  uint32_t clock = order_.clock(thread);
  if (cell.reader == nobody || cell.reader == thread) {
    if (cell.reader == nobody) cell.by_readers = 0;
    cell.reader = static_cast<uint16_t>(thread);
    cell.reader_clock = clock;
    cell.reader_pc = pc;
  } else if (cell.other_reader == nobody || cell.other_reader / 32 != thread / 32 || cell.other_reader == thread) {
    cell.other_reader = static_cast<uint16_t>(thread);
    cell.other_reader_clock = clock;
    cell.other_reader_pc = pc;
  }
  cell.by_readers |= mask;
}

void Tracer::write_shared(SharedCell& cell, uint8_t mask, const Touch& touch, uint32_t space, int64_t offset) {
  uint32_t me = touch.thread;
  bool both_atomic = cell.atomic && is_atomic(touch.access);
  if (cell.reads_under_way) {
    report(overwritten, touch, space, offset, {number_, cell.reads_for, cell.reads_pc, false});
  } else if ((cell.pending & mask) && !touch.asynchronous) {
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
  cell.overtaken = nobody;
  cell.atomic = is_atomic(touch.access);
  cell.written |= mask;
  cell.generic_writer = static_cast<uint16_t>(me);
  cell.generic_serial = fences_;
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
    cell.generic_serial = fences_;
  }
}

void Tracer::misaligned_copy(void* to, const void* from, size_t bytes, const void* pc) {
  bool is_destination = reinterpret_cast<uintptr_t>(to) % bytes != 0;
  uintptr_t address = reinterpret_cast<uintptr_t>(is_destination ? to : from);
  misaligned_access(address, static_cast<uint32_t>(bytes), is_destination, pc);
}

}  // namespace emulator::trace
