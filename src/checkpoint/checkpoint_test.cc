#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "support/test_data.h"

namespace butter {
namespace {

TEST(Checkpoint, OpensAHuggingFaceFolder) {
  for (const char* name : {"llama", "llama3_scaled", "mistral_swa", "qwen2", "qwen3"}) {
    const auto checkpoint = Checkpoint::open(test_data(std::string("fixtures/") + name));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    EXPECT_EQ(checkpoint->format(), CheckpointFormat::kSafetensors);
    EXPECT_EQ(checkpoint->config().get_int("hidden_size").value(), 64);
    EXPECT_TRUE(checkpoint->require_tensor("model.norm.weight", Shape{64}));
  }
}

}  // namespace
}  // namespace butter
