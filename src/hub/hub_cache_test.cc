#include "hub/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "hub/environment.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kCommit(40, 'a');

class HubCacheTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& etag) {
    ASSERT_TRUE(cache_.prepare("org/m"));
    std::ofstream(cache_.blob_path("org/m", etag)) << "content";
    ASSERT_TRUE(cache_.link_file("org/m", kCommit, name, etag));
    ASSERT_TRUE(cache_.write_ref({"org/m", "", "main"}, kCommit));
  }
  std::string error_of(const std::string& reference) const {
    const auto found = cache_.find(*parse_model_reference(reference));
    return found ? "found " + *found : found.error().message();
  }

  TempDir folder_;
  HubCache cache_{folder_.file("hub")};
};

TEST_F(HubCacheTest, FindsAFolderBeforeAFile) {
  put("m.gguf", "1");
  EXPECT_EQ(*cache_.find({"org/m", "", "main"}), cache_.snapshot_path("org/m", kCommit) + "/m.gguf");
  put("config.json", "2");
  put("model.safetensors", "3");
  EXPECT_EQ(*cache_.find({"org/m", "", "main"}), cache_.snapshot_path("org/m", kCommit));
  EXPECT_EQ(*cache_.find({"org/m", "m.gguf", "main"}), cache_.snapshot_path("org/m", kCommit) + "/m.gguf");
}

TEST_F(HubCacheTest, LinksThatLeadNowhereAreNotThere) {
  put("m.gguf", "1");
  fs::remove(cache_.blob_path("org/m", "1"));
  EXPECT_THAT(error_of("org/m"), HasSubstr("`butter pull org/m` gets it"));
}

TEST_F(HubCacheTest, SeveralFilesAreListed) {
  put("m-Q4_0.gguf", "1");
  put("m-Q8_0.gguf", "2");
  EXPECT_THAT(error_of("org/m"), HasSubstr("m-Q4_0.gguf, m-Q8_0.gguf"));
  EXPECT_THAT(error_of("org/m:Q5_0"), HasSubstr("`butter pull org/m:Q5_0` fetches what is missing"));
}

TEST_F(HubCacheTest, ARefThatIsNoCommit) {
  put("m.gguf", "1");
  std::ofstream(folder_.file("hub/models--org--m/refs/main")) << "../../../etc\n";
  EXPECT_THAT(error_of("org/m"), HasSubstr("a commit of 40 hexadecimal digits is expected"));
  std::ofstream(folder_.file("hub/models--org--m/refs/main")) << kCommit << "\n";
  EXPECT_THAT(error_of("org/m"), HasSubstr("found "));
}

TEST_F(HubCacheTest, ALinkTakesThePlaceOfAnother) {
  put("sub/m.gguf", "1");
  put("sub/m.gguf", "2");
  const std::string link = cache_.snapshot_path("org/m", kCommit) + "/sub/m.gguf";
  EXPECT_EQ(fs::read_symlink(link), "../../../blobs/2");
}

TEST(HubEnvironment, TheNearestVariableSaysWhereTheCacheIs) {
  const char* const names[] = {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::pair<const char*, std::string>> before;
  for (const char* name : names) before.emplace_back(name, environment(name));
  ::setenv("HOME", "/h", 1);
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) ::unsetenv(name);
  EXPECT_EQ(HubCache::of_user()->directory(), "/h/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(HubCache::of_user()->directory(), "/x/huggingface/hub");
  ::setenv("HF_HOME", "/hf", 1);
  EXPECT_EQ(HubCache::of_user()->directory(), "/hf/hub");
  ::setenv("HF_HUB_CACHE", "/c", 1);
  EXPECT_EQ(HubCache::of_user()->directory(), "/c");
  for (const auto& [name, value] : before)
    value.empty() ? ::unsetenv(name) : ::setenv(name, value.c_str(), 1);
}

}  // namespace
}  // namespace butter
