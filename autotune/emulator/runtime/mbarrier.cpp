// mbarriers: arrivals, bytes, phases.
#include "emulator/mbarrier.hpp"

#include "hooks.hpp"
#include "proxy.hpp"
#include "worker.hpp"

namespace emulator {

namespace {

constexpr int64_t most_bytes = (1 << 20) - 1;  // that a phase can owe

unsigned find_mbarrier(uintptr_t address, const char* what) {
  const std::vector<Mbarrier>& barriers = asynchronous().barriers;
  for (unsigned i = 0; i < barriers.size(); ++i)
    if (barriers[i].address == address) return i;
  check_shared(address, 8, 8, what);
  fail_here("%s: nobody has initialised the mbarrier at byte %lld of shared memory", what,
       static_cast<long long>(address - reinterpret_cast<uintptr_t>(self().block->shared)));
}

bool has_ended(const Mbarrier& barrier, unsigned parity) { return (barrier.phase & 1) != (parity & 1); }

}  // namespace

void end_phase_if_complete(Mbarrier& barrier, Block& block) {
  if (barrier.missing || barrier.bytes) return;
  EMULATOR_TRACED(block.worker->tracer->phase_ended(static_cast<unsigned>(&barrier - asynchronous(block).barriers.data()));)
  ++barrier.phase;
  barrier.missing = barrier.arrivals;
  block.ready.take_all(barrier.waiting);
}

void mbarrier_init(uintptr_t address, unsigned arrivals) {
  EMULATOR_CALLED_FROM_HERE;
  check_shared(address, 8, 8, "mbarrier_init");
  if (arrivals == 0 || arrivals > most_bytes) fail_here("mbarrier_init: %u arrivals; there are 1 to 1048575", arrivals);
  std::vector<Mbarrier>& barriers = asynchronous().barriers;
  unsigned number = 0;
  while (number < barriers.size() && barriers[number].address != address) ++number;
  if (number == barriers.size()) barriers.emplace_back();
  if (barriers[number].waiting.first) fail_here("mbarrier_init: threads wait at this mbarrier");
  barriers[number] = {address, arrivals, arrivals, 0, 0, {}, &self(), false};
  EMULATOR_TRACED(worker->tracer->mbarrier_made(number, address, self().pc);)
}

void fence_mbarrier_init() {
  for (Mbarrier& barrier : asynchronous().barriers)
    if (barrier.made_by == &self()) barrier.is_fenced = true;
}

void fence_async() {
  fence_mbarrier_init();
  EMULATOR_TRACED(worker->tracer->fence_async();)
}

void mbarrier_arrive(uintptr_t address, unsigned bytes) {
  EMULATOR_CALLED_FROM_HERE;
  unsigned number = find_mbarrier(address, "mbarrier_arrive");
  Mbarrier& barrier = asynchronous().barriers[number];
  EMULATOR_TRACED(worker->tracer->mbarrier_arrived(number, address, self().pc);)
  if (!barrier.missing)
    fail_here("mbarrier_arrive: phase %llu has all of its %u arrivals and waits for %lld bytes",
           static_cast<unsigned long long>(barrier.phase), barrier.arrivals, static_cast<long long>(barrier.bytes));
  barrier.bytes += bytes;
  if (barrier.bytes > most_bytes)
    fail_here("mbarrier_arrive: %lld bytes expected; an mbarrier counts up to 1048575", static_cast<long long>(barrier.bytes));
  --barrier.missing;
  end_phase_if_complete(barrier, *self().block);
}

bool mbarrier_try_wait(uintptr_t address, unsigned parity) {
  EMULATOR_CALLED_FROM_HERE;
  unsigned number = find_mbarrier(address, "mbarrier_try_wait");
  if (!has_ended(asynchronous().barriers[number], parity)) yield();
  if (!has_ended(asynchronous().barriers[number], parity)) return false;
  EMULATOR_TRACED(worker->tracer->mbarrier_left(number, address, self().pc);)
  return true;
}

void mbarrier_wait(uintptr_t address, unsigned parity, Place place) {
  EMULATOR_CALLED_FROM_HERE;
  unsigned number = find_mbarrier(address, "mbarrier_wait");
  Thread& thread = self();
  if (!has_ended(asynchronous().barriers[number], parity)) {
    thread.state = State::at_mbarrier;
    thread.waits_in = "mbarrier_wait";
    thread.waits_mask = number << 1 | (parity & 1);
    thread.place = place;
    asynchronous().barriers[number].waiting.push(&thread);
    suspend(thread);
  }
  EMULATOR_TRACED(worker->tracer->mbarrier_left(number, address, thread.pc);)
}

}  // namespace emulator
