#include "butter/quality_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"
#include "support/test_data.h"

namespace butter {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

QualityCard example_card() {
  QualityCard card;
  card.text = "alice29.txt";
  card.text_hash = "xxh3:0";
  card.version = "0.1.0";
  card.command = "butter eval --card";
  SchemeQuality raw;
  raw.kv_cache = "raw";
  raw.positions = 2047;
  raw.ppl = raw.ppl_raw = 12.5;
  raw.top1 = 1;
  SchemeQuality other = raw;
  other.kv_cache = "k=raw,v=raw";
  other.kld_mean = 0.003;
  other.kld_p99 = NAN;
  other.needle = NeedleScore{200, 180, 2048, {}};
  card.rows = {raw, other};
  return card;
}

// Cards must not be found in, or written to, the user's own cache.
class QualityCardTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("BUTTER_CACHE_DIR", scratch_.file("cache").c_str(), 1);
    write_file(model_, "these are the weights");
  }
  void TearDown() override { ::unsetenv("BUTTER_CACHE_DIR"); }

  TempDir scratch_;
  const std::string model_ = scratch_.file("model.gguf");
  const std::string card_path_ = model_ + ".quality.json";
};

TEST_F(QualityCardTest, ComesBackAsItWasWritten) {
  EXPECT_FALSE(read_quality_card(model_)->has_value());
  const auto path = write_quality_card(model_, example_card());
  ASSERT_TRUE(path) << path.error().message();
  EXPECT_EQ(*path, card_path_);
  EXPECT_EQ(*quality_card_path(model_), card_path_);

  const auto read = read_quality_card(model_);
  ASSERT_TRUE(read && read->has_value());
  const QualityCard& card = **read;
  EXPECT_EQ(card.model, "model.gguf");
  EXPECT_THAT(card.model_hash, StartsWith("xxh3-ends:"));
  EXPECT_EQ(card.command, "butter eval --card");
  ASSERT_EQ(card.rows.size(), 2u);
  EXPECT_EQ(card.find("nothing"), nullptr);
  const SchemeQuality& row = *card.find("k=raw,v=raw");
  EXPECT_EQ(row.positions, 2047);
  EXPECT_EQ(row.kld_mean, 0.003);
  EXPECT_TRUE(std::isnan(row.kld_p99)) << "not measured";
  EXPECT_EQ(row.needle->right, 180);
  EXPECT_FALSE(card.find("raw")->needle);
}

TEST_F(QualityCardTest, IsOfThisFileAndNoOther) {
  ASSERT_TRUE(write_quality_card(model_, example_card()));
  write_file(model_, "these are the weighty");  // as long as before
  const auto read = read_quality_card(model_);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_FALSE(read->has_value());
}

TEST_F(QualityCardTest, FolderHasOneBesideIt) {
  const std::string folder = scratch_.file("model");
  std::filesystem::create_directory(folder);
  write_file(folder + "/model-00001-of-00002.safetensors", "one");
  write_file(folder + "/model-00002-of-00002.safetensors", "two");
  const auto path = write_quality_card(folder + "/", example_card());
  ASSERT_TRUE(path) << path.error().message();
  EXPECT_EQ(*path, folder + ".quality.json");
  EXPECT_EQ((*read_quality_card(folder))->model, "model");
  write_file(folder + "/model-00002-of-00002.safetensors", "2");
  EXPECT_FALSE(read_quality_card(folder)->has_value());
}

TEST_F(QualityCardTest, GoesToTheCacheWhereItsPlaceCannotBeWritten) {
  std::filesystem::create_directory(card_path_);  // what a superuser cannot write over either
  const auto path = write_quality_card(model_, example_card());
  ASSERT_TRUE(path) << path.error().message();
  EXPECT_THAT(*path, StartsWith(scratch_.file("cache") + "/quality/"));
  EXPECT_EQ(*quality_card_path(model_), *path);
  const auto read = read_quality_card(model_);
  ASSERT_TRUE(read && read->has_value());
  EXPECT_EQ((*read)->rows.size(), 2u);
}

TEST_F(QualityCardTest, IsAnErrorThatNamesBothPlacesWhereNeitherCanBeWritten) {
  std::filesystem::create_directory(card_path_);
  ::setenv("BUTTER_CACHE_DIR", model_.c_str(), 1);  // a file
  const auto path = write_quality_card(model_, example_card());
  ASSERT_FALSE(path);
  EXPECT_EQ(path.error().code(), StatusCode::kIo);
  EXPECT_THAT(path.error().message(), AllOf(HasSubstr(card_path_), HasSubstr(model_ + "/quality/")));
  EXPECT_FALSE(quality_card_path(model_));
  EXPECT_TRUE(read_quality_card(model_)) << "no card is no error";
}

TEST_F(QualityCardTest, LeavesNoUnfinishedFile) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(write_quality_card(model_, example_card()));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
    names.push_back(entry.path().string());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre(model_, card_path_));
}

TEST_F(QualityCardTest, SpoiltCardsAreErrorsThatNameTheFile) {
  ASSERT_TRUE(write_quality_card(model_, example_card()));
  const std::string good = read_test_file(card_path_);
  const std::string deep(100000, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), deep, good.substr(0, 100),
        std::string("{\"layout\": 2, \"rows\": []}"), std::string("{\"layout\": 1}")}) {
    write_file(card_path_, text);
    const auto read = read_quality_card(model_);
    ASSERT_FALSE(read) << text.substr(0, 40);
    EXPECT_EQ(read.error().code(), StatusCode::kCorrupt);
    EXPECT_THAT(read.error().message(), HasSubstr(card_path_));
  }
}

TEST_F(QualityCardTest, ValuesOfTheWrongKindAreFiguresThatWereNotMeasured) {
  const std::string hash = *model_fingerprint(model_);
  write_file(card_path_, R"({"layout": 1, "model_hash": ")" + hash + R"(", "text": 3, "rows": [7,
    {"kv_cache": "raw", "positions": -1e300, "kld_mean": "0", "needle": {"asked": 1e300, "right": 5}}]})");
  const auto read = read_quality_card(model_);
  ASSERT_TRUE(read && read->has_value());
  EXPECT_EQ((*read)->text, "");
  ASSERT_EQ((*read)->rows.size(), 1u);
  EXPECT_EQ((*read)->rows[0].positions, 0);
  EXPECT_TRUE(std::isnan((*read)->rows[0].kld_mean));
  EXPECT_EQ((*read)->rows[0].needle->right, 0) << "no more than were asked";
}

TEST(Fingerprint, TextsCountByWhatTheyHoldAndWhereTheyEnd) {
  const std::vector<NamedText> texts = {{"a", "one"}, {"b", "two"}}, moved = {{"a", "on"}, {"b", "etwo"}};
  const std::vector<NamedText> renamed = {{"x", "one"}, {"y", "two"}};
  EXPECT_EQ(text_fingerprint(texts), text_fingerprint(renamed));
  EXPECT_NE(text_fingerprint(texts), text_fingerprint(moved));
}

}  // namespace
}  // namespace butter
