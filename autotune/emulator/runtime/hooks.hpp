// Where the runtime tells the tracer of a traced build what happens; ordinary builds contain none of it.
#pragma once

#ifdef EMULATOR_TRACE
#include "../trace/tracer.hpp"
#define EMULATOR_TRACED(...) __VA_ARGS__
#else
#define EMULATOR_TRACED(...)
#endif
