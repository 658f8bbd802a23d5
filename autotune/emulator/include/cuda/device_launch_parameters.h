// Kernels need nothing of the runtime: what they use is in emulator.hpp.
#pragma once
