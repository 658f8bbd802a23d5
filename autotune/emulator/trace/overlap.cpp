// What a launch touches that may begin before others have ended. One that overlaps begins when every block of the one before
// has let it, or ended; what a block of that one had waited for by then has ended, too. A thread that comes after a wait of
// its block sees all that the launch before did, and what came before that if any of its blocks waited at all.
#include "access.hpp"
#include "session.hpp"
#include "tracer.hpp"

namespace emulator::trace {

void Session::begin_overlap(bool overlaps) {
  uint32_t before = launches;  // its number, counted from 1
  Overlap last = overlap;
  overlap.exists = overlaps;
  overlap.first = last.exists && !waited_in_order_ ? last.first : before;
  overlap.first_after_wait = last.exists && !waited_ ? last.first : before;
  waited_ = waited_in_order_ = false;
}

bool Session::may_run(uint32_t launch, bool waited) const {
  if (waited) return launch >= overlap.first_after_wait && launch + 1 < launches;
  return launch >= overlap.first && launch < launches;
}

void Session::note_waits(bool in_order) {
  waited_ = true;
  if (in_order) waited_in_order_ = true;
}

void Tracer::waited_for_previous() {
  uint32_t thread = index_of(running());
  waits_.push_back({order_.epoch(), order_.clock(thread), thread});
}

void Tracer::let_next_begin() {
  if (!has_waited(index_of(running()))) let_next_early_ = true;
}

bool Tracer::has_waited(uint32_t thread) const {
  if (!full_) return !waits_.empty();  // mbarriers order nothing there
  for (const Wait& wait : waits_)
    if (wait.epoch < order_.epoch() || order_.is_before(wait.thread, wait.clock, thread)) return true;
  return false;
}

void Tracer::begin_block_of_overlap() {
  waits_.clear();
  let_next_early_ = false;
}

void Tracer::end_block_of_overlap() {
  if (!waits_.empty()) session.note_waits(!let_next_early_);
}

// An access to what an earlier launch may still write or, if this writes, read.
void Tracer::check_overlap(const GlobalCell& cell, const Touch& touch, uint32_t index, int64_t offset) {
  bool waited = has_waited(touch.thread);
  uint32_t now = launch_ + 1, earlier = cell.wrote;
  auto runs = [&](uint32_t launch) { return launch != 0 && launch != now && session.may_run(launch, waited); };
  if (!runs(earlier)) earlier = is_read(touch.access) ? 0 : cell.launch;
  if (!runs(earlier)) return;
  Finding found = finding(not_ended, touch.pc, touch.thread);
  found.is_write = !is_read(touch.access);
  found.space = index;
  found.bytes = touch.bytes;
  found.offset = offset;
  found.mask = earlier - 1;
  session.add(found);
}

}  // namespace emulator::trace
