#include "session.hpp"

#include <algorithm>

#include "tracer.hpp"

namespace emulator::trace {

Session session;

void Session::open(const BufferPlace* places, uint32_t count) {
  buffers.clear();
  for (uint32_t i = 0; i < count; ++i)
    buffers.push_back({places[i], places[i].is_input ? nullptr : std::make_unique<GlobalShadow>(places[i].bytes)});
  launches = 0;
  overlap = Overlap{};
  findings.clear();
  known_findings_.clear();
}

void Session::begin_launch(bool overlaps) {
  begin_overlap(overlaps);
  ++launches;
  stats.clear();
  entered.clear();
  totals = Totals{};
  published_.clear();
}

void Session::sample(const uint64_t* blocks, uint32_t count) { sampled_.assign(blocks, blocks + count); }

bool Session::is_sampled(uint64_t block) const { return std::binary_search(sampled_.begin(), sampled_.end(), block); }

void Session::add(const Finding& finding) {
  constexpr size_t most = 2000;
  std::lock_guard<std::mutex> lock(mutex_);
  auto key = std::make_tuple(finding.kind, finding.launch, finding.pc, finding.other_pc, finding.space);
  auto known = known_findings_.find(key);
  if (known != known_findings_.end()) {
    ++findings[known->second].count;
  } else if (findings.size() < most) {
    known_findings_[key] = findings.size();
    findings.push_back(finding);
  }
}

void Session::collect(const std::vector<Stat>& more, const std::vector<uint32_t>& runs, const Totals& sum) {
  std::lock_guard<std::mutex> lock(mutex_);
  stats.insert(stats.end(), more.begin(), more.end());  // of several OS threads: Python adds up
  entered.resize(std::max(entered.size(), runs.size()));
  for (size_t i = 0; i < runs.size(); ++i) entered[i] += runs[i];
  totals.light_accesses += sum.light_accesses;
  totals.full_accesses += sum.full_accesses;
  totals.logged += sum.logged;
  totals.dropped += sum.dropped;
  totals.first_accesses += sum.first_accesses;
}

// The calling block has executed a fence and now an atomic operation: blocks that did so on this address before are
// known to it from now on, and it to those that will.
void Session::merge_blocks(uintptr_t address, uint64_t block, std::vector<bool>& known) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<bool>& published = published_[address];
  size_t size = std::max({known.size(), published.size(), static_cast<size_t>(block + 1)});
  known.resize(size);
  published.resize(size);
  for (size_t i = 0; i < size; ++i) known[i] = published[i] = known[i] || published[i];
  published[block] = true;
}

}  // namespace emulator::trace

extern "C" {

using namespace emulator::trace;

__attribute__((visibility("default"))) void emulator_trace_open(const BufferPlace* places, uint32_t count) {
  session.open(places, count);
}
__attribute__((visibility("default"))) void emulator_trace_statics(const StaticPlace* places, uint32_t count) {
  session.statics.assign(places, places + count);
}
__attribute__((visibility("default"))) void emulator_trace_sample(const uint64_t* blocks, uint32_t count) {
  session.sample(blocks, count);
}
__attribute__((visibility("default"))) void emulator_trace_set_written(uint32_t buffer) { session.set_written(buffer); }

__attribute__((visibility("default"))) uint64_t emulator_trace_findings(const Finding** findings) {
  *findings = session.findings.data();
  return session.findings.size();
}
// Of the last launch.
__attribute__((visibility("default"))) uint64_t emulator_trace_stats(const Stat** stats) {
  *stats = session.stats.data();
  return session.stats.size();
}
__attribute__((visibility("default"))) uint64_t emulator_trace_entered(const uint32_t** entered) {
  *entered = session.entered.data();
  return session.entered.size();
}
__attribute__((visibility("default"))) void emulator_trace_totals(Totals* totals) { *totals = session.totals; }

}
