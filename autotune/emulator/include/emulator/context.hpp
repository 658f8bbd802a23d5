// One fiber's saved registers, and the switch from one fiber to another.
#pragma once

#include <stddef.h>

#if defined(AUTOTUNE_EMULATOR_UCONTEXT) || !(defined(__x86_64__) || defined(__aarch64__))
#include <ucontext.h>
#define EMULATOR_UCONTEXT 1
#endif

namespace emulator {

struct Context {
#ifdef EMULATOR_UCONTEXT
  ucontext_t saved;
#else
  void* stack_pointer;  // the callee-saved registers lie on the fiber's own stack
#endif
};

// Makes a context that begins in `entry` (which never returns) on the stack that ends at `top`.
void make_context(Context& context, char* bottom, char* top, void (*entry)());

// Saves the running fiber in `from` and goes on with `to`; returns when someone switches back to `from`.
void switch_context(Context& from, Context& to);

}  // namespace emulator
