// Kernels that overlap the one before them (sm_90 and later). Front matter says so (`overlaps` of [[launch]]): the driver
// then lets a kernel's blocks begin before the kernel before has ended, wherever there is room. What they do before they
// wait must not depend on what that one writes, nor write what it uses.
#pragma once

/// Waits until the kernel before has ended, and sees all that it wrote. One thread's wait is enough for those that
/// synchronise with it afterwards. A kernel that does not overlap one before it goes on at once. Where no block waits, the
/// kernels before are not known to have ended when this one has.
__device__ __forceinline__ void wait_for_previous_kernel()
{
#ifdef AUTOTUNE_EMULATOR
    emulator::wait_for_previous_kernel();
#else
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The next kernel may begin once every block has come here, or ended. It need not wait for a kernel that this one has
/// waited for before.
__device__ __forceinline__ void let_next_kernel_begin()
{
#ifdef AUTOTUNE_EMULATOR
    emulator::let_next_kernel_begin();
#else
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
