#include "cache/page_pool.h"

#include <algorithm>

#include "core/check.h"

namespace butter {

struct PagePool::Slab {
  Buffer buffer;
  int64_t block_bytes = 0;
  std::vector<std::byte*> free_blocks;
  int64_t blocks = 0;

  int64_t bytes() const { return buffer.bytes(); }
  bool empty() const { return static_cast<int64_t>(free_blocks.size()) == blocks; }
};

PagePool::PagePool(int64_t budget_bytes, Hooks hooks)
    : budget_bytes_(budget_bytes), hooks_(std::move(hooks)) {}

PagePool::~PagePool() = default;

// As few blocks as fill whole huge pages but for a thirty-second, or the best there is among the first 32.
PagePool::SlabShape PagePool::slab_shape(int64_t block_bytes) {
  SlabShape best;
  const int64_t least = std::max<int64_t>(1, kSlabBytes / block_bytes);
  for (int64_t blocks = least; blocks < least + 32; ++blocks) {
    const SlabShape shape{blocks, round_up(blocks * block_bytes, kSlabBytes)};
    const auto waste = [&](const SlabShape& s) {
      return static_cast<double>(s.bytes - s.blocks * block_bytes) / static_cast<double>(s.bytes);
    };
    if (best.blocks == 0 || waste(shape) < waste(best)) best = shape;
    if (waste(best) <= 1.0 / 32) break;
  }
  return best;
}

const PagePool::Page* PagePool::find(PageHandle page) const {
  if (!page || page.index >= pages_.size()) return nullptr;
  const Page& found = pages_[page.index];
  return found.generation == page.generation && found.owners > 0 ? &found : nullptr;
}

PagePool::Page* PagePool::find(PageHandle page) {
  return const_cast<Page*>(static_cast<const PagePool*>(this)->find(page));
}

Result<PagePool::Slab*> PagePool::slab_with_room(int64_t block_bytes) {
  auto& slabs = classes_[block_bytes];
  // Newest first: older slabs drain and go back.
  for (auto slab = slabs.rbegin(); slab != slabs.rend(); ++slab) {
    if (!(*slab)->free_blocks.empty()) return slab->get();
  }
  const SlabShape shape = slab_shape(block_bytes);
  auto slab = std::make_unique<Slab>();
  BUTTER_ASSIGN(slab->buffer, hooks_.allocate(shape.bytes));
  slab->block_bytes = block_bytes;
  slab->blocks = shape.blocks;
  for (int64_t i = slab->blocks - 1; i >= 0; --i)
    slab->free_blocks.push_back(slab->buffer.data() + i * block_bytes);
  slab_bytes_ += slab->bytes();
  slabs.push_back(std::move(slab));
  return slabs.back().get();
}

Result<PageHandle> PagePool::lease(int64_t block_bytes) {
  BUTTER_CHECK(block_bytes > 0 && block_bytes % Buffer::kAlignment == 0);
  std::lock_guard<std::mutex> lock(mutex_);
  collect_pending();
  const int64_t in_use = leased_bytes_ + pending_bytes_;
  if (block_bytes > budget_bytes_ - in_use) {
    return fail(StatusCode::kOutOfMemory,
                "the cache budget is {} bytes; {} are in use and a page of {} bytes does not fit",
                budget_bytes_, in_use, block_bytes);
  }
  BUTTER_ASSIGN(Slab * slab, slab_with_room(block_bytes));
  uint32_t index;
  if (unused_indices_.empty()) {
    index = static_cast<uint32_t>(pages_.size());
    pages_.emplace_back();
  } else {
    index = unused_indices_.back();
    unused_indices_.pop_back();
  }
  Page& page = pages_[index];
  page = Page{slab, slab->free_blocks.back(), next_generation_++, 1, 0};
  slab->free_blocks.pop_back();
  leased_bytes_ += block_bytes;
  peak_leased_bytes_ = std::max(peak_leased_bytes_, leased_bytes_);
  return PageHandle{index, page.generation};
}

Status PagePool::retain(PageHandle handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  Page* page = find(handle);
  if (page == nullptr)
    return fail(StatusCode::kStale, "stale page handle {}: it was released", handle.generation);
  ++page->owners;
  return {};
}

Status PagePool::release(PageHandle handle, uint64_t fence) {
  std::lock_guard<std::mutex> lock(mutex_);
  Page* page = find(handle);
  if (page == nullptr)
    return fail(StatusCode::kStale, "stale page handle {}: it was released", handle.generation);
  page->fence = std::max(page->fence, fence);
  if (--page->owners > 0) return {};
  leased_bytes_ -= page->slab->block_bytes;
  pending_bytes_ += page->slab->block_bytes;
  pending_.push_back(handle.index);
  collect_pending();
  return {};
}

void PagePool::collect_pending() {
  if (pending_.empty()) return;
  const uint64_t completed = hooks_.completed();
  const auto waits = [&](uint32_t index) { return pages_[index].fence > completed; };
  const auto first_free = std::stable_partition(pending_.begin(), pending_.end(), waits);
  for (auto index = first_free; index != pending_.end(); ++index) free_page(*index);
  pending_.erase(first_free, pending_.end());
}

void PagePool::free_page(uint32_t index) {
  Page& page = pages_[index];
  Slab* slab = page.slab;
  slab->free_blocks.push_back(page.data);
  pending_bytes_ -= slab->block_bytes;
  page = Page{};
  unused_indices_.push_back(index);
  if (!slab->empty()) return;
  const auto owner = classes_.find(slab->block_bytes);
  auto& slabs = owner->second;
  slab_bytes_ -= slab->bytes();
  slabs.erase(std::find_if(slabs.begin(), slabs.end(), [&](const auto& held) { return held.get() == slab; }));
  if (slabs.empty()) classes_.erase(owner);
}

Result<std::byte*> PagePool::data(PageHandle handle) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Page* page = find(handle);
  if (page == nullptr)
    return fail(StatusCode::kStale, "stale page handle {}: it was released", handle.generation);
  return page->data;
}

int PagePool::owners(PageHandle handle) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Page* page = find(handle);
  return page == nullptr ? 0 : page->owners;
}

int64_t PagePool::leased_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return leased_bytes_;
}

int64_t PagePool::pending_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return pending_bytes_;
}

int64_t PagePool::slab_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return slab_bytes_;
}

int64_t PagePool::peak_leased_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return peak_leased_bytes_;
}

void PagePool::reset_peak() {
  std::lock_guard<std::mutex> lock(mutex_);
  peak_leased_bytes_ = leased_bytes_;
}

int64_t PagePool::free_blocks(int64_t block_bytes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return (budget_bytes_ - leased_bytes_ - pending_bytes_) / block_bytes;
}

}  // namespace butter
