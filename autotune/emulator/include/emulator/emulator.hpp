// Everything a rendered kernel may use. Precompiled; the first thing in every translation unit.
#pragma once

#define AUTOTUNE_EMULATOR 1

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmath>
#include <type_traits>
#include <utility>

#include <vector_types.h>
#include <vector_functions.h>

#include "context.hpp"
#include "thread.hpp"
#include "half.hpp"
#include "qualifiers.hpp"
#include "barrier.hpp"
#include "warp.hpp"
#include "atomics.hpp"
#include "memory.hpp"
#include "async.hpp"
#include "mbarrier.hpp"
#include "tensor_map.hpp"
#include "tensor_copy.hpp"
#include "overlap.hpp"
#include "warp_group.hpp"
#include "bits.hpp"
#include "math.hpp"
#include "launch.hpp"
