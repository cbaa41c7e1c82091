// Search for the values of a trellis code.
//
// A start is a linear map over GF(2) from window to rank: the window gets the value of that rank among the 64
// quantiles of a Gaussian. Both the newest and the oldest bits of a window must reach every coarse rank, so
// that the windows that follow a state, and those that lead to one, are spread over the whole range. Starts
// are compared after a few iterations of Lloyd's algorithm (code rows by the trellis, move each value to the
// mean of what was coded with it), the best of them once more over more rows; the winner is polished.
#pragma once

#include <cstdint>

#include "codebook.h"

namespace butter {

struct CodebookSearch {
  int bits = 2;
  int starts = 200;
  int polish_rounds = 40;
  uint64_t seed = 1;
  // Search stops after this time with the best so far: then the result depends on the machine.
  double seconds = 600;
};

TrellisValues search_codebook(const CodebookSearch& search);

}  // namespace butter
