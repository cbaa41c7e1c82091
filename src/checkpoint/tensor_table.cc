#include "checkpoint/tensor_table.h"

#include <algorithm>
#include <numeric>

#include "checkpoint/printable.h"

namespace butter {

std::optional<std::pair<uint32_t, uint32_t>> TensorTable::index_names() {
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  const auto name = [this](uint32_t i) { return entries_[i].name; };
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return name(a) != name(b) ? name(a) < name(b) : a < b; });
  for (size_t i = 1; i < by_name_.size(); ++i) {
    if (name(by_name_[i - 1]) == name(by_name_[i])) return std::pair{by_name_[i - 1], by_name_[i]};
  }
  return std::nullopt;
}

Status TensorTable::index_unique_names() {
  const auto same = index_names();
  if (!same) return {};
  return fail(StatusCode::kCorrupt, "the tensor {} is there twice", printable(entries_[same->first].name));
}

Result<TensorTable> TensorTable::of(std::vector<TensorEntry> entries) {
  TensorTable table;
  table.entries_ = std::move(entries);
  BUTTER_TRY(table.index_unique_names());
  return table;
}

Result<TensorTable> TensorTable::create(std::vector<TensorEntry> entries) {
  TensorTable table;
  // Stable, and empty data first where two begin at one place: that is no overlap.
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.bytes < b.bytes;
  });
  table.entries_ = std::move(entries);
  BUTTER_TRY(table.index_unique_names());
  for (size_t i = 1; i < table.entries_.size(); ++i) {
    const TensorEntry& before = table.entries_[i - 1];
    const TensorEntry& after = table.entries_[i];
    if (after.begin - before.begin < before.bytes) {
      return fail(StatusCode::kCorrupt, "the tensors {} and {} overlap at byte {} of the data",
                  printable(before.name), printable(after.name), after.begin);
    }
  }
  return table;
}

Result<TensorTable> TensorTable::join(std::span<const Part> parts) {
  TensorTable table;
  std::vector<size_t> ends;  // of each part's entries
  for (const Part& part : parts) {
    const std::span<const TensorEntry> entries = part.tensors->entries();
    table.entries_.insert(table.entries_.end(), entries.begin(), entries.end());
    ends.push_back(table.entries_.size());
  }
  const auto same = table.index_names();
  if (!same) return table;
  const auto file_of = [&](uint32_t entry) {
    const auto part = std::upper_bound(ends.begin(), ends.end(), size_t{entry}) - ends.begin();
    return printable(parts[static_cast<size_t>(part)].file_name);
  };
  return fail(StatusCode::kCorrupt, "the tensor {} is in both {} and {}",
              printable(table.entries_[same->first].name), file_of(same->first), file_of(same->second));
}

const TensorEntry* TensorTable::find(std::string_view wanted) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), wanted,
                       [this](uint32_t i, std::string_view key) { return entries_[i].name < key; });
  return at != by_name_.end() && entries_[*at].name == wanted ? &entries_[*at] : nullptr;
}

}  // namespace butter
