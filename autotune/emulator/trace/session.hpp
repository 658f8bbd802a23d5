// What the tracers of all OS threads share: the buffers, which blocks are traced in full, what was found and counted.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "findings.hpp"
#include "shadow.hpp"

namespace emulator::trace {

struct Totals {
  uint64_t light_accesses, full_accesses;  // to shared and global memory, in blocks traced lightly and in full
  uint64_t logged, dropped;                // of the latter: entries of the lanes' logs, and those for which there was no room
  uint64_t first_accesses;                 // of both: in block 0
};

class Session {
 public:
  void open(const BufferPlace* places, uint32_t count);
  void begin_launch(bool overlaps);
  void sample(const uint64_t* blocks, uint32_t count);  // for the next launch, in ascending order
  bool is_sampled(uint64_t block) const;
  void set_written(uint32_t buffer) { buffers[buffer].shadow->set_written(); }
  void add(const Finding& finding);
  void collect(const std::vector<Stat>& stats, const std::vector<uint32_t>& entered, const Totals& totals);
  bool may_run(uint32_t launch, bool waited) const;  // beside the last one; launches are counted from 1
  void note_waits(bool in_order);                    // by a block; in order: before it let the next launch begin
  void merge_blocks(uintptr_t address, uint64_t block, std::vector<bool>& known);

  struct Held {
    BufferPlace place;
    std::unique_ptr<GlobalShadow> shadow;  // none for inputs
  };
  std::vector<Held> buffers;
  std::vector<StaticPlace> statics;
  uint32_t launches = 0;  // begun
  struct Overlap {
    bool exists;                       // the last launch may have begun before others had ended
    uint32_t first, first_after_wait;  // of those, for threads that have not waited, and for those that have
  };
  Overlap overlap{};
  std::vector<Finding> findings;
  std::vector<Stat> stats;
  std::vector<uint32_t> entered;  // of the last launch
  Totals totals{};

 private:
  void begin_overlap(bool overlaps);
  std::atomic<bool> waited_{false}, waited_in_order_{false};  // blocks of the last launch
  std::mutex mutex_;
  std::vector<uint64_t> sampled_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>, size_t> known_findings_;
  std::map<uintptr_t, std::vector<bool>> published_;  // by address of an atomic operation: blocks that wrote before it
};

extern Session session;

}  // namespace emulator::trace
