#include "checkpoint/unused_tensors.h"

#include <gtest/gtest.h>

namespace butter {
namespace {

TensorTable table_of(const std::vector<std::string_view>& names, uint64_t bytes) {
  std::vector<TensorEntry> entries;
  for (const std::string_view name : names) {
    entries.emplace_back();
    entries.back().name = name;
    entries.back().bytes = bytes;
  }
  return *TensorTable::of(std::move(entries));
}

TEST(UnusedTensors, KindsAreCountedInOneSentence) {
  EXPECT_EQ(describe_unused(table_of({"model.layers.0.mlp.up_proj.weight", "lm_head.weight"}, 1)),
            std::nullopt);
  EXPECT_EQ(
      describe_unused(table_of({"model.visual.blocks.0.norm.weight", "visual.merger.weight", "vision_tower.x",
                                "model.vision_tower.y", "multi_modal_projector.weight",
                                "model.vision_adapter.z", "lm_head.weight"},
                               50'000'000)),
      "ignoring 6 vision tensors (0.3 GB)");
  EXPECT_EQ(
      describe_unused(table_of({"mtp.layers.0.norm.weight", "model.layers.0.self_attn.rotary_emb.inv_freq",
                                "audio_tower.conv.weight", "vision_model.embeddings.weight"},
                               1500)),
      "ignoring 1 vision tensor (1.5 kB), 1 audio tensor (1.5 kB), 1 draft tensor (1.5 kB), "
      "1 rope tensor (1.5 kB)");
}

TEST(UnusedTensors, NamesOfTheTextModelOnlyLookAlike) {
  EXPECT_EQ(describe_unused(table_of({"model.visualise.weight", "model.smtp.weight", "provisual.weight",
                                      "model.layers.0.rotary_emb.inv_freqs"},
                                     1)),
            std::nullopt);
}

}  // namespace
}  // namespace butter
