// Results against float64 references, where they lie: what autotune/devices/comparison.py does, for one that is right.
//
// Whatever is not right is only said to be doubtful; what is wrong with it, the host finds out. Every block tells how
// much it has looked at, so that what was never looked at is not taken for right.

#include "common/types.cuh"

constexpr int THREADS = 256;

/// What one thread has found, or one block: six words of 8 bytes for the host to read.
struct Record {
    double part;                  // the largest error over its bound
    double error;                 // that error,
    double bound;                 // its bound,
    long long index;              // and its number, counted through all units: the smallest of those that have this part
    unsigned long long compared;  // elements, or bytes, that were looked at
    unsigned long long doubtful;  // of which so many are not right, or are for the host to judge

    __device__ __forceinline__ void join(const Record& other)
    {
        const bool same = other.part == part;
        const bool beyond = other.part > part || (same && other.error > error);
        const bool before = same && other.error == error && other.index < index;
        if (beyond || before) {
            part = other.part;
            error = other.error;
            bound = other.bound;
            index = other.index;
        }
        compared += other.compared;
        doubtful += other.doubtful;
    }
};

__device__ __forceinline__ Record nothing_yet() { return {-1.0, 0.0, 0.0, 0, 0, 0}; }

/// One of so many pieces that are compared each with its own reference.
struct Unit {
    long long offset;  // of its first element in the storage
    long long source;  // the number of its reference
};

/// Units of up to four dimensions. Strides in elements; of a bound they are 0 along what has the same one.
struct Units {
    const Unit* at;
    long long extent[4], stride[4], bound_stride[4];
};

__device__ __forceinline__ double widened(double x) { return x; }

template <class T>
__device__ __forceinline__ double widened(T x) { return to_float(x); }

/// From here on a reference is infinite in T: halfway from the largest number to the next power of two. NumPy rounds
/// to bf16 by way of float, where half a float's last place less is already there.
template <class T>
__device__ __forceinline__ double too_large();
template <>
__device__ __forceinline__ double too_large<__half>() { return 65520.0; }
template <>
__device__ __forceinline__ double too_large<__nv_bfloat16>() { return 0x1.feffffp+127; }
template <>
__device__ __forceinline__ double too_large<float>() { return 0x1.ffffffp+127; }
template <>
__device__ __forceinline__ double too_large<double>() { return __longlong_as_double(0x7ff0000000000000ll); }

__device__ __forceinline__ bool is_number(double x) { return fabs(x) <= 0x1.fffffffffffffp+1023; }

/// Whether a result is one that no difference tells of: NaN where NaN is expected, or that infinity.
template <class T>
__device__ __forceinline__ bool same_without_number(double got, double reference)
{
    if (reference != reference) return got != got;
    return fabs(reference) >= too_large<T>() && !is_number(got) && got == copysign(got, reference);
}

/// One record of all that the block's threads have found.
__device__ __forceinline__ void write_record(const Record& mine, Record* records)
{
    __shared__ Record found[THREADS];
    found[threadIdx.x] = mine;
    __syncthreads();
    for (int others = THREADS / 2; others > 0; others /= 2) {
        if (threadIdx.x < others) found[threadIdx.x].join(found[threadIdx.x + others]);
        __syncthreads();
    }
    if (threadIdx.x == 0) records[blockIdx.x] = found[0];
}

/// All elements of a tensor's units, each by its bound. Marks in `inside`, a byte an element, what of the storage it is.
///
/// `held` elements are in the storage, references and bounds of `different` units there, bounds so far apart, and so
/// many units, the `number`, are compared. Where one lies outside of that, a stray write has changed it.
template <class T>
__device__ __forceinline__ void compare(
    const T* storage, long long held, unsigned char* inside, const double* references, const double* bounds,
    long long different, long long bounds_apart, Units units, long long number, Record* records)
{
    const long long elements = units.extent[0] * units.extent[1] * units.extent[2] * units.extent[3];
    Record worst = nothing_yet();
    for (long long i = blockIdx.x * THREADS + threadIdx.x; i < number * elements; i += gridDim.x * THREADS) {
        const Unit unit = units.at[i / elements];
        unsigned rest = i % elements;
        const unsigned element = rest;
        long long place = unit.offset, bound_place = unit.source * bounds_apart;
#pragma unroll
        for (int axis = 3; axis >= 0; --axis) {
            const unsigned at = rest % unsigned(units.extent[axis]);
            rest /= unsigned(units.extent[axis]);
            place += at * units.stride[axis];
            bound_place += at * units.bound_stride[axis];
        }
        if (place < 0 || place >= held || unit.source < 0 || unit.source >= different) {
            worst.doubtful += 1;
            continue;
        }
        inside[place] = 1;
        const double got = widened(storage[place]), reference = references[unit.source * elements + element];
        const double bound = bounds[bound_place];
        double error = fabs(got - reference);
        bool doubt = false;
        if (!is_number(error)) {
            doubt = !same_without_number<T>(got, reference);
            error = 0.0;
        } else if (fabs(reference) >= too_large<T>()) {
            doubt = true;
        }
        // Where no error is allowed, none is no excess. A bound of NaN allows nothing.
        const double part = error / (bound == 0.0 ? 0x1p-1074 : bound);
        worst.join({part, error, bound, i, 1, doubt || !(error <= bound) ? 1ull : 0ull});
    }
    write_record(worst, records);
}

extern "C" __global__ void __launch_bounds__(THREADS) compare_fp16(
    const __half* storage, long long held, unsigned char* inside, const double* references, const double* bounds,
    long long different, long long bounds_apart, Units units, long long number, Record* records)
{
    compare(storage, held, inside, references, bounds, different, bounds_apart, units, number, records);
}

extern "C" __global__ void __launch_bounds__(THREADS) compare_bf16(
    const __nv_bfloat16* storage, long long held, unsigned char* inside, const double* references, const double* bounds,
    long long different, long long bounds_apart, Units units, long long number, Record* records)
{
    compare(storage, held, inside, references, bounds, different, bounds_apart, units, number, records);
}

extern "C" __global__ void __launch_bounds__(THREADS) compare_fp32(
    const float* storage, long long held, unsigned char* inside, const double* references, const double* bounds,
    long long different, long long bounds_apart, Units units, long long number, Record* records)
{
    compare(storage, held, inside, references, bounds, different, bounds_apart, units, number, records);
}

extern "C" __global__ void __launch_bounds__(THREADS) compare_fp64(
    const double* storage, long long held, unsigned char* inside, const double* references, const double* bounds,
    long long different, long long bounds_apart, Units units, long long number, Record* records)
{
    compare(storage, held, inside, references, bounds, different, bounds_apart, units, number, records);
}

/// Whether every byte of all elements that belong to no tensor is `byte`: nothing was written there.
extern "C" __global__ void __launch_bounds__(THREADS) look_between(
    const unsigned char* storage, const unsigned char* inside, long long elements, int size, int byte, Record* records)
{
    Record found = nothing_yet();
    for (long long i = blockIdx.x * THREADS + threadIdx.x; i < elements; i += gridDim.x * THREADS) {
        bool other = false;
        if (!inside[i])
            for (int k = 0; k < size; ++k) other |= storage[i * size + k] != byte;
        found.compared += 1;
        found.doubtful += other;
    }
    write_record(found, records);
}

/// Whether two buffers, which begin at multiples of 16 bytes, hold the same bytes.
extern "C" __global__ void __launch_bounds__(THREADS) look_for_changes(
    const unsigned char* one, const unsigned char* other, long long nbytes, Record* records)
{
    const long long first = blockIdx.x * THREADS + threadIdx.x, step = gridDim.x * THREADS, words = nbytes / 16;
    Record found = nothing_yet();
    for (long long i = first; i < words; i += step) {
        const uint4 a = reinterpret_cast<const uint4*>(one)[i], b = reinterpret_cast<const uint4*>(other)[i];
        found.compared += 16;
        found.doubtful += a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w;
    }
    for (long long i = 16 * words + first; i < nbytes; i += step) {
        found.compared += 1;
        found.doubtful += one[i] != other[i];
    }
    write_record(found, records);
}

/// A sum, in `doubtful`, that is another one if any of the words changes.
extern "C" __global__ void __launch_bounds__(THREADS) sum_up(
    const unsigned long long* words, long long number, Record* records)
{
    Record found = nothing_yet();
    for (long long i = blockIdx.x * THREADS + threadIdx.x; i < number; i += gridDim.x * THREADS) {
        found.compared += 1;
        found.doubtful += (2ull * i + 1) * words[i];
    }
    write_record(found, records);
}
