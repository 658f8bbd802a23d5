#include "requests.hpp"

#include <algorithm>

namespace emulator::trace {

namespace {

constexpr uint32_t sector_bytes = 32;

// Different words that the lanes of one group want of the bank that they want most of.
uint32_t most_of_a_bank(const uint64_t address[32], uint32_t lanes, uint32_t bytes) {
  uint64_t words[32][32];
  uint32_t count[32] = {}, most = 0;
  uint32_t words_each = bytes < 4 ? 1 : bytes / 4;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    uint64_t first = address[__builtin_ctz(rest)] >> 2;
    for (uint64_t word = first; word < first + words_each; ++word) {
      uint32_t bank = word & 31, i = 0;
      while (i < count[bank] && words[bank][i] != word) ++i;
      if (i == count[bank] && i < 32) words[bank][count[bank]++] = word;
      most = std::max(most, count[bank]);
    }
  }
  return most;
}

// Whether lanes that differ in bit `bit` alone read the same address (or one of them takes no part).
bool in_pairs(const uint64_t address[32], uint32_t lanes, uint32_t bit) {
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    uint32_t lane = __builtin_ctz(rest), other = lane ^ bit;
    if ((lanes >> other & 1) && address[other] != address[lane]) return false;
  }
  return true;
}

bool served_together(const uint64_t address[32], uint32_t lanes, bool is_load) {
  return is_load && (in_pairs(address, lanes, 1) || in_pairs(address, lanes, 2));
}

void add_group(Wavefronts& sum, const uint64_t address[32], uint32_t lanes, uint32_t bytes) {
  if (!lanes) return;
  uint32_t most = most_of_a_bank(address, lanes, bytes);
  sum.taken += most;
  sum.ideal += 1;
  sum.worst = std::max(sum.worst, most);
}

void add_halves(Wavefronts& sum, const uint64_t address[32], uint32_t lanes, uint32_t bytes, uint32_t half, bool is_load) {
  uint32_t low = half == 16 ? 0x0000ffffu : 0x00ff00ffu;
  if (served_together(address, lanes, is_load)) return add_group(sum, address, lanes, bytes);
  add_group(sum, address, lanes & low, bytes);
  add_group(sum, address, lanes & ~low, bytes);
}

struct Sectors {
  uint32_t taken, ideal;
};

Sectors count_sectors(const uint64_t address[32], uint32_t lanes, uint32_t bytes) {
  uint64_t sectors[64];
  uint64_t distinct[32];
  uint32_t count = 0, addresses = 0;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    uint64_t at = address[__builtin_ctz(rest)];
    for (uint64_t sector = at / sector_bytes; sector <= (at + bytes - 1) / sector_bytes; ++sector)
      if (count < 64 && std::find(sectors, sectors + count, sector) == sectors + count) sectors[count++] = sector;
    if (std::find(distinct, distinct + addresses, at) == distinct + addresses) distinct[addresses++] = at;
  }
  return {count, (addresses * bytes + sector_bytes - 1) / sector_bytes};
}

bool is_global(uint32_t operation) { return operation <= global_atomic; }
bool is_shared(uint32_t operation) {
  return (operation >= shared_load && operation <= shared_atomic) || operation == matrix_load || operation == async_copy;
}

}  // namespace

// Four bytes and less: all lanes at once. Eight: half a warp at a time; sixteen: a quarter. Two halves (or the two
// quarters of a half) are served together when their lanes come in pairs that read the same address.
Wavefronts shared_wavefronts(const uint64_t address[32], uint32_t lanes, uint32_t bytes, bool is_load) {
  Wavefronts sum{};
  if (bytes <= 4) {
    add_group(sum, address, lanes, bytes);
  } else if (bytes <= 8) {
    add_halves(sum, address, lanes, bytes, 16, is_load);
  } else {
    add_halves(sum, address, lanes & 0x0000ffffu, bytes, 8, is_load);
    add_halves(sum, address, lanes & 0xffff0000u, bytes, 8, is_load);
  }
  return sum;
}

void Requests::begin_launch(uint32_t launch, uint32_t threads, size_t code_bytes) {
  launch_ = launch;
  if (logs_.size() < threads) logs_.resize((threads + 31) / 32 * 32);
  for (std::vector<Entry16>& log : logs_) log.clear();
  slots_.assign(code_bytes, 0);
  dropped_ = logged_ = 0;
}

void Requests::clear() {
  stats_.clear();
  patterns_.clear();
}

uint32_t Requests::slot(const Entry16& entry) {
  uint32_t at = entry.pc < slots_.size() ? entry.pc : 0;
  uint32_t found = slots_[at];
  if (found && stats_[found - 1].operation == entry.operation && stats_[found - 1].bytes == entry.bytes)
    return found - 1;
  for (uint32_t i = 0; found && i < stats_.size(); ++i)  // one instruction, several kinds of memory: rare
    if (stats_[i].launch == launch_ && stats_[i].pc == entry.pc && stats_[i].operation == entry.operation &&
        stats_[i].bytes == entry.bytes)
      return i;
  Stat stat{};
  stat.pc = entry.pc;
  stat.launch = launch_;
  stat.operation = entry.operation;
  stat.bytes = entry.bytes;
  stats_.push_back(stat);
  patterns_.emplace_back();
  slots_[at] = static_cast<uint32_t>(stats_.size());
  return slots_[at] - 1;
}

void Requests::add(uint32_t pc, Operation operation, uint32_t bytes, const Amount& amount) {
  Stat& stat = stats_[slot({0, pc, static_cast<uint16_t>(bytes), static_cast<uint16_t>(operation)})];
  stat.requests += amount.requests;
  stat.lanes += amount.lanes;
  stat.sectors += amount.sectors;
  stat.ideal_sectors += amount.sectors;
  stat.wavefronts += amount.wavefronts;
  stat.ideal_wavefronts += amount.wavefronts;
}

void Requests::emit(const Entry16& entry, uint32_t lanes, const uint64_t address[32]) {
  uint32_t index = slot(entry);
  Stat& stat = stats_[index];
  Pattern& pattern = patterns_[index];
  stat.requests += 1;
  stat.lanes += __builtin_popcount(lanes);
  if (!is_global(entry.operation) && !is_shared(entry.operation)) return;
  uint64_t first = address[__builtin_ctz(lanes)];
  uint32_t phase = first & (is_global(entry.operation) ? sector_bytes - 1 : 3);
  bool repeats = pattern.lanes == lanes && pattern.phase == phase;
  for (uint32_t rest = lanes; repeats && rest; rest &= rest - 1) {
    uint32_t lane = __builtin_ctz(rest);
    repeats = pattern.relative[lane] == static_cast<int64_t>(address[lane] - first);
  }
  if (!repeats) {
    pattern.lanes = lanes;
    pattern.phase = phase;
    for (uint32_t lane = 0; lane < 32; ++lane) pattern.relative[lane] = static_cast<int64_t>(address[lane] - first);
    if (is_global(entry.operation)) {
      Sectors found = count_sectors(address, lanes, entry.bytes);
      pattern.taken = pattern.worst = found.taken;
      pattern.ideal = found.ideal;
    } else {
      bool is_load = entry.operation == shared_load;
      Wavefronts found = shared_wavefronts(address, lanes, entry.bytes, is_load);
      pattern.taken = found.taken, pattern.ideal = found.ideal, pattern.worst = found.worst;
    }
  }
  (is_global(entry.operation) ? stat.sectors : stat.wavefronts) += pattern.taken;
  (is_global(entry.operation) ? stat.ideal_sectors : stat.ideal_wavefronts) += pattern.ideal;
  stat.worst = std::max(stat.worst, pattern.worst);
  if (is_shared(entry.operation) && pattern.taken > pattern.ideal) ++stat.conflicted;
}

void Requests::merge_alike(const std::vector<Entry16>* logs, uint32_t lanes, size_t entries) {
  uint64_t address[32];
  for (size_t i = 0; i < entries; ++i) {
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
      uint32_t lane = __builtin_ctz(rest);
      address[lane] = logs[lane][i].address;
    }
    emit(logs[__builtin_ctz(lanes)][i], lanes, address);
  }
}

void Requests::merge_diverged(const std::vector<Entry16>* logs, uint32_t lanes) {
  size_t next[32] = {};
  uint64_t address[32];
  for (;;) {
    const Entry16* first = nullptr;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
      uint32_t lane = __builtin_ctz(rest);
      if (next[lane] == logs[lane].size()) {
        lanes &= ~(1u << lane);
        continue;
      }
      const Entry16& entry = logs[lane][next[lane]];
      if (!first || entry.pc < first->pc) first = &entry;
    }
    if (!first) return;
    uint32_t together = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
      uint32_t lane = __builtin_ctz(rest);
      const Entry16& entry = logs[lane][next[lane]];
      if (entry.pc != first->pc || entry.operation != first->operation || entry.bytes != first->bytes) continue;
      together |= 1u << lane;
      address[lane] = entry.address;
      ++next[lane];
    }
    emit(*first, together, address);
  }
}

void Requests::merge(uint32_t warp) {
  std::vector<Entry16>* logs = &logs_[size_t{warp} * 32];
  uint32_t lanes = 0;
  for (uint32_t lane = 0; lane < 32; ++lane)
    if (!logs[lane].empty()) lanes |= 1u << lane;
  if (!lanes) return;
  const std::vector<Entry16>& first = logs[__builtin_ctz(lanes)];
  bool alike = true;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const std::vector<Entry16>& log = logs[__builtin_ctz(rest)];
    logged_ += log.size();
    alike = alike && log.size() == first.size();
    for (size_t i = 0; alike && i < log.size(); ++i)
      alike = log[i].pc == first[i].pc && log[i].operation == first[i].operation && log[i].bytes == first[i].bytes;
  }
  if (alike)
    merge_alike(logs, lanes, first.size());
  else
    merge_diverged(logs, lanes);
  for (uint32_t lane = 0; lane < 32; ++lane) logs[lane].clear();
}

void Requests::merge_all() {
  for (uint32_t warp = 0; warp < logs_.size() / 32; ++warp) merge(warp);
}

}  // namespace emulator::trace
