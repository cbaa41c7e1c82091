#include "families/file_notes.h"

#include <fmt/format.h>

#include <unordered_set>

#include "checkpoint/printable.h"
#include "checkpoint/unused_tensors.h"
#include "families/rope.h"

namespace butter {
namespace {

void note_unread_tensors(const Checkpoint& checkpoint, ModelSpec& spec) {
  std::unordered_set<std::string_view> read;
  for_each_tensor(spec, [&](const TensorRef& ref) { read.insert(ref.name); });
  int count = 0;
  std::string_view first;
  for (const TensorEntry& entry : checkpoint.tensors()) {
    if (read.contains(entry.name) || is_unused_kind(entry.name) || is_rope_tensor(entry.name)) continue;
    if (count++ == 0) first = entry.name;
  }
  if (count == 0) return;
  spec.notes.push_back(fmt::format("ignoring {}{}, for which {} has no use", printable(first),
                                   count > 1 ? fmt::format(" and {} tensors more", count - 1) : "",
                                   checkpoint.config().source()));
}

void note_missing_head(const FamilySource& source, ModelSpec& spec) {
  constexpr const char* kKey = "tie_word_embeddings";
  if (spec.head || source.gguf() || source.config.kind(kKey) == AttributeKind::kAbsent) return;
  const auto tied = source.config.get_bool(kKey);
  if (!tied || *tied) return;
  spec.notes.push_back(fmt::format("{} is false and the files have no head: the embedding takes its place",
                                   source.config.full_name(kKey)));
}

}  // namespace

void add_file_notes(const FamilySource& source, ModelSpec& spec) {
  if (source.checkpoint == nullptr) return;
  spec.notes = source.checkpoint->notes();
  note_unread_tensors(*source.checkpoint, spec);
  note_missing_head(source, spec);
}

}  // namespace butter
