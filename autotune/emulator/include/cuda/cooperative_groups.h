// Cooperative groups: the block, tiles of a warp, and what is commonly done with them.
#pragma once

namespace cooperative_groups {

class thread_block {
 public:
  void sync(emulator::Place place = EMULATOR_HERE) const { __syncthreads(place); }
  unsigned thread_rank() const { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
  unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
  unsigned num_threads() const { return size(); }
  dim3 group_index() const { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  dim3 thread_index() const { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  dim3 group_dim() const { return blockDim; }
  dim3 dim_threads() const { return blockDim; }
};

inline thread_block this_thread_block() { return {}; }

// `Size` neighbouring lanes of a warp.
template <unsigned Size, class Parent = void>
class thread_block_tile {
  static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  thread_block_tile() {}
  template <class Other>
  thread_block_tile(const thread_block_tile<Size, Other>&) {}

  unsigned thread_rank() const { return emulator::self().lane & (Size - 1); }
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  unsigned meta_group_rank() const { return this_thread_block().thread_rank() / Size; }
  unsigned meta_group_size() const { return (this_thread_block().size() + Size - 1) / Size; }

  void sync(emulator::Place place = EMULATOR_HERE) const { __syncwarp(mask(), place); }
  template <class T>
  T shfl(T value, int source, emulator::Place place = EMULATOR_HERE) const {
    return __shfl_sync(mask(), value, source, Size, place);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, emulator::Place place = EMULATOR_HERE) const {
    return __shfl_up_sync(mask(), value, delta, Size, place);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, emulator::Place place = EMULATOR_HERE) const {
    return __shfl_down_sync(mask(), value, delta, Size, place);
  }
  template <class T>
  T shfl_xor(T value, unsigned lanes, emulator::Place place = EMULATOR_HERE) const {
    return __shfl_xor_sync(mask(), value, lanes, Size, place);
  }
  int any(int predicate, emulator::Place place = EMULATOR_HERE) const { return __any_sync(mask(), predicate, place); }
  int all(int predicate, emulator::Place place = EMULATOR_HERE) const { return __all_sync(mask(), predicate, place); }
  unsigned ballot(int predicate, emulator::Place place = EMULATOR_HERE) const {
    return __ballot_sync(mask(), predicate, place) >> start();
  }
  template <class T>
  unsigned match_any(T value, emulator::Place place = EMULATOR_HERE) const {
    return __match_any_sync(mask(), value, place) >> start();
  }

  unsigned mask() const { return (0xffffffffu >> (32 - Size)) << start(); }

 private:
  unsigned start() const { return emulator::self().lane & ~(Size - 1); }
};

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

template <unsigned Size, class Parent, class T, class F>
T reduce(const thread_block_tile<Size, Parent>& tile, T value, F function, emulator::Place place = EMULATOR_HERE) {
  for (unsigned lanes = Size / 2; lanes > 0; lanes /= 2) value = function(value, tile.shfl_xor(value, lanes, place));
  return value;
}

template <class Group>
void sync(const Group& group, emulator::Place place = EMULATOR_HERE) {
  group.sync(place);
}

}  // namespace cooperative_groups
