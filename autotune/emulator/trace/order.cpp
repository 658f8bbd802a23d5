#include "order.hpp"

#include <algorithm>

namespace emulator::trace {

void Order::begin_launch(uint32_t threads) {
  threads_ = threads;
  wide_ = false;
  clocks_.assign(threads + copiers + multipliers, 1);
  met_.assign(size_t{threads} * 32, 0);
  for (auto& gathered : gathered_) gathered.clear();
}

void Order::begin_block() {
  meet_all();
  first_epoch_ = epoch_;
  for (auto& gathered : gathered_) gathered.clear();
  meetings_.clear();
}

void Order::meet_all() {
  ++epoch_;
  std::fill(clocks_.begin(), clocks_.end(), 1);
  std::fill(met_.begin(), met_.end(), 0);
}

void Order::meet(uint32_t first, uint32_t lanes) {
  uint32_t width = columns();
  std::vector<uint32_t> all(width, 0);
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    uint32_t thread = first + __builtin_ctz(rest);
    const uint32_t* mine = row(thread);
    for (uint32_t i = 0; i < width; ++i) all[i] = std::max(all[i], mine[i]);
    uint32_t self = wide_ ? thread : thread % 32;
    all[self] = std::max(all[self], clocks_[thread]);
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    uint32_t thread = first + __builtin_ctz(rest);
    std::copy(all.begin(), all.end(), row(thread));
    ++clocks_[thread];
  }
}

void Order::widen() {
  wide_ = true;
  std::vector<uint32_t> narrow(size_t{threads_} * columns(), 0);
  narrow.swap(met_);
  for (uint32_t thread = 0; thread < threads_; ++thread)
    for (uint32_t lane = 0; lane < 32 && thread / 32 * 32 + lane < threads_; ++lane)
      met_[size_t{thread} * columns() + thread / 32 * 32 + lane] = narrow[size_t{thread} * 32 + lane];
}

void Order::arrive(unsigned barrier, uint32_t thread) {
  if (!wide_) widen();
  std::vector<uint32_t>& gathered = gathered_[barrier];
  if (gathered.empty()) gathered.assign(columns(), 0);
  const uint32_t* mine = row(thread);
  for (uint32_t i = 0; i < columns(); ++i) gathered[i] = std::max(gathered[i], mine[i]);
  gathered[thread] = std::max(gathered[thread], clocks_[thread]);
  ++clocks_[thread];
}

void Order::leave(unsigned barrier, uint32_t thread) {
  const std::vector<uint32_t>& gathered = gathered_[barrier];
  uint32_t* mine = row(thread);
  for (uint32_t i = 0; i < gathered.size(); ++i) mine[i] = std::max(mine[i], gathered[i]);
}

void Order::end_phase(unsigned barrier) { gathered_[barrier].clear(); }

Order::Meeting& Order::meeting(unsigned mbarrier) {
  if (!wide_) widen();
  if (mbarrier >= meetings_.size()) meetings_.resize(mbarrier + 1);
  Meeting& found = meetings_[mbarrier];
  if (found.epoch != epoch_ || found.gathered.empty()) {
    found.epoch = epoch_;
    found.gathered.assign(columns(), 0);
    found.ended.assign(columns(), 0);
  }
  return found;
}

void Order::arrive_at_mbarrier(unsigned mbarrier, uint32_t thread) {
  std::vector<uint32_t>& gathered = meeting(mbarrier).gathered;
  if (thread < threads_) {
    const uint32_t* mine = row(thread);
    for (uint32_t i = 0; i < columns(); ++i) gathered[i] = std::max(gathered[i], mine[i]);
  }
  gathered[thread] = std::max(gathered[thread], clocks_[thread]);
  ++clocks_[thread];
}

void Order::end_phase_of_mbarrier(unsigned mbarrier) {
  Meeting& met = meeting(mbarrier);
  met.ended = met.gathered;
}

void Order::leave_mbarrier(unsigned mbarrier, uint32_t thread) {
  const std::vector<uint32_t>& ended = meeting(mbarrier).ended;
  uint32_t* mine = row(thread);
  for (uint32_t i = 0; i < columns(); ++i) mine[i] = std::max(mine[i], ended[i]);
}

void Order::meet_products(unsigned group, uint32_t thread) {
  if (!wide_) widen();
  uint32_t& known = row(thread)[products_of(group)];
  known = std::max(known, clocks_[products_of(group)] - 1);
}

}  // namespace emulator::trace
