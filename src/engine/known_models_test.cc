#include "engine/known_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_dir.h"

namespace butter {
namespace {

namespace fs = std::filesystem;

// Stands in another folder while it lives.
class WorkingFolder {
 public:
  explicit WorkingFolder(const std::string& path) : before_(fs::current_path()) { fs::current_path(path); }
  ~WorkingFolder() { fs::current_path(before_); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  fs::path before_;
};

TEST(ResolveModel, APathThatExistsIsNoReferenceToTheHub) {
  TempDir folder;
  const WorkingFolder here(folder.path());
  const auto missing = resolve_model("no-org/name");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message(), testing::HasSubstr("`butter pull no-org/name`"));
  fs::create_directories("no-org/name");
  EXPECT_EQ(*resolve_model("no-org/name"), "no-org/name");
}

}  // namespace
}  // namespace butter
