// Window: which positions a query sees. Arithmetic on positions, nothing else.
//
// A query at p sees key k when k <= p and (k < keep or p - k < max_size - keep): the first `keep`
// positions, and the last max_size - keep with the query's own among them. max_size 0 means no window.
// The user's window and a model's sliding layers are the same thing; a model's window has keep 0.
#pragma once

#include <algorithm>
#include <cstdint>

namespace butter {

struct Window {
  int64_t max_size = 0;
  int64_t keep = 0;

  bool none() const { return max_size == 0; }
  bool operator==(const Window&) const = default;

  // First position of the recent part that a query at p sees.
  int64_t recent_begin(int64_t p) const {
    return none() ? 0 : std::max<int64_t>(0, p + 1 - (max_size - keep));
  }
  bool sees(int64_t p, int64_t k) const { return k >= 0 && k <= p && (k < keep || k >= recent_begin(p)); }
};

// A layer's window: the smaller of the model's and the user's; the user's keep goes with the user's window.
inline Window combine_windows(Window model, Window user) {
  if (user.none()) return model;
  if (!model.none() && user.max_size >= model.max_size) return model;
  return user;
}

}  // namespace butter
