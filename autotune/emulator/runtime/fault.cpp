// How a kernel's failure ends the launch: messages, signals, assertions.
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "hooks.hpp"
#include "worker.hpp"

namespace emulator {

namespace {

constexpr int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
constexpr int caught_count = sizeof caught / sizeof caught[0];
struct sigaction before[caught_count];

void fill_place(Result& result) {
  const Thread& thread = self();
  const uint3& block = thread.block->index;
  result.in_kernel = 1;
  result.block[0] = block.x, result.block[1] = block.y, result.block[2] = block.z;
  result.thread[0] = thread.index.x, result.thread[1] = thread.index.y, result.thread[2] = thread.index.z;
}

int is_write(const void* context) {
#if defined(__x86_64__) && defined(REG_ERR)
  return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] >> 1 & 1;
#else
  (void)context;
  return -1;
#endif
}

#ifdef EMULATOR_TRACE
// Where the code was that a signal interrupted.
const void* instruction(const void* context) {
#if defined(__x86_64__) && defined(REG_RIP)
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc);
#else
  (void)context;
  return nullptr;
#endif
}
#endif

// An access that the worker itself can explain: shared memory, a stack, an address that is none.
const char* explain(char (&text)[160], const void* address, int code) {
  const SharedMemory& shared = worker->shared;
  if (code == SI_KERNEL) return "misaligned address (or one that no pointer can hold)";
  if (worker->stacks.is_guard(address)) return "stack overflow: a thread's local arrays are too large";
  if (!shared.contains_guard(address)) return nullptr;
  long long offset = static_cast<const unsigned char*>(address) - shared.start();
  size_t size = worker->block.shared_bytes;
  if (offset < 0)
    snprintf(text, sizeof text, "%lld bytes before the start of dynamic shared memory (%zu bytes)", -offset, size);
  else
    snprintf(text, sizeof text, "at byte %lld of dynamic shared memory, which has %zu bytes", offset, size);
  return text;
}

void explain_access(Result& result, const siginfo_t& info, const void* context) {
  char text[160];
  result.kind = illegal_access;
  result.address = reinterpret_cast<uint64_t>(info.si_addr);
  result.is_write = is_write(context);
  const char* explanation = explain(text, info.si_addr, info.si_code);
  if (!explanation) return;
  result.kind = failed;
  const char* access = result.is_write == 1 ? "illegal write " : result.is_write == 0 ? "illegal read " : "illegal access ";
  bool is_shared = explanation == text;
  snprintf(result.message, sizeof result.message, "%s%s", is_shared ? access : "", explanation);
}

void use_action_from_before(int number) {
  for (int i = 0; i < caught_count; ++i)
    if (caught[i] == number) sigaction(number, &before[i], nullptr);
}

void on_signal(int number, siginfo_t* info, void* context) {
  if (!worker || !current) {
    use_action_from_before(number);  // not a kernel's doing: the instruction faults again and gets what it would have
    return;
  }
  Result result{};
  if (number == SIGSEGV || number == SIGBUS) {
    explain_access(result, *info, context);
  } else {
    result.kind = failed;
    const char* what = number == SIGFPE ? "integer division by zero or overflow" : "misaligned address, or code that cannot be reached";
    snprintf(result.message, sizeof result.message, "%s", what);
  }
  fill_place(result);
  EMULATOR_TRACED(worker->tracer->crash(instruction(context));)
  stop(result);
}

}  // namespace

void stop(const Result& result) {
  if (!worker->launch->stopped.exchange(true)) *worker->launch->result = result;
  siglongjmp(worker->recover, 1);
}

void fail(const char* format, ...) {
  Result result{};
  result.kind = failed;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(result.message, sizeof result.message, format, arguments);
  va_end(arguments);
  fill_place(result);
  stop(result);
}

void use_signal_stack(Worker& here) {
  here.signal_stack.resize(64 * 1024);
  stack_t stack{};
  stack.ss_sp = here.signal_stack.data();
  stack.ss_size = here.signal_stack.size();
  sigaltstack(&stack, nullptr);
}

SignalHandlers::SignalHandlers() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int i = 0; i < caught_count; ++i) sigaction(caught[i], &action, &before[i]);
}

SignalHandlers::~SignalHandlers() {
  for (int i = 0; i < caught_count; ++i) sigaction(caught[i], &before[i], nullptr);
}

}  // namespace emulator
