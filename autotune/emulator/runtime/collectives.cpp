// What the last lane to arrive computes for all lanes of a warp operation.
#include "emulator/warp.hpp"

namespace emulator {

namespace shuffle {

void combine(void* const items[32], uint32_t lanes) {
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    Item& item = *static_cast<Item*>(items[__builtin_ctz(rest)]);
    // Reading a lane that takes no part gives an undefined value: NaN here, so that its use shows.
    item.result = item.source < 32 && lanes >> item.source & 1 ? static_cast<Item*>(items[item.source])->value : ~0ull;
  }
}

}  // namespace shuffle

namespace vote {

void ballot(void* const items[32], uint32_t lanes) {
  uint32_t result = 0;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    unsigned lane = __builtin_ctz(rest);
    if (static_cast<Item*>(items[lane])->value) result |= 1u << lane;
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1) static_cast<Item*>(items[__builtin_ctz(rest)])->result = result;
}

void match_any(void* const items[32], uint32_t lanes) {
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    Item& mine = *static_cast<Item*>(items[__builtin_ctz(rest)]);
    mine.result = 0;
    for (uint32_t others = lanes; others; others &= others - 1) {
      unsigned lane = __builtin_ctz(others);
      if (static_cast<Item*>(items[lane])->value == mine.value) mine.result |= 1u << lane;
    }
  }
}

}  // namespace vote
}  // namespace emulator
