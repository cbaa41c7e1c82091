#include "checkpoint/tensor_table.h"

#include <algorithm>
#include <numeric>

#include "checkpoint/printable.h"

namespace butter {

Result<TensorTable> TensorTable::create(std::vector<TensorEntry> entries) {
  TensorTable table;
  // Stable, and empty data first where two begin at one place: that is no overlap.
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.bytes < b.bytes;
  });
  table.by_name_.resize(entries.size());
  std::iota(table.by_name_.begin(), table.by_name_.end(), 0u);
  const auto name = [&](uint32_t i) { return entries[i].name; };
  std::sort(table.by_name_.begin(), table.by_name_.end(),
            [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  for (size_t i = 1; i < table.by_name_.size(); ++i) {
    if (name(table.by_name_[i - 1]) == name(table.by_name_[i]))
      return fail(StatusCode::kCorrupt, "the tensor {} is there twice", printable(name(table.by_name_[i])));
  }
  for (size_t i = 1; i < entries.size(); ++i) {
    const TensorEntry& before = entries[i - 1];
    if (entries[i].begin - before.begin < before.bytes) {
      return fail(StatusCode::kCorrupt, "the tensors {} and {} overlap at byte {} of the data",
                  printable(before.name), printable(entries[i].name), entries[i].begin);
    }
  }
  table.entries_ = std::move(entries);
  return table;
}

const TensorEntry* TensorTable::find(std::string_view wanted) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), wanted,
                       [this](uint32_t i, std::string_view key) { return entries_[i].name < key; });
  return at != by_name_.end() && entries_[*at].name == wanted ? &entries_[*at] : nullptr;
}

}  // namespace butter
