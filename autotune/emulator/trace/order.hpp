// Which accesses of a block's threads are ordered: by barriers of the whole block, by `__syncwarp`, by named barriers.
//
// Every thread has a clock that its synchronisations advance, and knows of other threads up to which of their clocks it
// has met them. A barrier of the whole block orders everything, so it just begins a new epoch in which nobody has met
// anybody. Within an epoch only lanes of one warp meet, unless a named barrier or an mbarrier is used; then all pairs are
// kept, and what runs asynchronously takes part: the copies of each mbarrier and the products of each warp group have a
// clock like a thread's, behind those of the threads.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace emulator::trace {

class Order {
 public:
  void begin_launch(uint32_t threads);
  void begin_block();

  uint32_t epoch() const { return epoch_; }              // grows from barrier to barrier and from block to block
  uint32_t first_epoch() const { return first_epoch_; }  // of this block
  uint32_t clock(uint32_t thread) const { return clocks_[thread]; }

  // Whether what `other` did at its `clock`, in the current epoch, comes before what `thread` does now.
  bool is_before(uint32_t other, uint32_t clock, uint32_t thread) const {
    if (other == thread) return true;
    if (wide_) return met_[size_t{thread} * columns() + other] >= clock;
    return other / 32 == thread / 32 && met_[size_t{thread} * 32 + other % 32] >= clock;
  }

  void meet_all();                                        // a barrier of the whole block
  void meet(uint32_t first, uint32_t lanes);              // lanes of the warp whose lane 0 is thread `first`
  void arrive(unsigned barrier, uint32_t thread);         // at a named barrier
  void leave(unsigned barrier, uint32_t thread);          // after waiting there
  void end_phase(unsigned barrier);

  // mbarriers and what completes on them. Threads meet what had arrived when a phase ended.
  uint32_t copies_of(unsigned mbarrier) const { return threads_ + mbarrier % copiers; }
  uint32_t products_of(unsigned group) const { return threads_ + copiers + group; }
  void arrive_at_mbarrier(unsigned mbarrier, uint32_t thread);  // a thread, or its copies
  void end_phase_of_mbarrier(unsigned mbarrier);
  void leave_mbarrier(unsigned mbarrier, uint32_t thread);
  void advance(uint32_t thread) {
    if (!wide_) widen();
    ++clocks_[thread];
  }
  void meet_products(unsigned group, uint32_t thread);

 private:
  static constexpr uint32_t copiers = 64, multipliers = 8;
  struct Meeting {
    uint32_t epoch;
    std::vector<uint32_t> gathered, ended;
  };
  Meeting& meeting(unsigned mbarrier);

  void widen();
  uint32_t* row(uint32_t thread) { return &met_[size_t{thread} * columns()]; }
  uint32_t columns() const { return wide_ ? threads_ + copiers + multipliers : 32; }

  uint32_t threads_ = 0, epoch_ = 0, first_epoch_ = 0;
  bool wide_ = false;
  std::vector<uint32_t> clocks_;
  std::vector<uint32_t> met_;        // by thread and lane of its warp; wide: by thread and thread
  std::vector<uint32_t> gathered_[16];
  std::vector<Meeting> meetings_;  // by mbarrier
};

}  // namespace emulator::trace
