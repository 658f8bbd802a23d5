// TMA's copies: what a box's bytes are, when they move, what is refused.
#include "emulator/tensor_copy.hpp"

#include <string.h>

#include "hooks.hpp"
#include "proxy.hpp"
#include "worker.hpp"

namespace emulator {

namespace {

constexpr unsigned chunk_bytes = 16;
constexpr size_t most_kept = 8;  // groups of a thread's stores that have read but not written

unsigned element_bytes(const TensorMapContent& map) {
  constexpr uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  return map.type < sizeof bytes ? bytes[map.type] : 4;
}

// Where a chunk of 16 bytes goes whose lines are `width` bytes wide.
uintptr_t exchanged(uintptr_t address, unsigned width) { return address ^ (address >> 3 & (width - 16)); }

Region box_of(const void* map, const int* at, int rank, const char* what) {
  Region box{};
  memcpy(static_cast<void*>(&box.map), map, sizeof box.map);
  if (box.map.mark != TensorMapContent::expected_mark) fail_here("%s: this is no tensor map", what);
  if (box.map.rank != rank) fail_here("%s: %d coordinates for a tensor map of %u dimensions", what, rank, box.map.rank);
  box.bytes = element_bytes(box.map);
  const long long first = static_cast<long long>(at[0]) * element_bytes(box.map);  // in bytes
  if (first % 16)
    fail_here("%s: coordinate 0 is %d, %lld bytes, no multiple of 16; an H200 ends loads with an illegal instruction there", what,
              at[0], first);
  for (int i = 0; i < rank; ++i) {
    box.at[i] = at[i];
    box.bytes *= box.map.box[i];
  }
  return box;
}

Region run_of(void* start, int bytes, const char* what) {
  Region run{};
  if (bytes < 0 || bytes % 16) fail_here("%s: %d bytes are not a multiple of 16", what, bytes);
  if (reinterpret_cast<uintptr_t>(start) % 16) fail_here("%s: device memory is not aligned to 16 bytes", what);
  run.start = static_cast<unsigned char*>(start);
  run.bytes = static_cast<unsigned>(bytes);
  return run;
}

// Calls visit(bytes of the region in shared memory, device memory or null, bytes there) for runs of at most `most` bytes;
// the rest of a run, and all of one whose device memory is null, lies out of the tensor.
template <class F>
void visit_rows(const Region& region, unsigned most, F visit) {
  const TensorMapContent& map = region.map;
  if (map.rank == 0) {
    for (unsigned at = 0; at < region.bytes; at += most) {
      unsigned bytes = most < region.bytes - at ? most : region.bytes - at;
      visit(at, region.start + at, 0u, bytes, bytes);
    }
    return;
  }
  const unsigned size = element_bytes(map), row_bytes = map.box[0] * size;
  long long first = region.at[0] < 0 ? -static_cast<long long>(region.at[0]) : 0;  // elements of the row in the tensor
  long long end = static_cast<long long>(map.extent[0]) - region.at[0];
  if (end > map.box[0]) end = map.box[0];
  unsigned rows = row_bytes ? region.bytes / row_bytes : 0;
  for (unsigned row = 0; row < rows; ++row) {
    unsigned rest = row;
    bool inside = first < end;
    long long offset = static_cast<long long>(region.at[0]) * size;
    for (int i = 1; i < map.rank; ++i) {
      long long place = static_cast<long long>(region.at[i]) + rest % map.box[i];
      rest /= map.box[i];
      inside = inside && place >= 0 && place < static_cast<long long>(map.extent[i]);
      offset += place * static_cast<long long>(map.stride[i - 1]);
    }
    unsigned char* start = reinterpret_cast<unsigned char*>(map.address + static_cast<uint64_t>(offset));
    for (unsigned at = 0; at < row_bytes; at += most) {
      unsigned bytes = most < row_bytes - at ? most : row_bytes - at;
      long long from = first * size - at, to = end * size - at;
      if (from < 0) from = 0;
      if (to > bytes) to = bytes;
      if (inside && from < to)
        visit(row * row_bytes + at, start + at, static_cast<unsigned>(from), static_cast<unsigned>(to), bytes);
      else
        visit(row * row_bytes + at, static_cast<unsigned char*>(nullptr), 0u, 0u, bytes);
    }
  }
}

#ifdef EMULATOR_TRACE
// Of 32 bytes of device memory, that the copy touches.
uint64_t sectors_of(const Region& region) {
  uint64_t sectors = 0;
  visit_rows(region, 1 << 15, [&](unsigned, unsigned char* row, unsigned first, unsigned end, unsigned) {
    uintptr_t start = reinterpret_cast<uintptr_t>(row);
    if (row) sectors += (start + end - 1) / 32 - (start + first) / 32 + 1;
  });
  return sectors;
}
#endif

unsigned swizzle_of(const Region& region) { return region.map.rank ? region.map.swizzle : chunk_bytes; }

void check_box(const Region& box, uintptr_t shared, const char* what) {
  check_shared(shared, box.bytes, box.map.rank ? 128 : 16, what);
  if (!box.map.rank) return;
  const unsigned row_bytes = box.map.box[0] * element_bytes(box.map), width = box.map.swizzle;
  if (row_bytes % 16) fail_here("%s: a box's row of %u bytes is not a multiple of 16", what, row_bytes);
  if (width != 16 && row_bytes > width)
    fail_here("%s: a box's row of %u bytes is wider than its swizzle of %u", what, row_bytes, width);
}

// NaN in the tensor's type, or zeros.
void fill_outside(const Region& from, unsigned char* to, unsigned bytes) {
  memset(to, 0, bytes);
  if (!from.map.nan) return;
  const unsigned size = element_bytes(from.map);
  for (unsigned at = 0; at < bytes; at += size) memset(to + at, 0xff, size);
}

void load_now(const Load& load) {
  visit_rows(load.from, chunk_bytes, [&](unsigned at, unsigned char* from, unsigned first, unsigned end, unsigned bytes) {
    unsigned char chunk[chunk_bytes];
    fill_outside(load.from, chunk, bytes);
    if (from) memcpy(chunk + first, from + first, end - first);
    memcpy(reinterpret_cast<void*>(exchanged(load.to + at, swizzle_of(load.from))), chunk, bytes);
  });
}

void read_store(Store& store) {
  store.is_read = true;
  store.content.resize(store.to.bytes);
  for (unsigned at = 0; at < store.to.bytes; at += chunk_bytes) {
    uintptr_t from = exchanged(store.from + at, swizzle_of(store.to));
    memcpy(&store.content[at], reinterpret_cast<const void*>(from), chunk_bytes);
  }
  EMULATOR_TRACED(worker->tracer->async_read_ended(store.from, store.to.bytes);)
}

void add_float(float* to, float value) {
  uint32_t* bits = reinterpret_cast<uint32_t*>(to);
  uint32_t old = __atomic_load_n(bits, __ATOMIC_RELAXED), desired;
  do {
    float sum;
    memcpy(&sum, &old, 4);
    sum += value;
    memcpy(&desired, &sum, 4);
  } while (!__atomic_compare_exchange_n(bits, &old, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

void write_store(const Store& store) {
  visit_rows(store.to, chunk_bytes, [&](unsigned at, unsigned char* to, unsigned first, unsigned end, unsigned) {
    if (!to) return;
    const unsigned char* from = &store.content[at];
    EMULATOR_TRACED(worker->tracer->async_wrote(to + first, end - first, store.adds, store.pc);)
    if (!store.adds) {
      memcpy(to + first, from + first, end - first);
      return;
    }
    for (unsigned i = first; i < end; i += 4) {
      float value;
      memcpy(&value, from + i, 4);
      add_float(reinterpret_cast<float*>(to + i), value);
    }
  });
}

void begin_load(Region from, uintptr_t to, uintptr_t barrier_address, const char* what) {
  Asynchronous& state = asynchronous();
  check_box(from, to, what);
  unsigned barrier = 0;
  while (barrier < state.barriers.size() && state.barriers[barrier].address != barrier_address) ++barrier;
  if (barrier == state.barriers.size()) fail_here("%s: nobody has initialised its mbarrier", what);
  EMULATOR_TRACED(worker->tracer->load_began(barrier_address, state.barriers[barrier].is_fenced, to, from.bytes, barrier,
                                             self().pc);)
  EMULATOR_TRACED(visit_rows(from, 1 << 15, [&](unsigned, unsigned char* row, unsigned first, unsigned end, unsigned) {
    if (row) worker->tracer->async_reads(row + first, end - first, self().pc);
  });)
  EMULATOR_TRACED(worker->tracer->count_load(from.bytes, sectors_of(from), self().pc);)
  memset(reinterpret_cast<void*>(to), self().block->garbage, from.bytes);
  state.loads.push_back({from, to, barrier, &self()});
}

void begin_store(Region to, uintptr_t from, bool adds, const char* what) {
  check_box(to, from, what);
  if (adds && to.map.rank && to.map.type != 7) fail_here("%s: the emulator adds fp32 alone", what);
  std::vector<StoreGroup>& groups = asynchronous().stores[&self() - self().block->threads];
  if (groups.empty()) groups.emplace_back();
  // What lies out of the tensor goes nowhere: nobody need have written it.
  EMULATOR_TRACED(visit_rows(to, chunk_bytes, [&](unsigned at, unsigned char* row, unsigned first, unsigned end, unsigned) {
    if (row) worker->tracer->check_async_read(exchanged(from + at, swizzle_of(to)) + first, end - first, self().pc);
  });)
  EMULATOR_TRACED(worker->tracer->async_read_began(from, to.bytes, self().pc);)
  const void* pc = nullptr;
  EMULATOR_TRACED(pc = self().pc;)
  EMULATOR_TRACED(worker->tracer->count_store(to.bytes, sectors_of(to), adds, pc);)
  groups.back().push_back({to, from, adds, false, {}, pc});
}

}  // namespace

bool make_oldest_load(Block& block) {
  if (!block.worker->asynchronous) return false;
  Asynchronous& state = *block.worker->asynchronous;
  if (state.loads.empty()) return false;
  Load load = std::move(state.loads.front());
  state.loads.pop_front();
  Thread* running = *block.current;
  *block.current = load.by;  // who is told to have met a fault
  load_now(load);
  EMULATOR_TRACED(block.worker->tracer->load_ended(load.to, load.from.bytes, load.barrier);)
  *block.current = running;
  Mbarrier& barrier = state.barriers[load.barrier];
  barrier.bytes -= load.from.bytes;
  end_phase_if_complete(barrier, block);
  return true;
}

void finish_stores(Thread& thread) {
  std::vector<StoreGroup>& groups = asynchronous(*thread.block).stores[&thread - thread.block->threads];
  for (const StoreGroup& group : groups)
    for (const Store& store : group) {
      if (!store.is_read) fail("a thread ended before its bulk stores had read shared memory: bulk_wait_read<0> is missing");
      write_store(store);
    }
  groups.clear();
}

void tensor_load(uintptr_t to, const void* map, uintptr_t barrier, const int* at, int rank) {
  EMULATOR_CALLED_FROM_HERE;
  begin_load(box_of(map, at, rank, "tensor_load"), to, barrier, "tensor_load");
}

void bulk_load(uintptr_t to, const void* from, int bytes, uintptr_t barrier) {
  EMULATOR_CALLED_FROM_HERE;
  begin_load(run_of(const_cast<void*>(from), bytes, "bulk_load"), to, barrier, "bulk_load");
}

void tensor_store(const void* map, const int* at, int rank, uintptr_t from, bool adds) {
  EMULATOR_CALLED_FROM_HERE;
  const char* what = adds ? "tensor_add" : "tensor_store";
  for (int i = 0; i < rank; ++i)
    if (at[i] < 0) fail_here("%s: coordinate %d is %d; an H200 ends with an illegal instruction there", what, i, at[i]);
  begin_store(box_of(map, at, rank, what), from, adds, what);
}

void bulk_store(void* to, uintptr_t from, int bytes, bool adds) {
  EMULATOR_CALLED_FROM_HERE;
  const char* what = adds ? "bulk_add" : "bulk_store";
  begin_store(run_of(to, bytes, what), from, adds, what);
}

int cluster_rank() {
  const Block& block = *self().block;
  dim3 at = block.index, size = block.cluster;
  return static_cast<int>((at.z % size.z * size.y + at.y % size.y) * size.x + at.x % size.x);
}

int cluster_blocks() {
  dim3 size = self().block->cluster;
  return static_cast<int>(size.x * size.y * size.z);
}

void require_own_block(bool is_own) {
  EMULATOR_CALLED_FROM_HERE;
  if (!is_own) fail_here("the emulator executes a cluster's blocks one by one; the kernel reaches another block");
}

void cluster_barrier() {
  EMULATOR_CALLED_FROM_HERE;
  if (cluster_blocks() > 1)
    fail_here("the emulator executes a cluster's blocks one by one; the kernel waits for %d others", cluster_blocks() - 1);
}

void bulk_commit() {
  std::vector<StoreGroup>& groups = asynchronous().stores[&self() - self().block->threads];
  if (groups.empty()) groups.emplace_back();
  groups.emplace_back();
}

void bulk_wait(unsigned latest, bool only_reads) {
  std::vector<StoreGroup>& groups = asynchronous().stores[&self() - self().block->threads];
  size_t closed = groups.empty() ? 0 : groups.size() - 1;
  size_t ended = closed > latest ? closed - latest : 0;
  for (size_t i = 0; i < ended; ++i)
    for (Store& store : groups[i]) {
      if (!store.is_read) read_store(store);
      if (!only_reads) write_store(store);
    }
  for (; only_reads && ended > most_kept; --ended, groups.erase(groups.begin()))
    for (const Store& store : groups.front()) write_store(store);
  if (!only_reads) groups.erase(groups.begin(), groups.begin() + ended);
}

}  // namespace emulator
