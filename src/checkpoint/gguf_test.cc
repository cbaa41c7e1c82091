#include "checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "core/dequantise.h"
#include "support/gguf_writer.h"

namespace butter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string parse_error(const std::string& file) {
  const auto parsed = Gguf::parse(as_bytes(file));
  return parsed ? "parsed" : parsed.error().message();
}
std::string parse_error(const GgufWriter& writer) {
  return parse_error(writer.bytes());
}

// A file with a little of everything; each test changes one thing of it.
GgufWriter small_file() {
  GgufWriter writer;
  writer.string("general.architecture", "llama").value<uint32_t>("llama.block_count", 2);
  writer.strings("tokenizer.ggml.tokens", {"a", "", "\xff"});
  writer.numbers<float>("tokenizer.ggml.scores", {1.0f, -2.5f});
  writer.tensor("norm.weight", DType::kF32, {3}, std::string(12, '\x01'));
  writer.tensor("attn.weight", DType::kQ8_0, {2, 64}, std::string(4 * 34, '\x02'));
  return writer;
}

// An array value: element type, count, elements.
std::string array_bytes(uint32_t type, uint64_t count, std::string_view elements) {
  return FileBytes().number(type).number(count).raw(elements).bytes();
}

TEST(Gguf, ReadsEveryKindOfValue) {
  GgufWriter writer;
  writer.value<uint8_t>("u8", 255).value<int8_t>("i8", -128).value<uint16_t>("u16", 65535);
  writer.value<int16_t>("i16", -32768).value<uint32_t>("u32", 4294967295u).value<int32_t>("i32", -7);
  writer.value<uint64_t>("u64", UINT64_MAX).value<int64_t>("i64", INT64_MIN);
  writer.value<float>("f32", 0.5f).value<double>("f64", 1e-300).value<bool>("yes", true);
  writer.string("text", "butter");
  writer.numbers<int32_t>("ints", {1, -2})
      .numbers<uint64_t>("longs", {3})
      .numbers<bool>("flags", {true, false});
  writer.numbers<float>("floats", {0.25f}).numbers<uint8_t>("none", {}).strings("names", {"a", "b"});
  writer.raw_value(
      "nested", kGgufArray,
      array_bytes(kGgufArray, 2, array_bytes(kGgufU8, 1, "\x01") + array_bytes(kGgufString, 0, "")));
  const std::string file = writer.bytes();
  const auto gguf = Gguf::parse(as_bytes(file));
  ASSERT_TRUE(gguf) << gguf.error().message();
  const Attributes& keys = gguf->metadata();
  EXPECT_EQ(keys.get_int("u8").value(), 255);
  EXPECT_EQ(keys.get_int("i8").value(), -128);
  EXPECT_EQ(keys.get_int("u16").value(), 65535);
  EXPECT_EQ(keys.get_int("i16").value(), -32768);
  EXPECT_EQ(keys.get_int("u32").value(), 4294967295);
  EXPECT_EQ(keys.get_int("i32").value(), -7);
  EXPECT_EQ(keys.get_int("u64").error().message(),
            "u64 is 18446744073709551615; an integer up to 9223372036854775807 is expected");
  EXPECT_EQ(keys.get_int("i64").value(), INT64_MIN);
  EXPECT_EQ(keys.get_float("f32").value(), 0.5);
  EXPECT_EQ(keys.get_float("f64").value(), 1e-300);
  EXPECT_EQ(keys.get_bool("yes").value(), true);
  EXPECT_EQ(keys.get_string("text").value(), "butter");
  EXPECT_THAT(keys.get_ints("ints").value(), ElementsAre(1, -2));
  EXPECT_THAT(keys.get_ints("longs").value(), ElementsAre(3));
  EXPECT_THAT(keys.get_bools("flags").value(), ElementsAre(true, false));
  EXPECT_THAT(keys.get_floats("floats").value(), ElementsAre(0.25));
  EXPECT_TRUE(keys.get_ints("none")->empty());
  EXPECT_THAT(keys.get_strings("names").value(), ElementsAre("a", "b"));
  EXPECT_EQ(keys.describe("nested"), "an array of 2");
  EXPECT_EQ(keys.get_int("gone").error().message(),
            "gone is missing from the GGUF metadata; an integer is expected");
}

TEST(Gguf, StringsAreViewsOfTheFile) {
  const std::string file = small_file().bytes();
  const auto gguf = *Gguf::parse(as_bytes(file));
  const auto tokens = gguf.metadata().get_strings("tokenizer.ggml.tokens").value();
  ASSERT_THAT(tokens, ElementsAre("a", "", "\xff"));
  EXPECT_GE(tokens[0].data(), file.data());
  EXPECT_LT(tokens[0].data(), file.data() + file.size());
}

TEST(Gguf, TensorsOfEveryTypeHaveTheirShapesAndBytes) {
  GgufWriter writer;
  const std::vector<DType> types = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ4_0,
                                    DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,   DType::kQ8_0,
                                    DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,
                                    DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
  const Shape shape{3, 512};
  for (DType type : types) {
    const auto bytes = static_cast<size_t>(dtype_bytes(type, shape.elements()));
    writer.tensor(dtype_name(type), type, shape, std::string(bytes, static_cast<char>(type)));
  }
  const std::string file = writer.bytes();
  const auto gguf = Gguf::parse(as_bytes(file));
  ASSERT_TRUE(gguf) << gguf.error().message();
  ASSERT_EQ(gguf->tensors().entries().size(), types.size());
  for (DType type : types) {
    const TensorEntry* entry = gguf->tensors().find(dtype_name(type));
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->view.dtype, type);
    EXPECT_EQ(entry->view.shape, shape);
    EXPECT_EQ(entry->view.row(2)[0], static_cast<std::byte>(type));
    EXPECT_EQ(static_cast<int64_t>(entry->bytes), entry->view.bytes());
  }
  EXPECT_EQ(gguf->tensors().find("none"), nullptr);
}

TEST(Gguf, QuantisedFloatsComeBackWithinHalfACode) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.1f, 1.0f);
  std::vector<float> values(4 * 64);
  for (float& value : values) value = normal(random);
  for (const auto& [type, bound] : {std::pair{DType::kF32, 0.0f},
                                    {DType::kF16, 2e-3f},
                                    {DType::kBF16, 2e-2f},
                                    {DType::kQ4_0, 0.5f},
                                    {DType::kQ4_1, 0.25f},
                                    {DType::kQ8_0, 0.02f}}) {
    const std::string file = GgufWriter().floats("w", type, {4, 64}, values).bytes();
    const auto gguf = *Gguf::parse(as_bytes(file));
    const TensorView view = gguf.tensors().find("w")->view;
    std::vector<float> back(values.size());
    dequantise_row(type, view.data, static_cast<int64_t>(values.size()), back.data());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], bound) << dtype_name(type);
  }
}

TEST(Gguf, TheAlignmentOfTheFileIsUsed) {
  for (uint32_t alignment : {8u, 64u, 4096u}) {
    GgufWriter writer;
    writer.alignment(alignment).tensor("a", DType::kF32, {1}, "abcd").tensor("b", DType::kF32, {1}, "efgh");
    const std::string file = writer.bytes();
    const auto gguf = Gguf::parse(as_bytes(file));
    ASSERT_TRUE(gguf) << gguf.error().message();
    EXPECT_EQ(std::memcmp(gguf->tensors().find("b")->view.data, "efgh", 4), 0);
  }
  for (uint32_t wrong : {0u, 1u, 4u, 33u, 1u << 31}) {
    EXPECT_EQ(parse_error(GgufWriter().value<uint32_t>("general.alignment", wrong)),
              fmt::format("general.alignment is {}; a power of two from 8 to 1073741824 is expected", wrong));
  }
  EXPECT_EQ(parse_error(GgufWriter().string("general.alignment", "x")),
            "general.alignment is \"x\"; an integer is expected");
}

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string file = small_file().bytes();
  ASSERT_EQ(parse_error(file), "parsed");
  // The last tensor is padded; its own end is the first length that is enough.
  const size_t enough = file.size() - (32 - 4 * 34 % 32);
  for (size_t bytes = 0; bytes < enough; ++bytes) {
    const std::string cut = file.substr(0, bytes);  // its own allocation, for the address sanitizer
    EXPECT_NE(parse_error(cut), "parsed") << bytes;
  }
  EXPECT_EQ(parse_error(file.substr(0, enough)), "parsed");
  EXPECT_EQ(parse_error(file.substr(0, enough - 1)),
            "the tensor attn.weight has 136 bytes at byte 32 of the data; the data has 167 bytes");
  EXPECT_EQ(parse_error(file.substr(0, 6)), "the version needs 4 bytes at byte 4; the file ends after 2");
}

TEST(Gguf, EveryFlippedByteIsReadSafely) {
  const std::string file = small_file().bytes();
  for (size_t at = 0; at < file.size(); ++at) {
    for (char flipped : {'\x00', '\x7f', '\xff'}) {
      std::string wrong = file;
      wrong[at] = flipped;
      (void)Gguf::parse(as_bytes(wrong));
    }
  }
}

TEST(Gguf, ForeignFilesAreNamed) {
  EXPECT_EQ(parse_error("GGML and more"), "the file begins with \"GGML\"; \"GGUF\" is expected");
  GgufWriter writer;
  for (uint32_t version : {0u, 1u, 4u}) {
    writer.version = version;
    EXPECT_EQ(parse_error(writer), fmt::format("the file is GGUF version {}; 2 or 3 is expected", version));
  }
  writer.version = 0x03000000;
  EXPECT_EQ(parse_error(writer), "the file is big-endian GGUF; a little-endian one is expected");
}

TEST(Gguf, CountsAreHeldAgainstTheFile) {
  for (uint64_t count : {uint64_t{1} << 63, UINT64_MAX, uint64_t{1000}}) {
    GgufWriter keys = small_file();
    keys.key_count = count;
    EXPECT_THAT(parse_error(keys), HasSubstr(fmt::format("the key count is {}; at most", count)));
    GgufWriter tensors = small_file();
    tensors.tensor_count = count;
    EXPECT_THAT(parse_error(tensors), HasSubstr(fmt::format("the tensor count is {}; at most", count)));
  }
}

TEST(Gguf, ArrayBombsAreRefusedBeforeAnythingIsAllocated) {
  const uint64_t many = uint64_t{1} << 60;
  EXPECT_THAT(parse_error(GgufWriter().raw_value("tokens", kGgufArray, array_bytes(kGgufString, many, ""))),
              HasSubstr("tokens has 1152921504606846976 elements of 8 bytes or more"));
  EXPECT_THAT(parse_error(GgufWriter().raw_value("scores", kGgufArray, array_bytes(kGgufF32, many, "abcd"))),
              HasSubstr("scores has 1152921504606846976 elements of 4 bytes"));
  EXPECT_THAT(
      parse_error(GgufWriter().raw_value("flags", kGgufArray, array_bytes(kGgufBool, UINT64_MAX, "\x01"))),
      HasSubstr("flags has 18446744073709551615 elements"));
  EXPECT_THAT(parse_error(GgufWriter().raw_value("lists", kGgufArray, array_bytes(kGgufArray, many, ""))),
              HasSubstr("lists has 1152921504606846976 elements of 12 bytes"));
  std::string nest = array_bytes(kGgufU8, 0, "");
  for (int i = 0; i < 1000; ++i) nest = array_bytes(kGgufArray, 1, nest);
  EXPECT_EQ(parse_error(GgufWriter().raw_value("nest", kGgufArray, nest)), "nest nests arrays deeper than 4");
}

TEST(Gguf, WrongValuesNameTheirKey) {
  EXPECT_EQ(parse_error(GgufWriter().raw_value("odd", 13, "")),
            "odd has the unknown value type 13; 0 to 12 are expected");
  EXPECT_EQ(parse_error(GgufWriter().raw_value("odd", kGgufArray, array_bytes(99, 0, ""))),
            "odd has elements of the unknown type 99; 0 to 12 are expected");
  EXPECT_EQ(parse_error(GgufWriter().raw_value("yes", kGgufBool, "\x02")),
            "yes holds the byte 2 for a truth value; 0 or 1 is expected");
  const std::string past_end = FileBytes().number<uint64_t>(1000).raw("abc").bytes();
  EXPECT_THAT(parse_error(GgufWriter().raw_value("text", kGgufString, past_end)),
              HasSubstr("text needs 1000 bytes"));
  const std::string far = FileBytes().number<uint64_t>(UINT64_MAX).raw("abc").bytes();
  EXPECT_THAT(parse_error(GgufWriter().raw_value("text", kGgufString, far)),
              HasSubstr("text needs 18446744073709551615"));
  EXPECT_EQ(parse_error(GgufWriter().value<uint8_t>("twice", 1).value<uint8_t>("twice", 2)),
            "the key twice is there twice");
}

TEST(Gguf, NamesAreNonEmptyUtf8) {
  EXPECT_EQ(parse_error(GgufWriter().value<uint8_t>("k\xff", 1)),
            "the name of key 0 is \"k\\xff\", which is not UTF-8");
  EXPECT_EQ(parse_error(GgufWriter().value<uint32_t>("", 1)), "the name of key 0 is empty");
  EXPECT_EQ(parse_error(GgufWriter().value<uint8_t>(std::string(70000, 'k'), 1)),
            "the name of key 0 has 70000 bytes; at most 65535 are expected");
  EXPECT_EQ(parse_error(GgufWriter().tensor("\xc0", DType::kF32, {1}, "abcd")),
            "the name of tensor 0 is \"\\xc0\", which is not UTF-8");
}

TEST(Gguf, WrongTensorsAreNamed) {
  const auto with = [](GgufWriter::Tensor tensor) {
    return parse_error(GgufWriter().tensor(std::move(tensor)));
  };
  const std::string data(256, '\0');
  EXPECT_EQ(with({"t", {1, 1, 1, 1, 1}, 0, data, {}}), "the tensor t has 5 dimensions; 1 to 4 are expected");
  EXPECT_EQ(with({"tensor.without.dims", {}, 0, data, {}}),
            "the tensor tensor.without.dims has 0 dimensions; 1 to 4 are expected");
  EXPECT_EQ(with({"t", {4, 0}, 0, data, {}}), "dimension 1 of the tensor t is 0");
  EXPECT_EQ(with({"t", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, data, {}}),
            "the tensor t has more than 2^63 elements");
  EXPECT_EQ(with({"t", {uint64_t{1} << 63}, 0, data, {}}), "the tensor t has more than 2^63 elements");
  EXPECT_EQ(with({"t", {uint64_t{1} << 62, 1}, 0, data, {}}), "the tensor t has more than 2^64 bytes");
  EXPECT_EQ(with({"t", {33, 2}, 8, data, {}}),
            "the tensor t has rows of 33 elements; Q8_0 needs a multiple of 32");
  EXPECT_THAT(with({"t", {256}, 16, data, {}}), HasSubstr("the tensor t is stored as IQ2_XXS; one of F32, "));
  EXPECT_EQ(with({"t", {256}, 999, data, {}}), "the tensor t has the unknown type 999");
  EXPECT_EQ(with({"t", {4}, 0, data, 16}),
            "the tensor t begins at byte 16 of the data; a multiple of 32 is expected");
  EXPECT_EQ(with({"t", {4}, 0, data, 256}),
            "the tensor t has 16 bytes at byte 256 of the data; the data has 256 bytes");
  EXPECT_THAT(with({"t", {4}, 0, data, UINT64_MAX - 31}),
              HasSubstr("the tensor t has 16 bytes at byte 1844674407370955"));
}

TEST(Gguf, DuplicateAndOverlappingTensorsAreNamed) {
  GgufWriter twice;
  twice.tensor("blk.0.w", DType::kF32, {1}, "abcd").tensor("blk.0.w", DType::kF32, {1}, "abcd");
  EXPECT_EQ(parse_error(twice), "the tensor blk.0.w is there twice");
  GgufWriter overlap;
  overlap.tensor("long", DType::kF32, {16}, std::string(64, 'a'));
  overlap.tensor({"inside", {1}, 0, "abcd", 32});
  EXPECT_EQ(parse_error(overlap), "the tensors long and inside overlap at byte 32 of the data");
  GgufWriter same;
  same.tensor("one", DType::kF32, {1}, "abcd").tensor({"two", {1}, 0, "abcd", 0});
  EXPECT_EQ(parse_error(same), "the tensors one and two overlap at byte 0 of the data");
}

TEST(Gguf, Version2HasTheLayoutOfVersion3) {
  GgufWriter writer = small_file();
  writer.version = 2;
  const std::string file = writer.bytes();
  const auto gguf = Gguf::parse(as_bytes(file));
  ASSERT_TRUE(gguf) << gguf.error().message();
  EXPECT_EQ(gguf->metadata().get_int("llama.block_count").value(), 2);
  EXPECT_EQ(gguf->tensors().find("attn.weight")->view.row(1)[0], std::byte{2});
}

TEST(Gguf, AFileMayHoldNoTensors) {
  EXPECT_EQ(parse_error(GgufWriter()), "parsed");
  EXPECT_EQ(parse_error(GgufWriter().string("general.architecture", "llama")), "parsed");
}

}  // namespace
}  // namespace butter
