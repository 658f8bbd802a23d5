// What the forward pass left of a query, as the gradients need it.
#pragma once

struct alignas(8) RowSums {
    float lse;    // as weights subtract it; +inf, which makes them all 0, for a query without keys or past the last one
    float delta;  // sum of dO * O
};
