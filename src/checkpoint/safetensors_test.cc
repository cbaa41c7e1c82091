#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/safetensors_writer.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace butter {
namespace {

using testing::HasSubstr;

std::string parse_error(const std::string& file) {
  const auto parsed = SafetensorsFile::parse(as_bytes(file));
  return parsed ? "parsed" : parsed.error().message();
}

// A file whose one tensor, `w`, is described by these fields, with so many bytes of data.
std::string file_of(const std::string& fields, size_t data_bytes) {
  return safetensors_bytes("{\"w\":{" + fields + "}}", std::string(data_bytes, '\0'));
}

TEST(Safetensors, ReadsTheRecordedLogitsOfAFixture) {
  const auto file = SafetensorsFile::open(test_data("fixtures/llama/expected.safetensors"));
  ASSERT_TRUE(file) << file.error().message();
  const auto logits = file->tensor("logits");
  ASSERT_TRUE(logits);
  EXPECT_EQ(logits->dtype, DType::kF32);
  EXPECT_EQ(logits->shape, (Shape{208, 256}));
  const auto ids = file->tensor("input_ids");
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->dtype, DType::kI32);
  EXPECT_EQ(ids->shape, (Shape{208}));
  EXPECT_EQ(file->tensor("gone").error().message(), "gone is missing from the safetensors file");
  EXPECT_EQ(file->tensors().entries().front().name, "hidden_first_layer");
}

TEST(Safetensors, MetadataIsReadAsText) {
  const std::string file = safetensors_bytes(R"({"__metadata__":{"format":"pt"}})", "");
  EXPECT_EQ(SafetensorsFile::parse(as_bytes(file))->metadata().get_string("format").value(), "pt");
  EXPECT_EQ(parse_error(safetensors_bytes(R"({"__metadata__":3})", "")),
            "__metadata__ is 3; an object is expected");
}

TEST(Safetensors, TensorsComeInFileOrderWhateverTheHeaderSays) {
  const std::string file = safetensors_bytes(R"({"late":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},
    "early":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})",
                                             "abcde");
  const auto parsed = *SafetensorsFile::parse(as_bytes(file));
  EXPECT_EQ(parsed.tensors().entries()[0].name, "early");
  EXPECT_EQ(std::memcmp(parsed.tensor("late")->data, "de", 2), 0);
}

TEST(Safetensors, UnreadableTensorsAreRefusedOnlyWhenAskedFor) {
  SafetensorsWriter writer;
  writer.tensor("ids", "I64", {2}, std::string(16, '\0')).tensor("fp8", "F8_E4M3", {8}, std::string(8, '\0'));
  writer.tensor("new", "F4_NEW", {9}, std::string(8, '\0'))
      .tensor("conv", "F32", {1, 1, 1, 1, 2}, std::string(8, '\0'));
  writer.tensor("none", "F32", {0, 4}, "").tensor("good", "F32", {2}, std::string(8, '\0'));
  const std::string file = writer.bytes();
  const auto parsed = SafetensorsFile::parse(as_bytes(file));
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->tensors().entries().size(), 6u);
  EXPECT_EQ(parsed->tensor("ids").error().message(), "ids is stored as I64; F32, F16 or BF16 is expected");
  EXPECT_EQ(parsed->tensor("fp8").error().message(),
            "fp8 is stored as F8_E4M3; F32, F16 or BF16 is expected");
  EXPECT_EQ(parsed->tensor("new").error().message(), "new is stored as F4_NEW; F32, F16 or BF16 is expected");
  EXPECT_EQ(parsed->tensor("conv").error().message(), "conv has 5 dimensions; at most 4 are read");
  EXPECT_EQ(parsed->tensor("none").error().message(), "none has no elements");
  EXPECT_TRUE(parsed->tensor("good"));
}

TEST(Safetensors, DataMayBeginAtAnyByte) {
  // MLX writes its header as long as it is.
  std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  while (header.size() % 4 != 1) header += ' ';
  const std::string file = safetensors_bytes(header, "abcd", false);
  const auto parsed = SafetensorsFile::parse(as_bytes(file));
  ASSERT_TRUE(parsed) << parsed.error().message();
  ASSERT_TRUE(parsed->tensor("w"));
  EXPECT_EQ(std::memcmp(parsed->tensor("w")->data, "abcd", 4), 0);
}

TEST(Safetensors, EveryTruncationIsAnError) {
  SafetensorsWriter writer;
  writer.tensor("a", "F32", {2}, "abcdefgh").tensor("b", "BF16", {1}, "ij");
  const std::string file = writer.bytes();
  ASSERT_EQ(parse_error(file), "parsed");
  for (size_t bytes = 0; bytes < file.size(); ++bytes)
    EXPECT_NE(parse_error(file.substr(0, bytes)), "parsed") << bytes;
  EXPECT_EQ(parse_error(file + "x"), "the tensors end at byte 10 of the data, which has 11 bytes");
}

TEST(Safetensors, TheHeaderLengthIsBounded) {
  const auto with = [](uint64_t length) {
    return parse_error(FileBytes().number(length).raw("{}      ").bytes());
  };
  EXPECT_EQ(with(2), "the tensors end at byte 0 of the data, which has 6 bytes");
  EXPECT_EQ(with(8), "parsed");
  EXPECT_EQ(with(9), "the header's length is 9; at most 8 is expected in a file of 16 bytes");
  EXPECT_THAT(with(UINT64_MAX), HasSubstr("the header's length is 18446744073709551615"));
  EXPECT_THAT(parse_error("short"), HasSubstr("the file has 5 bytes"));
  EXPECT_THAT(with(0), HasSubstr("is not JSON"));
}

TEST(Safetensors, WrongFieldsNameTheirTensor) {
  EXPECT_EQ(parse_error(safetensors_bytes(R"({"w":3})", "")), "w is 3; an object is expected");
  EXPECT_EQ(parse_error(file_of(R"("shape":[1],"data_offsets":[0,4])", 4)),
            "w.dtype is missing from the safetensors header; a string is expected");
  EXPECT_EQ(parse_error(file_of(R"("dtype":"F32","shape":"x","data_offsets":[0,4])", 4)),
            "w.shape is \"x\"; an array of integers is expected");
  EXPECT_EQ(parse_error(file_of(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", 4)),
            "w has the dimension -1");
  EXPECT_EQ(parse_error(file_of(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])", 4)),
            "w has more than 2^63 elements");
  EXPECT_EQ(parse_error(file_of(R"("dtype":"F32","shape":[1],"data_offsets":[0])", 4)),
            "w has 1 data_offsets; 2 are expected");
  EXPECT_EQ(parse_error(file_of(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", 4)),
            "w has the data_offsets [4, 0]; the data has 4 bytes");
  EXPECT_EQ(parse_error(file_of(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])", 4)),
            "w has the data_offsets [-4, 0]; the data has 4 bytes");
  EXPECT_EQ(parse_error(file_of(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4)),
            "w has 4 bytes; 2 elements of F32 take 8");
  EXPECT_EQ(parse_error(file_of(R"("dtype":"I64","shape":[2],"data_offsets":[0,4])", 4)),
            "w has 4 bytes; 2 elements of I64 take 16");
}

TEST(Safetensors, DuplicatesOverlapsAndGapsAreNamed) {
  EXPECT_EQ(parse_error(safetensors_bytes(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
    "w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                          "ab")),
            "the safetensors header: the key w is there twice");
  EXPECT_EQ(parse_error(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
    "b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                                          "abcd")),
            "the tensors a and b overlap at byte 2 of the data");
  EXPECT_EQ(parse_error(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
    "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                          "abc")),
            "b begins at byte 2 of the data; byte 1, where the one before it ends, is expected");
  EXPECT_EQ(parse_error(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "ab")),
            "a begins at byte 1 of the data; byte 0, where the one before it ends, is expected");
}

TEST(Safetensors, EveryFlippedByteIsReadSafely) {
  SafetensorsWriter writer;
  writer.tensor("a", "F32", {2}, "abcdefgh").tensor("b", "BF16", {1}, "ij");
  const std::string file = writer.bytes();
  for (size_t at = 0; at < file.size(); ++at) {
    for (char flipped : {'\x00', '"', '[', '{', '9', '\xff'}) {
      std::string wrong = file;
      wrong[at] = flipped;
      (void)SafetensorsFile::parse(as_bytes(wrong));
    }
  }
}

TEST(Safetensors, AnErrorOfAFileNamesItsPath) {
  const TempDir dir;
  write_test_file(dir.file("x.safetensors"), "short");
  EXPECT_THAT(SafetensorsFile::open(dir.file("x.safetensors")).error().message(),
              HasSubstr(dir.file("x.safetensors") + ": the file has 5 bytes"));
}

}  // namespace
}  // namespace butter
