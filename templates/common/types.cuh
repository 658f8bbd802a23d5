// Element types: conversion to and from float, pairs of 16-bit elements in a word, loads and stores of several at once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) { return x; }
template <>
__device__ __forceinline__ __half from_float<__half>(float x) { return __float2half_rn(x); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

/// Two floats rounded to T, `low` in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack<__half>(float low, float high)
{
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
}
template <>
__device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
}

/// Two rounded numbers as floats.
template <class T>
__device__ __forceinline__ float2 unpack_pair(uint32_t both);
template <>
__device__ __forceinline__ float2 unpack_pair<__half>(uint32_t both)
{
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
}
template <>
__device__ __forceinline__ float2 unpack_pair<__nv_bfloat16>(uint32_t both)
{
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&both));
}

/// One of two numbers packed in a word; 0 is the low half.
template <class T>
__device__ __forceinline__ T half_of(uint32_t both, int half)
{
    const uint16_t bits = static_cast<uint16_t>(both >> 16 * half);
    return *reinterpret_cast<const T*>(&bits);
}

/// N elements that are moved by one instruction (N * sizeof(T) is 2, 4, 8 or 16 bytes).
template <class T, int N>
struct alignas(N * sizeof(T)) Vector {
    T at[N];
};

/// Elements of T that one instruction can move, at most N (16 bytes).
template <class T, int N>
__host__ __device__ constexpr int vector_width()
{
    return N * int(sizeof(T)) <= 16 ? N : 16 / int(sizeof(T));
}

/// Largest of 4, 2 and 1 that divides n: how many floats of a row one shared memory instruction can move.
__host__ __device__ constexpr int float_width(int n) { return n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1; }

/// to[0..N) = from[0..N) as float; `from` is aligned to the instruction's width.
template <int N, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[N])
{
    constexpr int WIDTH = vector_width<T, N>();
#pragma unroll
    for (int i = 0; i < N; i += WIDTH) {
        const Vector<T, WIDTH> part = *reinterpret_cast<const Vector<T, WIDTH>*>(from + i);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to[i + e] = to_float(part.at[e]);
    }
}

/// to[0..N) = from[0..N) rounded to T; `to` is aligned to the instruction's width.
template <int N, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[N])
{
    constexpr int WIDTH = vector_width<T, N>();
#pragma unroll
    for (int i = 0; i < N; i += WIDTH) {
        Vector<T, WIDTH> part;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) part.at[e] = from_float<T>(from[i + e]);
        *reinterpret_cast<Vector<T, WIDTH>*>(to + i) = part;
    }
}
