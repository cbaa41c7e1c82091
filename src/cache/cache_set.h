// CacheSet: what one sequence owns: its pages of every window class, its recurrent state, and the only
// position().
//
// A step is a transaction. begin_step() leases every page that the step will write and gives the device its
// view; commit_step() advances the position, makes full pages sealed and returns those that no later query
// sees; abort_step() returns the leases and leaves the sequence as it was. Rows and state of committed
// positions are never overwritten by a step.
//
// May be destroyed with a step in flight: its pages wait for the fence of the last one. Move-only. Not
// thread-safe: one owner drives a sequence. Its pool must outlive it.
#pragma once

#include <memory>
#include <vector>

#include "cache/cache_layout.h"
#include "cache/page_pool.h"
#include "cache/page_table.h"
#include "cache/state_ring.h"
#include "kernels/device.h"

namespace butter {

// The blocks of one window class of a sequence. Null: it has none.
struct ClassBlocks {
  PageRuns runs;
  std::vector<std::byte*> pages;  // of the runs, in order
  std::byte* open = nullptr;
  std::byte* pinned = nullptr;
  std::byte* centre = nullptr;
};

class CacheSet {
 public:
  CacheSet(std::shared_ptr<const CacheLayout> layout, std::shared_ptr<PagePool> pool);
  ~CacheSet();
  CacheSet(CacheSet&&) noexcept;
  CacheSet& operator=(CacheSet&&) noexcept;

  const CacheLayout& layout() const { return *layout_; }
  // Positions fed so far; the next token has this position.
  int64_t position() const { return position_; }

  // Leases what `rows` more positions need. On failure nothing has changed. One step at a time.
  Status begin_step(int rows);
  // The device's view of the step that was begun; valid until it is committed or aborted.
  StepSequence step_view(int first_row) const;
  // `fence`: the submission that read and wrote the pages.
  void commit_step(uint64_t fence);
  void abort_step(uint64_t fence);

  // Goes back to position n, or to the nearest position below it that can be reached: n where it lies in the
  // open page, else the page boundary below it, else (where a window has let go of pages that a query there
  // would see) the end of the pages that were kept. Where there is recurrent state, only its snapshots can be
  // reached, and the beginning. Returns the position reached; feed the rest again.
  Result<int64_t> truncate(int64_t n, uint64_t fence);

  // Whether steps must end at page boundaries for there to be snapshots of the state.
  bool takes_snapshots() const { return layout_->state_blocks() > StateRing::blocks(0); }
  // Keeps the newest snapshot while later ones come and go.
  void mark_snapshot() { state_.mark(); }

  // A second sequence with the same positions: sealed pages are shared, open rows and state copied.
  Result<CacheSet> fork() const;

  // An empty set's twin at `position`: holds what a sequence holds there; the caller writes the rows
  // (blocks()) before the first step.
  Result<CacheSet> leased_at(int64_t position) const;
  // Where the rows of one window class are, for those who save and restore them. Between steps only.
  ClassBlocks blocks(size_t index) const;
  // The recurrent state at position(), layout().state.bytes; null where there is none yet.
  std::byte* state() const { return state_.committed(); }

  // Goes on to `position`, a multiple of 64 beyond this one, which must be one too, with copies of the sealed
  // pages held now, in turn: for benchmarks. Every page owns its bytes. Where memory ends it stops at a page
  // boundary on the way.
  Status repeat_pages_to(int64_t position, uint64_t fence);

  // Bytes of the pages that this sequence holds, shared ones counted in full.
  int64_t held_bytes() const;
  // A row for each layer of the model; kv_heads 0 where it has no KV cache.
  std::vector<LayerMemory> layer_caches() const;

 private:
  struct ClassPagesOwned;
  struct StepSpan;

  Result<HeldPage> lease(const BlockLayout& layout);
  void release(HeldPage page, uint64_t fence);
  Status begin_class_step(size_t index, int rows);
  Status lease_step_pages(size_t index, const StepSpan& span);
  void show_step_pages(size_t index, const StepSpan& span);
  int64_t reachable(int64_t target) const;
  int64_t reachable_state(int64_t n) const;
  Status lease_repeated_page(size_t index);
  Status lease_state();
  void release_all();

  std::shared_ptr<const CacheLayout> layout_;
  std::shared_ptr<PagePool> pool_;
  int64_t position_ = 0;
  int step_rows_ = 0;
  uint64_t last_fence_ = 0;  // the last submission that read or wrote the pages
  std::vector<ClassPagesOwned> classes_;
  std::vector<ClassPages> step_views_;
  StateRing state_;
};

// A sequence's cache for a model: refuses options that cannot be served (make_cache_layout), leases nothing
// yet.
Result<CacheSet> make_layer_caches(const CacheModel& model, const CacheOptions& options,
                                   std::shared_ptr<PagePool> pool);

}  // namespace butter
