// The device's half of wgmma.cuh: one instruction a shape. Asm text cannot count, so that each number of columns has its
// list of registers and the numbers of the operands behind them.
#pragma once

#ifndef AUTOTUNE_EMULATOR  // the twins are in wgmma.cuh

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

// Registers 1 to N / 2 - 1, those of N - 8 columns first.
#define WGMMA_8(X) X(1) X(2) X(3)
#define WGMMA_16(X) WGMMA_8(X) X(4) X(5) X(6) X(7)
#define WGMMA_24(X) WGMMA_16(X) X(8) X(9) X(10) X(11)
#define WGMMA_32(X) WGMMA_24(X) X(12) X(13) X(14) X(15)
#define WGMMA_40(X) WGMMA_32(X) X(16) X(17) X(18) X(19)
#define WGMMA_48(X) WGMMA_40(X) X(20) X(21) X(22) X(23)
#define WGMMA_56(X) WGMMA_48(X) X(24) X(25) X(26) X(27)
#define WGMMA_64(X) WGMMA_56(X) X(28) X(29) X(30) X(31)
#define WGMMA_72(X) WGMMA_64(X) X(32) X(33) X(34) X(35)
#define WGMMA_80(X) WGMMA_72(X) X(36) X(37) X(38) X(39)
#define WGMMA_88(X) WGMMA_80(X) X(40) X(41) X(42) X(43)
#define WGMMA_96(X) WGMMA_88(X) X(44) X(45) X(46) X(47)
#define WGMMA_104(X) WGMMA_96(X) X(48) X(49) X(50) X(51)
#define WGMMA_112(X) WGMMA_104(X) X(52) X(53) X(54) X(55)
#define WGMMA_120(X) WGMMA_112(X) X(56) X(57) X(58) X(59)
#define WGMMA_128(X) WGMMA_120(X) X(60) X(61) X(62) X(63)
#define WGMMA_136(X) WGMMA_128(X) X(64) X(65) X(66) X(67)
#define WGMMA_144(X) WGMMA_136(X) X(68) X(69) X(70) X(71)
#define WGMMA_152(X) WGMMA_144(X) X(72) X(73) X(74) X(75)
#define WGMMA_160(X) WGMMA_152(X) X(76) X(77) X(78) X(79)
#define WGMMA_168(X) WGMMA_160(X) X(80) X(81) X(82) X(83)
#define WGMMA_176(X) WGMMA_168(X) X(84) X(85) X(86) X(87)
#define WGMMA_184(X) WGMMA_176(X) X(88) X(89) X(90) X(91)
#define WGMMA_192(X) WGMMA_184(X) X(92) X(93) X(94) X(95)
#define WGMMA_200(X) WGMMA_192(X) X(96) X(97) X(98) X(99)
#define WGMMA_208(X) WGMMA_200(X) X(100) X(101) X(102) X(103)
#define WGMMA_216(X) WGMMA_208(X) X(104) X(105) X(106) X(107)
#define WGMMA_224(X) WGMMA_216(X) X(108) X(109) X(110) X(111)
#define WGMMA_232(X) WGMMA_224(X) X(112) X(113) X(114) X(115)
#define WGMMA_240(X) WGMMA_232(X) X(116) X(117) X(118) X(119)
#define WGMMA_248(X) WGMMA_240(X) X(120) X(121) X(122) X(123)
#define WGMMA_256(X) WGMMA_248(X) X(124) X(125) X(126) X(127)

#define WGMMA_NAME(i) ", %" #i
#define WGMMA_OPERAND(i) , "+f"(d[i])
#define WGMMA_A(I0, I1, I2, I3) "{%" #I0 ", %" #I1 ", %" #I2 ", %" #I3 "}"
#define WGMMA_TEXT(instruction, N, a, accumulate, rest)                             \
    "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " accumulate ", 0;\n"       \
    "wgmma.mma_async.sync.aligned.m64n" #N instruction " {%0" WGMMA_##N(WGMMA_NAME) \
    "}, " a ", accumulate, 1, 1" rest ";\n}"

/// wgmma of 64 rows and N columns.
template <int N>
struct WgmmaShape;

// I0 to I6: the numbers of the operands behind the registers of D.
#define WGMMA_SHAPE(N, I0, I1, I2, I3, I4, I5, I6)                                                                    \
    template <>                                                                                                       \
    struct WgmmaShape<N> {                                                                                            \
        template <class T, int A_TRANSPOSED, int B_TRANSPOSED>                                                        \
        static __device__ __forceinline__ void multiply(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate)    \
        {                                                                                                             \
            if constexpr (std::is_same_v<T, float>)                                                                   \
                asm volatile(WGMMA_TEXT("k8.f32.tf32.tf32", N, "%" #I0 ", %" #I1, "%" #I2, "")                        \
                             : "+f"(d[0]) WGMMA_##N(WGMMA_OPERAND)                                                    \
                             : "l"(a), "l"(b), "r"(accumulate)                                                        \
                             : "memory");                                                                             \
            else if constexpr (std::is_same_v<T, __half>)                                                             \
                asm volatile(WGMMA_TEXT("k16.f32.f16.f16", N, "%" #I0 ", %" #I1, "%" #I2, ", %" #I3 ", %" #I4)        \
                             : "+f"(d[0]) WGMMA_##N(WGMMA_OPERAND)                                                    \
                             : "l"(a), "l"(b), "r"(accumulate), "n"(A_TRANSPOSED), "n"(B_TRANSPOSED)                  \
                             : "memory");                                                                             \
            else                                                                                                      \
                asm volatile(WGMMA_TEXT("k16.f32.bf16.bf16", N, "%" #I0 ", %" #I1, "%" #I2, ", %" #I3 ", %" #I4)      \
                             : "+f"(d[0]) WGMMA_##N(WGMMA_OPERAND)                                                    \
                             : "l"(a), "l"(b), "r"(accumulate), "n"(A_TRANSPOSED), "n"(B_TRANSPOSED)                  \
                             : "memory");                                                                             \
        }                                                                                                             \
                                                                                                                      \
        template <class T, int B_TRANSPOSED>                                                                          \
        static __device__ __forceinline__ void multiply(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b,        \
                                                        int accumulate)                                               \
        {                                                                                                             \
            if constexpr (std::is_same_v<T, float>)                                                                   \
                asm volatile(WGMMA_TEXT("k8.f32.tf32.tf32", N, WGMMA_A(I0, I1, I2, I3) ", %" #I4, "%" #I5, "")        \
                             : "+f"(d[0]) WGMMA_##N(WGMMA_OPERAND)                                                    \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)                    \
                             : "memory");                                                                             \
            else if constexpr (std::is_same_v<T, __half>)                                                             \
                asm volatile(WGMMA_TEXT("k16.f32.f16.f16", N, WGMMA_A(I0, I1, I2, I3) ", %" #I4, "%" #I5, ", %" #I6)  \
                             : "+f"(d[0]) WGMMA_##N(WGMMA_OPERAND)                                                    \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(B_TRANSPOSED) \
                             : "memory");                                                                             \
            else                                                                                                      \
                asm volatile(WGMMA_TEXT("k16.f32.bf16.bf16", N, WGMMA_A(I0, I1, I2, I3) ", %" #I4, "%" #I5, ", %" #I6)\
                             : "+f"(d[0]) WGMMA_##N(WGMMA_OPERAND)                                                    \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(B_TRANSPOSED) \
                             : "memory");                                                                             \
        }                                                                                                             \
    };

WGMMA_SHAPE(8, 4, 5, 6, 7, 8, 9, 10)
WGMMA_SHAPE(16, 8, 9, 10, 11, 12, 13, 14)
WGMMA_SHAPE(24, 12, 13, 14, 15, 16, 17, 18)
WGMMA_SHAPE(32, 16, 17, 18, 19, 20, 21, 22)
WGMMA_SHAPE(40, 20, 21, 22, 23, 24, 25, 26)
WGMMA_SHAPE(48, 24, 25, 26, 27, 28, 29, 30)
WGMMA_SHAPE(56, 28, 29, 30, 31, 32, 33, 34)
WGMMA_SHAPE(64, 32, 33, 34, 35, 36, 37, 38)
WGMMA_SHAPE(72, 36, 37, 38, 39, 40, 41, 42)
WGMMA_SHAPE(80, 40, 41, 42, 43, 44, 45, 46)
WGMMA_SHAPE(88, 44, 45, 46, 47, 48, 49, 50)
WGMMA_SHAPE(96, 48, 49, 50, 51, 52, 53, 54)
WGMMA_SHAPE(104, 52, 53, 54, 55, 56, 57, 58)
WGMMA_SHAPE(112, 56, 57, 58, 59, 60, 61, 62)
WGMMA_SHAPE(120, 60, 61, 62, 63, 64, 65, 66)
WGMMA_SHAPE(128, 64, 65, 66, 67, 68, 69, 70)
WGMMA_SHAPE(136, 68, 69, 70, 71, 72, 73, 74)
WGMMA_SHAPE(144, 72, 73, 74, 75, 76, 77, 78)
WGMMA_SHAPE(152, 76, 77, 78, 79, 80, 81, 82)
WGMMA_SHAPE(160, 80, 81, 82, 83, 84, 85, 86)
WGMMA_SHAPE(168, 84, 85, 86, 87, 88, 89, 90)
WGMMA_SHAPE(176, 88, 89, 90, 91, 92, 93, 94)
WGMMA_SHAPE(184, 92, 93, 94, 95, 96, 97, 98)
WGMMA_SHAPE(192, 96, 97, 98, 99, 100, 101, 102)
WGMMA_SHAPE(200, 100, 101, 102, 103, 104, 105, 106)
WGMMA_SHAPE(208, 104, 105, 106, 107, 108, 109, 110)
WGMMA_SHAPE(216, 108, 109, 110, 111, 112, 113, 114)
WGMMA_SHAPE(224, 112, 113, 114, 115, 116, 117, 118)
WGMMA_SHAPE(232, 116, 117, 118, 119, 120, 121, 122)
WGMMA_SHAPE(240, 120, 121, 122, 123, 124, 125, 126)
WGMMA_SHAPE(248, 124, 125, 126, 127, 128, 129, 130)
WGMMA_SHAPE(256, 128, 129, 130, 131, 132, 133, 134)

#endif
