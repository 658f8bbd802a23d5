// The emulator's tensor maps: what a host makes in the place of the driver's, in as many bytes (autotune/devices makes them
// too). Dimensions begin with the contiguous one.
#pragma once

#include <stdint.h>

namespace emulator {

struct TensorMapContent {
  static constexpr uint64_t expected_mark = 0x50414d524f534e54;  // "TNSORMAP", its bytes in this order

  uint64_t mark;
  uint64_t address;
  uint64_t stride[4];  // bytes, of the second dimension and those after it
  uint32_t extent[5];  // elements
  uint16_t box[5];     // elements
  uint8_t rank;
  uint8_t type;     // the driver's numbers: 6 fp16, 7 fp32, 9 bf16
  uint8_t swizzle;  // width in bytes: 128, 64, 32; 16: none
  uint8_t nan;      // whether elements out of the tensor arrive as NaN, not as 0
  uint8_t unused[46];
};
static_assert(sizeof(TensorMapContent) == 128, "a tensor map has 128 bytes");

}  // namespace emulator
