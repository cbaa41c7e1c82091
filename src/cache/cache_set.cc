#include "cache/cache_set.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace butter {

// The pages of one window class. In a scheme that does not seal, the open page is a page like the others, and
// filling it makes it a sealed one; else it is a block of its own that is used again for the next page.
struct CacheSet::ClassPagesOwned {
  PageTable table;
  HeldPage open;    // holds rows of page position / 64, if the position is not at its start
  HeldPage pinned;  // schemes that pin, from the first step on
  HeldPage centre;  // schemes that centre, from the step on that fills page 0; forks share it

  // Of the step that was begun.
  std::vector<HeldPage>
      leased;  // sealed pages to come, from page table.end() on, then in raw schemes the new open page
  HeldPage next_open;   // in schemes that seal: where a chunk's last page goes while the first one is read
  bool opened = false;  // it leased the open block, too
  bool pinned_leased = false;  // and the pinned rows
  bool centre_leased = false;  // and the centre

  // What the view's spans point at.
  std::vector<std::byte*> kept_bases;
  std::vector<std::byte*> sealed_bases;
  std::vector<std::byte*> raw_bases;
};

namespace {

bool starts_page(int64_t position) {
  return position % kPageRows == 0;
}

}  // namespace

// Where the rows of a step stand among the pages.
struct CacheSet::StepSpan {
  int64_t first_page;
  int64_t last_page;
  int64_t full_end;    // pages below it are full after the step
  bool has_open_rows;  // the first page holds rows of earlier steps
  bool ends_page;      // the last page is full after the step
  bool crosses;        // rows of earlier steps are read while a later page stays open

  StepSpan(int64_t position, int rows)
      : first_page(page_of(position)),
        last_page(page_of(position + rows - 1)),
        full_end(page_of(position + rows)),
        has_open_rows(!starts_page(position)),
        ends_page(starts_page(position + rows)),
        crosses(has_open_rows && last_page > first_page && !ends_page) {}
};

CacheSet::CacheSet(std::shared_ptr<const CacheLayout> layout, std::shared_ptr<PagePool> pool)
    : layout_(std::move(layout)), pool_(std::move(pool)), state_(layout_->options.state_snapshots) {
  for (const WindowClass& window_class : layout_->classes) {
    ClassPagesOwned& pages = classes_.emplace_back();
    pages.table = PageTable(kept_pages(window_class.window, layout_->pins()));
  }
  step_views_.resize(classes_.size());
}

CacheSet::~CacheSet() {
  if (pool_) release_all();
}

CacheSet::CacheSet(CacheSet&&) noexcept = default;

CacheSet& CacheSet::operator=(CacheSet&& other) noexcept {
  if (this == &other) return *this;
  if (pool_) release_all();
  layout_ = std::move(other.layout_);
  pool_ = std::move(other.pool_);
  position_ = other.position_;
  step_rows_ = other.step_rows_;
  last_fence_ = other.last_fence_;
  classes_ = std::move(other.classes_);
  step_views_ = std::move(other.step_views_);
  state_ = std::move(other.state_);
  return *this;
}

Result<HeldPage> CacheSet::lease(const BlockLayout& layout) {
  HeldPage page;
  const bool one_piece = layout.side_by_side == 1;
  BUTTER_ASSIGN(page.handle, pool_->lease(one_piece ? BlockShape(layout.bytes)
                                                    : BlockShape{layout.bytes, layout.layers[0].bytes,
                                                                 layout.side_by_side}));
  BUTTER_ASSIGN(page.data, pool_->data(page.handle));
  return page;
}

void CacheSet::release(HeldPage page, uint64_t fence) {
  if (page.handle) BUTTER_CHECK(pool_->release(page.handle, fence).has_value());
}

void CacheSet::release_all() {
  for (ClassPagesOwned& pages : classes_) {
    for (const HeldPage& page : pages.table.kept()) release(page, last_fence_);
    for (const HeldPage& page : pages.table.recent()) release(page, last_fence_);
    for (const HeldPage& page : pages.leased) release(page, last_fence_);
    for (const HeldPage& page : {pages.open, pages.pinned, pages.centre, pages.next_open})
      release(page, last_fence_);
  }
  classes_.clear();
  for (const HeldPage& block : state_.held()) release(block, last_fence_);
  state_ = StateRing();
}

// All the blocks that the state will ever take.
Status CacheSet::lease_state() {
  if (state_.leased() || layout_->state.bytes == 0) return {};
  std::vector<HeldPage> blocks;
  for (int i = 0; i < layout_->state_blocks(); ++i) {
    const auto handle = pool_->lease(BlockShape(layout_->state.bytes));
    if (!handle) {
      for (const HeldPage& block : blocks) release(block, 0);
      return fail(handle.error());
    }
    blocks.push_back({*handle, *pool_->data(*handle)});
    clear_padding(layout_->state_layers, layout_->state, blocks.back().data);
  }
  state_.take(std::move(blocks));
  return {};
}

Status CacheSet::begin_step(int rows) {
  BUTTER_CHECK(rows > 0 && step_rows_ == 0);
  BUTTER_TRY(lease_state());
  step_rows_ = rows;
  for (size_t index = 0; index < classes_.size(); ++index) {
    if (Status status = begin_class_step(index, rows); !status) {
      abort_step(0);
      return status;
    }
  }
  return {};
}

// Leases a class's pages for positions [position_, position_ + rows) and shows them in its view.
Status CacheSet::begin_class_step(size_t index, int rows) {
  if (layout_->classes[index].layers.empty()) return {};
  const StepSpan span(position_, rows);
  BUTTER_TRY(lease_step_pages(index, span));
  show_step_pages(index, span);
  return {};
}

Status CacheSet::lease_step_pages(size_t index, const StepSpan& span) {
  const WindowClass& window_class = layout_->classes[index];
  ClassPagesOwned& pages = classes_[index];
  const bool seals = layout_->seals();
  if (layout_->pins() && !pages.pinned.handle) {
    BUTTER_ASSIGN(pages.pinned, lease(window_class.pinned));
    pages.pinned_leased = true;
  }
  if (layout_->options.scheme.centres() && span.first_page == 0 && span.full_end > 0) {
    BUTTER_ASSIGN(pages.centre, lease(window_class.centre));
    pages.centre_leased = true;
  }
  if (seals && !pages.open.handle) {
    BUTTER_ASSIGN(pages.open, lease(window_class.raw));
    pages.opened = true;
  }
  // Sealed pages to be: in raw schemes the rows go straight to them, and the open page is one of them
  // already.
  const int64_t lease_from = !seals && span.has_open_rows ? span.first_page + 1 : span.first_page;
  const int64_t lease_end = seals ? span.full_end : span.last_page + 1;
  for (int64_t page = lease_from; page < lease_end; ++page) {
    BUTTER_ASSIGN(HeldPage held, lease(window_class.sealed));
    pages.leased.push_back(held);
  }
  // The chunk's last page must not overwrite the open rows that its first page is still read with.
  if (seals && span.crosses) {
    BUTTER_ASSIGN(pages.next_open, lease(window_class.raw));
  }
  return {};
}

void CacheSet::show_step_pages(size_t index, const StepSpan& span) {
  const WindowClass& window_class = layout_->classes[index];
  ClassPagesOwned& pages = classes_[index];
  pages.kept_bases.clear();
  pages.sealed_bases.clear();
  pages.raw_bases.clear();
  for (const HeldPage& page : pages.table.kept()) pages.kept_bases.push_back(page.data);
  for (const HeldPage& page : pages.table.recent()) pages.sealed_bases.push_back(page.data);
  if (!layout_->seals()) {
    if (span.has_open_rows) pages.raw_bases.push_back(pages.open.data);
    for (const HeldPage& page : pages.leased) pages.raw_bases.push_back(page.data);
    // A full page of the step is read by the pages after it.
    pages.sealed_bases.insert(pages.sealed_bases.end(), pages.raw_bases.begin(), pages.raw_bases.end());
  } else {
    for (const HeldPage& page : pages.leased) pages.sealed_bases.push_back(page.data);
    for (int64_t page = span.first_page; page <= span.last_page; ++page) {
      std::byte* base = nullptr;  // an inner page: the device's scratch
      if (page == span.first_page && span.has_open_rows) {
        base = pages.open.data;
      } else if (page == span.last_page && !span.ends_page) {
        base = span.crosses ? pages.next_open.data : pages.open.data;
      }
      pages.raw_bases.push_back(base);
    }
  }

  ClassPages& view = step_views_[index];
  view.kept = pages.kept_bases;
  view.sealed = pages.sealed_bases;
  view.first_sealed = pages.table.recent_begin();
  view.raw = pages.raw_bases;
  view.first_raw = span.first_page;
  view.pinned = pages.pinned.data;
  view.centre = pages.centre.data;
  view.sealed_layout = &window_class.sealed;
  view.raw_layout = &layout_->open_block(window_class);
  view.pinned_layout = &window_class.pinned;
  view.centre_layout = &window_class.centre;
  view.window = window_class.window;
}

StepSequence CacheSet::step_view(int first_row) const {
  BUTTER_CHECK(step_rows_ > 0);
  StepSequence view{first_row,  step_rows_, position_, layout_->max_positions(), &layout_->options.scheme,
                    step_views_};
  if (state_.leased()) {
    view.state = state_.committed();
    view.next_state = state_.next();
  }
  return view;
}

void CacheSet::commit_step(uint64_t fence) {
  BUTTER_CHECK(step_rows_ > 0);
  last_fence_ = fence;
  const bool seals = layout_->seals();
  const int64_t end = position_ + step_rows_;
  const int64_t full_end = page_of(end);
  for (size_t index = 0; index < classes_.size(); ++index) {
    ClassPagesOwned& pages = classes_[index];
    if (layout_->classes[index].layers.empty()) continue;
    if (!seals && !starts_page(position_) && pages.table.end() < full_end) {
      pages.table.append(pages.open);
      pages.open = {};
    }
    for (const HeldPage& page : pages.leased) {
      if (pages.table.end() < full_end) {
        pages.table.append(page);
      } else {
        pages.open = page;
      }
    }
    pages.leased.clear();
    pages.opened = pages.pinned_leased = pages.centre_leased = false;
    if (pages.next_open.handle) {
      release(std::exchange(pages.open, std::exchange(pages.next_open, {})), fence);
    }
    HeldPage retired;
    const int64_t first_live = first_live_page(layout_->classes[index].window, end);
    while (pages.table.retire_below(first_live, &retired)) release(retired, fence);
  }
  if (state_.leased()) state_.commit(end);
  position_ = end;
  step_rows_ = 0;
}

void CacheSet::abort_step(uint64_t fence) {
  last_fence_ = std::max(last_fence_, fence);
  for (ClassPagesOwned& pages : classes_) {
    for (const HeldPage& page : pages.leased) release(page, fence);
    pages.leased.clear();
    release(std::exchange(pages.next_open, {}), fence);
    if (pages.opened) release(std::exchange(pages.open, {}), fence);
    if (pages.pinned_leased) release(std::exchange(pages.pinned, {}), fence);
    if (pages.centre_leased) release(std::exchange(pages.centre, {}), fence);
    pages.opened = pages.pinned_leased = pages.centre_leased = false;
  }
  step_rows_ = 0;
}

// The highest position at or below `target` whose query finds every page that it sees.
int64_t CacheSet::reachable(int64_t target) const {
  for (size_t index = 0; index < classes_.size(); ++index) {
    const PageTable& table = classes_[index].table;
    if (layout_->classes[index].layers.empty() || page_of(target) <= table.kept_end()) continue;
    const int64_t needed =
        std::max(first_live_page(layout_->classes[index].window, target), table.kept_end());
    if (needed < page_of(target) && needed < table.recent_begin())
      return reachable(table.kept_end() * kPageRows);
  }
  return target;
}

// The same for the recurrent state: the highest snapshot whose position the pages reach, too.
int64_t CacheSet::reachable_state(int64_t n) const {
  int64_t best = 0;
  for (const int64_t position : state_.snapshots()) {
    if (position <= n && reachable(position) == position) best = std::max(best, position);
  }
  return best;
}

Result<int64_t> CacheSet::truncate(int64_t n, uint64_t fence) {
  BUTTER_CHECK(step_rows_ == 0);
  if (n < 0 || n > position_) {
    return fail(StatusCode::kInvalidArgument, "cannot truncate to position {}: the sequence has {}", n,
                position_);
  }
  if (n == position_) return n;
  const bool in_open_page = page_of(n) == page_of(position_);
  const int64_t target =
      state_.leased() ? reachable_state(n) : reachable(in_open_page ? n : n / kPageRows * kPageRows);
  if (state_.leased()) state_.restore(target);
  for (ClassPagesOwned& pages : classes_) {
    // In a raw scheme an open page without rows is no page at all; in schemes that seal its block stays.
    const bool open_is_empty = page_of(target) != page_of(position_) || starts_page(target);
    if (!layout_->seals() && open_is_empty) {
      release(std::exchange(pages.open, {}), fence);
    }
    // The rows that it was made of go, and forks may still read it: the next page 0 gets another.
    if (page_of(target) == 0) release(std::exchange(pages.centre, {}), fence);
    HeldPage cut;
    while (pages.table.cut_from(page_of(target), &cut)) release(cut, fence);
  }
  position_ = target;
  return target;
}

Result<CacheSet> CacheSet::fork() const {
  BUTTER_CHECK(step_rows_ == 0);
  CacheSet twin(layout_, pool_);
  twin.position_ = position_;
  twin.last_fence_ = last_fence_;
  const auto copy = [&](const HeldPage& from, const BlockLayout& layout) -> Result<HeldPage> {
    if (!from.handle) return HeldPage{};
    BUTTER_ASSIGN(HeldPage to, twin.lease(layout));
    copy_block(layout, from.data, to.data);
    return to;
  };
  for (size_t index = 0; index < classes_.size(); ++index) {
    const WindowClass& window_class = layout_->classes[index];
    const ClassPagesOwned& from = classes_[index];
    ClassPagesOwned& to = twin.classes_[index];
    to.table = from.table;
    for (const auto* run : {&from.table.kept(), &from.table.recent()}) {
      for (const HeldPage& page : *run) BUTTER_CHECK(pool_->retain(page.handle).has_value());
    }
    if (from.centre.handle) {
      BUTTER_CHECK(pool_->retain(from.centre.handle).has_value());
      to.centre = from.centre;
    }
    BUTTER_ASSIGN(to.open, copy(from.open, layout_->open_block(window_class)));
    BUTTER_ASSIGN(to.pinned, copy(from.pinned, window_class.pinned));
  }
  if (state_.leased()) {
    BUTTER_TRY(twin.lease_state());
    state_.copy_to(twin.state_, layout_->state.bytes);
  }
  return twin;
}

Result<CacheSet> CacheSet::leased_at(int64_t position) const {
  BUTTER_CHECK(position_ == 0 && step_rows_ == 0);
  CacheSet twin(layout_, pool_);
  if (position == 0) return twin;
  twin.position_ = position;
  BUTTER_TRY(twin.lease_state());
  if (twin.state_.leased()) twin.state_.begin_filled();
  for (size_t index = 0; index < classes_.size(); ++index) {
    const WindowClass& window_class = layout_->classes[index];
    ClassPagesOwned& pages = twin.classes_[index];
    if (window_class.layers.empty()) continue;
    const PageRuns runs = page_runs(window_class.window, layout_->pins(), position);
    for (int64_t page = 0; page < runs.kept_end; ++page) {
      BUTTER_ASSIGN(const HeldPage held, twin.lease(window_class.sealed));
      pages.table.append(held);
    }
    pages.table.skip_to(runs.recent_begin);
    for (int64_t page = runs.recent_begin; page < runs.end; ++page) {
      BUTTER_ASSIGN(const HeldPage held, twin.lease(window_class.sealed));
      pages.table.append(held);
    }
    if (layout_->seals() || !starts_page(position)) {
      BUTTER_ASSIGN(pages.open, twin.lease(layout_->open_block(window_class)));
    }
    if (layout_->pins()) {
      BUTTER_ASSIGN(pages.pinned, twin.lease(window_class.pinned));
    }
    if (layout_->options.scheme.centres() && runs.end > 0) {
      BUTTER_ASSIGN(pages.centre, twin.lease(window_class.centre));
    }
  }
  return twin;
}

ClassBlocks CacheSet::blocks(size_t index) const {
  BUTTER_CHECK(step_rows_ == 0);
  const ClassPagesOwned& pages = classes_[index];
  ClassBlocks blocks;
  blocks.runs = {pages.table.kept_end(), pages.table.recent_begin(), pages.table.end()};
  for (const auto* run : {&pages.table.kept(), &pages.table.recent()}) {
    for (const HeldPage& page : *run) blocks.pages.push_back(page.data);
  }
  blocks.open = pages.open.data;
  blocks.pinned = pages.pinned.data;
  blocks.centre = pages.centre.data;
  return blocks;
}

Status CacheSet::repeat_pages_to(int64_t position, uint64_t fence) {
  if (position_ == 0 || !starts_page(position_) || !starts_page(position) || position < position_) {
    return fail(StatusCode::kInvalidArgument,
                "cannot repeat pages from position {} to {}: both must be multiples of {}, the first above 0",
                position_, position, kPageRows);
  }
  state_.drop_snapshots();
  for (; position_ < position; position_ += kPageRows) {
    for (size_t index = 0; index < classes_.size(); ++index) {
      if (Status status = lease_repeated_page(index); !status) {
        abort_step(fence);
        return status;
      }
    }
    for (size_t index = 0; index < classes_.size(); ++index) {
      PageTable& table = classes_[index].table;
      for (const HeldPage& page : classes_[index].leased) table.append(page);
      classes_[index].leased.clear();
      HeldPage retired;
      const int64_t first_live = first_live_page(layout_->classes[index].window, position_ + kPageRows);
      while (table.retire_below(first_live, &retired)) release(retired, fence);
    }
  }
  return {};
}

// A copy of one of a class's pages: page n takes after the page that stood n mod (pages at the start) places
// from the oldest.
Status CacheSet::lease_repeated_page(size_t index) {
  const WindowClass& window_class = layout_->classes[index];
  const PageTable& table = classes_[index].table;
  if (window_class.layers.empty()) return {};
  BUTTER_ASSIGN(const HeldPage copy, lease(window_class.sealed));
  classes_[index].leased.push_back(copy);
  const std::vector<HeldPage>& run = table.recent().empty() ? table.kept() : table.recent();
  if (run.empty()) return {};  // a window has let go of all: no query sees the copy either
  const HeldPage& from = run[static_cast<size_t>(table.end()) % run.size()];
  copy_block(window_class.sealed, from.data, copy.data);
  return {};
}

int64_t CacheSet::held_bytes() const {
  int64_t bytes = static_cast<int64_t>(state_.held().size()) * layout_->state.bytes;
  for (size_t index = 0; index < classes_.size(); ++index) {
    const WindowClass& window_class = layout_->classes[index];
    const ClassPagesOwned& pages = classes_[index];
    bytes += pages.table.pages_held() * window_class.sealed.bytes;
    if (pages.open.handle) bytes += layout_->open_block(window_class).bytes;
    if (pages.pinned.handle) bytes += window_class.pinned.bytes;
    if (pages.centre.handle) bytes += window_class.centre.bytes;
  }
  return bytes;
}

std::vector<LayerMemory> CacheSet::layer_caches() const {
  std::vector<LayerMemory> layers(static_cast<size_t>(layout_->layers));
  for (int i = 0; i < layout_->layers; ++i) layers[static_cast<size_t>(i)].layer = i;
  for (size_t index = 0; index < classes_.size(); ++index) {
    const WindowClass& window_class = layout_->classes[index];
    const ClassPagesOwned& pages = classes_[index];
    const BlockLayout& open = layout_->open_block(window_class);
    const int64_t sealed_pages = pages.table.pages_held();
    for (size_t i = 0; i < window_class.layers.size(); ++i) {
      int64_t bytes = sealed_pages * window_class.sealed.layers[i].bytes;
      if (pages.open.handle) bytes += open.layers[i].bytes;
      if (pages.pinned.handle) bytes += window_class.pinned.layers[i].bytes;
      if (pages.centre.handle) bytes += window_class.centre.layers[i].bytes;
      const int64_t rows = sealed_pages * kPageRows + position_ % kPageRows;
      layers[static_cast<size_t>(window_class.layers[i].layer)] = layer_memory(window_class, i, rows, bytes);
    }
  }
  add_state_layers(*layout_, static_cast<int>(state_.held().size()), layers);
  return layers;
}

Result<CacheSet> make_layer_caches(const CacheModel& model, const CacheOptions& options,
                                   std::shared_ptr<PagePool> pool) {
  BUTTER_ASSIGN(auto layout, make_cache_layout(model, options));
  return CacheSet(std::move(layout), std::move(pool));
}

}  // namespace butter
