// What is remembered of every four bytes of memory: which of them were written, by whom, and who read them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <vector>

namespace emulator::trace {

constexpr uint16_t nobody = 0xffff;

// An earlier access that a later one conflicts with.
struct Earlier {
  uint64_t block;
  uint32_t thread;
  uint32_t pc;
  bool is_write;
};

struct SharedCell {
  uint32_t epoch;
  uint8_t written;   // bytes that this block has written
  uint8_t by_writer; // bytes of the last write
  uint8_t by_readers;
  uint8_t pending;   // bytes that a copy under way will write
  uint16_t writer, reader, other_reader;
  uint8_t atomic;    // whether the last write was
  uint8_t reads_under_way;   // by wgmma and bulk stores
  uint16_t generic_writer;   // whose ordinary write was the last; nobody: a TMA load's was
  uint16_t reads_for;        // the thread that began the latest of the reads under way
  uint16_t overtaken;        // whose load an arrival at an mbarrier may have overtaken
  uint32_t generic_serial;   // when that was: the fences executed before
  uint32_t reads_pc, overtaken_pc;
  uint32_t writer_clock, reader_clock, other_reader_clock;
  uint32_t writer_pc, reader_pc, other_reader_pc;
};

class SharedShadow {
 public:
  void reserve(size_t cells) {
    if (cells > cells_.size()) cells_.resize(cells);
  }
  // The cell, with what was remembered from other epochs (and other blocks) forgotten.
  SharedCell& at(size_t index, uint32_t epoch, uint32_t first_epoch) {
    SharedCell& cell = cells_[index];
    if (cell.epoch != epoch) {
      if (cell.epoch < first_epoch) {
        cell.written = cell.pending = cell.reads_under_way = 0;
        cell.generic_writer = nobody;
      }
      cell.writer = cell.reader = cell.other_reader = cell.overtaken = nobody;
      cell.epoch = epoch;
    }
    return cell;
  }

 private:
  std::vector<SharedCell> cells_;
};

// One thread's access to global memory: which block, and when in the block's order.
struct Visit {
  uint32_t block;  // 0: none; else its number + 1
  uint32_t epoch;
  uint32_t clock;
  uint32_t pc;
};

struct GlobalCell {
  uint16_t launch;  // of the visits below; launches are counted from 1
  uint8_t written;
  uint8_t by_writer, by_readers;
  uint8_t atomic;  // whether the last write was
  uint16_t wrote;  // the last launch that did
  uint16_t writer, reader;
  Visit write, read;
};

// A buffer of the plan; Python says where it lies.
struct BufferPlace {
  uint64_t address;
  uint64_t bytes;
  uint64_t margin;           // bytes before and behind that may be touched without a fault
  const uint8_t* covered;    // by element: whether a tensor holds it; null: all
  uint32_t element_bytes;
  uint32_t is_input;
};

// A static __shared__ variable, by its offset among them; a guard is the compiler's own and no memory of the kernel.
struct StaticPlace {
  uint32_t offset, bytes, is_guard;
};

// Memory of cells that begins as zeros and costs only what is touched.
class GlobalShadow {
 public:
  explicit GlobalShadow(size_t bytes);
  ~GlobalShadow();
  GlobalShadow(const GlobalShadow&) = delete;
  GlobalCell& at(size_t index) { return cells_[index]; }
  void set_written();

 private:
  GlobalCell* cells_;
  size_t count_;
};

// Neighbouring cells share one of many locks, as blocks run on several OS threads.
class CellLock {
 public:
  explicit CellLock(uintptr_t address);
  ~CellLock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag& flag_;
};

}  // namespace emulator::trace
