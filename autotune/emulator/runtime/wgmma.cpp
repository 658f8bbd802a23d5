// wgmma: operands from descriptors or registers, products computed late, accumulators handed out when they are waited for.
#include <string.h>

#include <cmath>

#include "emulator/convert.hpp"
#include "emulator/half.hpp"
#include "emulator/warp_group.hpp"
#include "hooks.hpp"
#include "proxy.hpp"
#include "worker.hpp"

namespace emulator {

namespace {

typedef float Float8 __attribute__((vector_size(32)));

constexpr unsigned group_threads = 128, rows = 64, most_columns = 256;
constexpr unsigned most_registers = 65536;  // of a multiprocessor

WarpGroup& group_of(const Thread& thread) {
  return asynchronous(*thread.block).groups[(&thread - thread.block->threads) / group_threads];
}

WgmmaThread& part_of(const Thread& thread) { return asynchronous(*thread.block).wgmma[&thread - thread.block->threads]; }

unsigned depth(Operand type) { return type == Operand::tf32 ? 8 : 16; }

// What a descriptor says.
struct Tile {
  uintptr_t start;
  uintptr_t leading, stride;
  unsigned swizzle;  // width in bytes; 16: none
};

// The place in shared memory whose lowest 18 bits are those.
uintptr_t find_start(const Worker& here, uintptr_t low) {
  constexpr uintptr_t window = (uintptr_t{1} << 18) - 1;
  const uintptr_t dynamic = reinterpret_cast<uintptr_t>(here.block.shared);
  const uintptr_t fixed = reinterpret_cast<uintptr_t>(here.static_shared);
  const uintptr_t in_dynamic = (low - dynamic) & window, in_fixed = (low - fixed) & window;
  if (in_dynamic < here.block.shared_bytes) return dynamic + in_dynamic;
  if (here.static_shared && in_fixed < here.static_shared_bytes) return fixed + in_fixed;
  fail_here("wgmma: a descriptor's address lies in no shared memory of the block (%zu bytes of it are dynamic)",
            here.block.shared_bytes);
}

Tile decode(const Worker& here, uint64_t descriptor) {
  constexpr unsigned widths[] = {16, 128, 64, 32};
  if (descriptor >> 49 & 7)
    fail_here("wgmma: a descriptor's base offset is not 0: align its tile to eight lines of the swizzle");
  auto field = [&](int shift) { return static_cast<uintptr_t>(descriptor >> shift & 0x3fff) << 4; };
  return {find_start(here, field(0)), field(16), field(32), widths[descriptor >> 62]};
}

// Calls visit(row or column, k, address) for the operand's 16-byte chunks: neighbouring k, or, transposed, neighbouring
// rows or columns. `first` and `count` are of rows or columns, multiples of 8.
template <class F>
void visit_chunks(const Tile& tile, bool transposed, unsigned first, unsigned count, F visit) {
  auto at = [&](uintptr_t address) { return address ^ (address >> 3 & (tile.swizzle - 16)); };
  const uintptr_t width = tile.swizzle;
  if (!transposed) {
    const uintptr_t next = width == 16 ? tile.leading : 16;
    for (unsigned row = first; row < first + count; ++row)
      for (unsigned half = 0; half < 2; ++half)
        visit(row, half, at(tile.start + row / 8 * tile.stride + row % 8 * width + half * next));
    return;
  }
  for (unsigned chunk = first / 8; chunk < (first + count) / 8; ++chunk)
    for (unsigned k = 0; k < 16; ++k) {
      const uintptr_t in_line = width / 16;  // chunks
      const uintptr_t across = width == 16 ? chunk * tile.stride : chunk / in_line * tile.leading + chunk % in_line * 16;
      visit(8 * chunk, k, at(tile.start + across + k / 8 * (width == 16 ? tile.leading : tile.stride) + k % 8 * width));
    }
}

float widened(Operand type, uint16_t bits) {
  if (type == Operand::bf16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
  __half value;
  memcpy(static_cast<void*>(&value), &bits, 2);
  return __half2float(value);
}

float as_tf32(uint32_t bits) {
  bits &= 0xffffe000u;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

// element(row or column, k) = value, of an operand in shared memory.
template <class F>
void read_tile(uint64_t descriptor, Operand type, bool transposed, unsigned count, F element) {
  const Tile tile = decode(*self().block->worker, descriptor);
  visit_chunks(tile, transposed, 0, count, [&](unsigned line, unsigned k, uintptr_t address) {
    check_shared(address, 16, 16, "wgmma reads");
    if (type == Operand::tf32) {
      uint32_t values[4];
      memcpy(values, reinterpret_cast<const void*>(address), 16);
      for (unsigned i = 0; i < 4; ++i) element(line, 4 * k + i, as_tf32(values[i]));
      return;
    }
    uint16_t values[8];
    memcpy(values, reinterpret_cast<const void*>(address), 16);
    for (unsigned i = 0; i < 8; ++i)
      transposed ? element(line + i, k, widened(type, values[i])) : element(line, 8 * k + i, widened(type, values[i]));
  });
}

// A from registers: mma's fragments, 16 rows a warp.
void read_registers(const Product& product, float (&a)[rows][16]) {
  for (unsigned thread = 0; thread < group_threads; ++thread) {
    const unsigned lane = thread % 32, row = thread / 32 * 16 + lane / 4;
    for (unsigned i = 0; i < 4; ++i) {
      const uint32_t both = product.registers[thread][i];
      float* line = a[row + i % 2 * 8];
      if (product.shape.type == Operand::tf32) {
        line[lane % 4 + i / 2 * 4] = as_tf32(both);
        continue;
      }
      line[lane % 4 * 2 + i / 2 * 8] = widened(product.shape.type, static_cast<uint16_t>(both));
      line[lane % 4 * 2 + i / 2 * 8 + 1] = widened(product.shape.type, static_cast<uint16_t>(both >> 16));
    }
  }
}

// Exact products, added up in fp32 in ascending order of k; the hardware's order and rounding are its own.
void compute(const Product& product) {
  const WgmmaShape& shape = product.shape;
  const unsigned columns = shape.columns, deep = depth(shape.type);
  float a[rows][16];
  alignas(32) float b[16][most_columns];
  if (product.from_registers)
    read_registers(product, a);
  else
    read_tile(product.a, shape.type, shape.a_transposed, rows, [&](unsigned m, unsigned k, float value) { a[m][k] = value; });
  read_tile(product.b, shape.type, shape.b_transposed, columns, [&](unsigned n, unsigned k, float value) { b[k][n] = value; });
  for (unsigned row = 0; row < rows; ++row) {
    float* const* quad = &product.d[row / 16 * 32 + row % 8 * 4];  // the four threads that hold this row
    for (unsigned block = 0; block < columns / 8; ++block) {
      const unsigned at = 4 * block + row % 16 / 8 * 2;
      alignas(32) float held[8] = {};
      for (unsigned i = 0; product.accumulate && i < 4; ++i) memcpy(&held[2 * i], &quad[i][at], 8);
      Float8 sum = *reinterpret_cast<const Float8*>(held);
      for (unsigned k = 0; k < deep; ++k) sum += a[row][k] * *reinterpret_cast<const Float8*>(&b[k][8 * block]);
      *reinterpret_cast<Float8*>(held) = sum;
      for (unsigned i = 0; i < 4; ++i) memcpy(&quad[i][at], &held[2 * i], 8);
    }
  }
}

#ifdef EMULATOR_TRACE
// Calls visit(address) for all 16-byte chunks of a product's operands in shared memory; of A, those of one warp's rows (all:
// warp 4).
template <class F>
void visit_operands(const Product& product, unsigned warp, F visit) {
  const Worker& here = *self().block->worker;
  auto each = [&](unsigned, unsigned, uintptr_t address) { visit(address); };
  if (!product.from_registers)
    visit_chunks(decode(here, product.a), product.shape.a_transposed, warp < 4 ? 16 * warp : 0, warp < 4 ? 16 : rows, each);
  visit_chunks(decode(here, product.b), product.shape.b_transposed, 0, product.shape.columns, each);
}
#endif

void compute_until(WarpGroup& group, uint64_t end) {
  for (; group.computed < end; ++group.computed) {
    const Product& product = group.products[group.computed - group.first];
    compute(product);
    EMULATOR_TRACED(unsigned number = static_cast<unsigned>(&group - asynchronous().groups.data());
                    visit_operands(product, 4, [&](uintptr_t address) { worker->tracer->product_read(address, number); });
                    worker->tracer->product_ended(number);)
  }
  while (!group.products.empty() && group.first < group.computed) {
    group.products.pop_front();
    ++group.first;
  }
}

constexpr uint32_t untouched = 0xffffffffu;  // of accumulators under way: NaN

// The hidden place of a thread's accumulators while products change them; what it has for its own is NaN from here on.
float* take_accumulators(WgmmaThread& mine, float* d, unsigned count) {
  for (Accumulators& held : mine.under_way)
    if (held.d == d && held.count == count) {
      held.last = mine.issued;
      return held.values.get();
    }
  if (!mine.is_fenced) fail_here("wgmma: these accumulators are not behind a wgmma_fence");
  Accumulators taken{d, std::make_unique<float[]>(count), count, mine.issued};
  memcpy(taken.values.get(), d, count * sizeof(float));
  memset(d, 0xff, count * sizeof(float));
  mine.under_way.push_back(std::move(taken));
  return mine.under_way.back().values.get();
}

void hand_out(WgmmaThread& mine, uint64_t end) {
  for (size_t i = 0; i < mine.under_way.size();) {
    Accumulators& held = mine.under_way[i];
    if (held.last >= end) {
      ++i;
      continue;
    }
    for (unsigned at = 0; at < held.count; ++at)
      if (convert::bits_of(held.d[at]) != untouched) fail_here("wgmma: accumulators were written while a product was under way");
    memcpy(held.d, held.values.get(), held.count * sizeof(float));
    mine.under_way.erase(mine.under_way.begin() + i);
  }
}

bool is_alike(const Product& one, const WgmmaShape& shape, bool from_registers, uint64_t a, uint64_t b, bool accumulate) {
  return one.shape.type == shape.type && one.shape.columns == shape.columns && one.shape.a_transposed == shape.a_transposed &&
         one.shape.b_transposed == shape.b_transposed && one.from_registers == from_registers &&
         (from_registers || one.a == a) && one.b == b && one.accumulate == accumulate;
}

}  // namespace

void wgmma(const WgmmaShape& shape, float* d, const uint32_t* registers, uint64_t a, uint64_t b, bool accumulate) {
  EMULATOR_CALLED_FROM_HERE;
  Thread& thread = self();
  WgmmaThread& mine = part_of(thread);
  WarpGroup& group = group_of(thread);
  const unsigned index = static_cast<unsigned>(&thread - thread.block->threads), place = index % group_threads;
  if (index - place + group_threads > thread.block->threads_total) fail_here("wgmma: the warp group has fewer than 128 threads");
  if (registers && !mine.is_fenced) fail_here("wgmma: A's registers are not behind a wgmma_fence");
  if (mine.issued - group.first == group.products.size()) {
    Product made{};
    made.shape = shape;
    made.from_registers = registers != nullptr;
    made.accumulate = accumulate;
    made.a = a, made.b = b;
    EMULATOR_TRACED(made.pc = thread.pc;)
    EMULATOR_TRACED(visit_operands(made, 4, [&](uintptr_t address) { worker->tracer->async_read_began(address, 16, made.pc); });)
    EMULATOR_TRACED(unsigned read = shape.columns + (registers ? 0 : rows);  // rows of 32 bytes, of both operands
                    worker->tracer->count_product(shape.columns, depth(shape.type), 32 * read, made.pc);)
    group.products.push_back(made);
  }
  Product& product = group.products[mine.issued - group.first];
  if (!is_alike(product, shape, registers != nullptr, a, b, accumulate))
    fail_here("wgmma: the threads of a warp group call different products, or with different descriptors");
  EMULATOR_TRACED(if (index % 32 == 0) visit_operands(product, place / 32, [&](uintptr_t address) {
    worker->tracer->check_async_read(address, 16, thread.pc);
  });)
  product.d[place] = take_accumulators(mine, d, shape.columns / 2u);
  if (registers) memcpy(product.registers[place], registers, sizeof product.registers[place]);
  EMULATOR_TRACED(if (registers) worker->tracer->registers_taken();)
  ++mine.issued;
  if (++product.issued == group_threads) thread.block->ready.take_all(group.waiting);
}

void hold_registers(const void* registers, const char* what) {
  EMULATOR_CALLED_FROM_HERE;
  for (const Accumulators& held : part_of(self()).under_way)
    if (held.d == registers) fail_here("%s: the named registers are accumulators of products that are still under way", what);
}

void wgmma_fence() { part_of(self()).is_fenced = true; }

void wgmma_commit() {
  WgmmaThread& mine = part_of(self());
  mine.groups.push_back(mine.issued);
}

void wgmma_wait(unsigned latest, Place place) {
  EMULATOR_CALLED_FROM_HERE;
  Thread& thread = self();
  WgmmaThread& mine = part_of(thread);
  WarpGroup& group = group_of(thread);
  if (mine.groups.size() <= latest) return;
  const size_t ended = mine.groups.size() - latest;
  const uint64_t end = mine.groups[ended - 1];
  mine.groups.erase(mine.groups.begin(), mine.groups.begin() + ended);
  while (group.computed < end && group.products[end - 1 - group.first].issued < group_threads) {
    thread.state = State::at_wgmma;
    thread.waits_in = "wgmma_wait";
    thread.place = place;
    group.waiting.push(&thread);
    suspend(thread);
  }
  compute_until(group, end);
  hand_out(mine, end);
  mine.is_fenced = false;
  EMULATOR_TRACED(worker->tracer->products_waited_for(static_cast<unsigned>(&group - asynchronous().groups.data()));)
}

void release_registers(unsigned count) {
  EMULATOR_CALLED_FROM_HERE;
  Asynchronous& state = asynchronous();
  state.registers[self().warp - self().block->warps] = count;
}

void take_registers(unsigned count) {
  EMULATOR_CALLED_FROM_HERE;
  Asynchronous& state = asynchronous();
  state.registers[self().warp - self().block->warps] = count;
  unsigned asked = 0;
  for (unsigned each : state.registers) asked += 32 * each;
  if (asked > most_registers)
    fail_here("take_registers<%u>: the block's warps would have %u registers; a multiprocessor has %u", count, asked,
              most_registers);
}

}  // namespace emulator
