// Tensor maps of 16-bit tensors whose rows begin at any element, while TMA takes only addresses, strides and boxes that begin
// at multiples of 16 bytes. A row begins some columns behind the multiple of 16 bytes before it. There is a map for each
// number of columns: its first dimension ends so many later, so that what lies behind a row's end is out of the tensor and
// arrives as zeros. The dimensions: columns, rows of a matrix, 2^20 steps of 16 bytes, so many steps at once.
#pragma once

#include "common/ptx/tensor_map.cuh"

struct TensorMaps {
    TensorMap at[8];
};
