// autotune: permute/copy: a copy by vectors along the head, rows shared out over threads
// problem:       B=4 NH=12 T=1024 HS=64 dtype=fp16 source=bthd target=bhtd
// configuration: THREADS=256 VEC=8 EACH=2 LOADS=streaming STORES=cached GRID_MAP=x=chunks,y=head,z=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          0b18fefd944d06c0

#include "common/tile/row_access.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr int HS = 64;
constexpr int THREADS = 256;
constexpr int VEC = 8;   // elements an access
constexpr int EACH = 2;  // accesses of a thread
constexpr int ROW = (HS + VEC - 1) / VEC;  // accesses that a row takes
constexpr Access LOADS = Access::STREAMING;
constexpr Access STORES = Access::CACHED;

/// y[b, h, t, d] = x[b, h, t, d].
extern "C" __global__ void __launch_bounds__(THREADS)
permute_heads(View<element, 4> x, View<element, 4> y, int T)
{
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const int block = blockIdx.x;
    const element* const from = matrix_of(x, batch, head);
    element* const to = matrix_of(y, batch, head);
    const bool vectors = allows_vectors<VEC>(x) && allows_vectors<VEC>(y);
    const long long accesses = static_cast<long long>(T) * ROW;

#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const long long access = (static_cast<long long>(block) * EACH + i) * THREADS + threadIdx.x;
        if (access >= accesses) break;
        const int row = access / ROW;
        const int col = access % ROW * VEC;
        const element* const source = from + row * x.stride[2];
        element* const target = to + row * y.stride[2];
        if (vectors && col + VEC <= HS) {
            write_vector<STORES>(target + col, read_vector<LOADS, VEC>(source + col));
        } else {
            for (int e = 0; e < VEC && col + e < HS; ++e)
                target[(col + e) * y.stride[3]] = source[(col + e) * x.stride[3]];
        }
    }
}

// buffer x: 3145728 fp16, input
// buffer y: 3145728 fp16, output
// launch permute_heads grid=(16, 12, 4) block=(256, 1, 1) smem=0 (x, y, T)
