// A flag whose value the compiler knows, as an argument.
#pragma once

/// A flag whose value the compiler knows.
template <bool VALUE>
struct Known {
    __device__ constexpr operator bool() const { return VALUE; }
};
