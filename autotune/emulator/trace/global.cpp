// Accesses to the buffers of the plan.
#include "access.hpp"
#include "session.hpp"
#include "tracer.hpp"

namespace emulator::trace {

namespace {

Operation global_operation(Access access) {
  return is_read(access) ? global_load : access == Access::write ? global_store : global_atomic;
}

}  // namespace

void Tracer::touch_global(const Touch& touch) {
  uint32_t count = static_cast<uint32_t>(session.buffers.size());
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t index = last_buffer_ + i < count ? last_buffer_ + i : last_buffer_ + i - count;
    const BufferPlace& place = session.buffers[index].place;
    if (touch.address - (place.address - place.margin) >= place.bytes + 2 * place.margin) continue;
    last_buffer_ = index;
    ++(full_ ? full_accesses_ : light_accesses_);
    Touch found = touch;
    found.thread = index_of(running());
    if (full_ && !is_read(touch.access) && !touch.asynchronous) took(found.thread);
    return touch_buffer(found, index);
  }
}

void Tracer::touch_buffer(const Touch& touch, uint32_t index) {
  const Session::Held& held = session.buffers[index];
  const BufferPlace& place = held.place;
  int64_t offset = static_cast<int64_t>(touch.address - place.address);
  if (offset < 0 || static_cast<uint64_t>(offset) + touch.bytes > place.bytes)
    return report(out_of_bounds, touch, index, offset);
  if (full_ && !touch.asynchronous) log(touch, global_operation(touch.access));
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
  if (session.overlap.exists) check_overlap(cell, touch, index, offset);
  if (cell.launch != static_cast<uint16_t>(launch_ + 1)) {
    cell.launch = static_cast<uint16_t>(launch_ + 1);
    cell.write.block = cell.read.block = 0;
    cell.by_writer = cell.by_readers = 0;
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
    // A reader from another block is kept: it conflicts with whatever this block writes of the bytes that it has read.
    if (cell.read.block == 0 || cell.read.block == me) {
      cell.read = now, cell.reader = static_cast<uint16_t>(touch.thread);
      cell.by_readers |= mask;
    }
    return;
  }
  bool goes_on = cell.write.block == me && cell.writer == touch.thread && cell.write.pc == touch.pc;
  cell.by_writer = static_cast<uint8_t>(goes_on ? cell.by_writer | mask : mask);
  cell.write = now;
  cell.writer = static_cast<uint16_t>(touch.thread);
  cell.atomic = is_atomic(touch.access);
  cell.written |= mask;
  cell.wrote = cell.launch;
}

}  // namespace emulator::trace
