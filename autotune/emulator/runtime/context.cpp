// Fiber switches: hand-written for x86-64 and aarch64, <ucontext.h> elsewhere.
#include "emulator/context.hpp"

#include <stdint.h>

namespace emulator {

#ifdef EMULATOR_UCONTEXT

void make_context(Context& context, char* bottom, char* top, void (*entry)()) {
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = bottom;
  context.saved.uc_stack.ss_size = static_cast<size_t>(top - bottom);
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, entry, 0);
}

void switch_context(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }

#else

// Pushes the callee-saved registers, stores the stack pointer at *from, loads it from `to`, pops. Fibers mostly leave and
// come back through the same calls, so the processor's prediction of returns stays right although the stack is another.
extern "C" __attribute__((visibility("hidden"))) void emulator_switch(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch, .-emulator_switch
)");
constexpr int entry_word = 6;     // above the six registers
constexpr int frame_words = 8;    // one more, so that the stack is aligned as after a call
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, %function
emulator_switch:
  stp x19, x20, [sp, #-160]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x19, x20, [sp], #160
  br x30
.size emulator_switch, .-emulator_switch
)");
constexpr int entry_word = 11;  // x30
constexpr int frame_words = 20;
#endif

void make_context(Context& context, char*, char* top, void (*entry)()) {
  uintptr_t* frame = reinterpret_cast<uintptr_t*>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15}) - frame_words;
  for (int i = 0; i < frame_words; ++i) frame[i] = 0;
  frame[entry_word] = reinterpret_cast<uintptr_t>(entry);
  context.stack_pointer = frame;
}

void switch_context(Context& from, Context& to) { emulator_switch(&from.stack_pointer, to.stack_pointer); }

#endif

}  // namespace emulator
