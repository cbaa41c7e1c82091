// PageTable: which pages of one window class a sequence holds, by logical page number.
//
// Two runs of sealed pages, [0, kept) and [first, end): between them are pages that no query sees any more
// and that went back to the pool. Beside them the open page, and in schemes that seal the pinned rows. Owners
// of handles only in the sense of bookkeeping: CacheSet leases and releases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/page_pool.h"

namespace butter {

struct HeldPage {
  PageHandle handle;
  std::byte* data = nullptr;
};

class PageTable {
 public:
  // Pages that stay whatever the window does: those with positions below `keep`.
  explicit PageTable(int64_t kept_pages = 0) : kept_limit_(kept_pages) {}

  int64_t end() const { return end_; }  // one past the newest sealed page
  int64_t kept_end() const { return static_cast<int64_t>(kept_.size()); }
  int64_t recent_begin() const { return end_ - static_cast<int64_t>(recent_.size()); }
  bool holds(int64_t page) const {
    return page >= 0 && page < end_ && (page < kept_end() || page >= recent_begin());
  }
  int64_t pages_held() const { return static_cast<int64_t>(kept_.size() + recent_.size()); }

  const std::vector<HeldPage>& kept() const { return kept_; }
  const std::vector<HeldPage>& recent() const { return recent_; }

  // Adds page number end().
  void append(HeldPage page) {
    (end_ < kept_limit_ ? kept_ : recent_).push_back(page);
    ++end_;
  }
  // The next page is number `page`: of those below it, only the kept ones are held. No recent page may be.
  void skip_to(int64_t page);
  // Takes out the oldest recent page, if it is below `page`. Kept pages stay.
  bool retire_below(int64_t page, HeldPage* retired);
  // Takes out the newest page held, if it is at or above `page`; when none is left there, end() is `page`.
  bool cut_from(int64_t page, HeldPage* cut);

 private:
  int64_t kept_limit_;
  std::vector<HeldPage> kept_;
  std::vector<HeldPage> recent_;
  int64_t end_ = 0;
};

}  // namespace butter
