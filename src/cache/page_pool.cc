#include "cache/page_pool.h"

#include <algorithm>

#include "core/check.h"

namespace butter {

namespace {

int64_t slab_bytes_for(int64_t block_bytes) {
  return round_up(block_bytes, PagePool::kSlabBytes);
}

}  // namespace

struct PagePool::Slab {
  Buffer buffer;
  BlockShape shape;
  std::vector<std::byte*> free_blocks;

  int64_t bytes() const { return buffer.bytes(); }
  bool empty() const { return static_cast<int64_t>(free_blocks.size()) == shape.slab_blocks; }
};

PagePool::PagePool(int64_t budget_bytes, Hooks hooks)
    : budget_bytes_(budget_bytes), hooks_(std::move(hooks)) {}

PagePool::~PagePool() = default;

BlockShape::BlockShape(int64_t block_bytes)
    : BlockShape(block_bytes, block_bytes, PagePool::slab_blocks(block_bytes)) {}

int64_t PagePool::slab_blocks(int64_t block_bytes, int64_t least) {
  const auto waste = [&](int64_t blocks) {
    const int64_t bytes = slab_bytes_for(blocks * block_bytes);
    return static_cast<double>(bytes - blocks * block_bytes) / static_cast<double>(bytes);
  };
  const int64_t first = std::max(least, kSlabBytes / block_bytes);
  int64_t best = std::max<int64_t>(1, first);
  for (int64_t blocks = best; blocks < first + 32 && waste(best) > 1.0 / 32; ++blocks) {
    if (waste(blocks) < waste(best)) best = blocks;
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

Result<PagePool::Slab*> PagePool::slab_with_room(const BlockShape& shape) {
  auto& slabs = classes_[shape];
  // Newest first: older slabs drain and go back.
  for (auto slab = slabs.rbegin(); slab != slabs.rend(); ++slab) {
    if (!(*slab)->free_blocks.empty()) return slab->get();
  }
  BUTTER_ASSIGN(Buffer buffer, hooks_.allocate(slab_bytes_for(shape.slab_blocks * shape.bytes)));
  auto slab = std::make_unique<Slab>(Slab{std::move(buffer), shape, {}});
  for (int64_t i = shape.slab_blocks - 1; i >= 0; --i)
    slab->free_blocks.push_back(slab->buffer.data() + i * shape.piece_bytes);
  slab_bytes_ += slab->bytes();
  slabs.push_back(std::move(slab));
  return slabs.back().get();
}

Result<PageHandle> PagePool::lease(const BlockShape& shape) {
  const int64_t block_bytes = shape.bytes;
  BUTTER_CHECK(block_bytes > 0 && block_bytes % shape.piece_bytes == 0 &&
               shape.piece_bytes % Buffer::kAlignment == 0);
  std::lock_guard<std::mutex> lock(mutex_);
  collect_pending();
  const int64_t in_use = leased_bytes_ + pending_bytes_;
  if (block_bytes > budget_bytes_ - in_use) {
    return fail(StatusCode::kOutOfMemory,
                "the cache budget is {} bytes; {} are in use and a page of {} bytes does not fit",
                budget_bytes_, in_use, block_bytes);
  }
  BUTTER_ASSIGN(Slab * slab, slab_with_room(shape));
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
  leased_bytes_ -= page->slab->shape.bytes;
  pending_bytes_ += page->slab->shape.bytes;
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
  pending_bytes_ -= slab->shape.bytes;
  page = Page{};
  unused_indices_.push_back(index);
  if (!slab->empty()) return;
  const auto owner = classes_.find(slab->shape);
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
