#include "cache/page_table.h"

#include <algorithm>

#include "core/check.h"

namespace butter {

void PageTable::skip_to(int64_t page) {
  BUTTER_CHECK(recent_.empty() && page >= end_ && (page == end_ || end_ == kept_limit_));
  end_ = page;
}

bool PageTable::retire_below(int64_t page, HeldPage* retired) {
  if (recent_.empty() || recent_begin() >= page) return false;
  *retired = recent_.front();
  recent_.erase(recent_.begin());
  return true;
}

bool PageTable::cut_from(int64_t page, HeldPage* cut) {
  if (recent_.empty()) end_ = std::min(end_, std::max(page, kept_end()));  // the gap between the runs
  if (end_ <= page) return false;
  std::vector<HeldPage>& run = recent_.empty() ? kept_ : recent_;
  *cut = run.back();
  run.pop_back();
  --end_;
  return true;
}

}  // namespace butter
