// From the accesses of single lanes to the requests of warps: coalescing and bank conflicts.
//
// The lanes of a warp run one after the other, so each keeps a log. Where all lanes have met, the logs are merged: of
// the lanes' next entries those with the smallest code address go first, together. In structured code that is how
// diverged lanes come together again.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

#include "findings.hpp"

namespace emulator::trace {

struct Entry16 {
  uint64_t address;
  uint32_t pc;
  uint16_t bytes;
  uint16_t operation;
};

// Shared memory: how many passes a request takes.
struct Wavefronts {
  uint32_t taken, ideal, worst;
};
Wavefronts shared_wavefronts(const uint64_t address[32], uint32_t lanes, uint32_t bytes, bool is_load);

class Requests {
 public:
  void begin_launch(uint32_t launch, uint32_t threads, size_t code_bytes);
  void log(uint32_t thread, const Entry16& entry) {
    std::vector<Entry16>& log = logs_[thread];
    if (log.size() < most_entries)
      log.push_back(entry);
    else
      ++dropped_;
  }
  void merge(uint32_t warp);
  void merge_all();
  // Requests that lanes do not log: those of asynchronous instructions, which one thread or a whole warp group makes.
  struct Amount {
    uint64_t requests, lanes, sectors, wavefronts;
  };
  void add(uint32_t pc, Operation operation, uint32_t bytes, const Amount& amount);

  uint64_t dropped() const { return dropped_; }
  uint64_t logged() const { return logged_; }
  const std::vector<Stat>& stats() const { return stats_; }
  void clear();

 private:
  // What the last request of an instruction looked like, relative to its first address: requests mostly repeat it.
  struct Pattern {
    uint32_t lanes = 0;
    uint32_t phase = 0;
    int64_t relative[32];
    uint32_t taken = 0, ideal = 0, worst = 0;
  };
  static constexpr size_t most_entries = 1 << 16;

  uint32_t slot(const Entry16& entry);
  void emit(const Entry16& entry, uint32_t lanes, const uint64_t address[32]);
  void merge_alike(const std::vector<Entry16>* logs, uint32_t lanes, size_t entries);
  void merge_diverged(const std::vector<Entry16>* logs, uint32_t lanes);

  uint32_t launch_ = 0;
  uint64_t dropped_ = 0, logged_ = 0;
  std::vector<std::vector<Entry16>> logs_;
  std::vector<uint32_t> slots_;  // by code offset: index into stats_ + 1
  std::vector<Stat> stats_;
  std::vector<Pattern> patterns_;
};

}  // namespace emulator::trace
