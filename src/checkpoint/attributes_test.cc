#include "checkpoint/attributes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace butter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Attributes parse(std::string_view text) {
  auto parsed = Attributes::parse_json(text, "config.json");
  EXPECT_TRUE(parsed) << parsed.error().message();
  return parsed ? *parsed : Attributes();
}

std::string parse_error(std::string_view text, Attributes::JsonLimits limits = {}) {
  const auto parsed = Attributes::parse_json(text, "config.json", limits);
  return parsed ? "parsed" : parsed.error().message();
}

template <typename T>
std::string message(const Result<T>& result) {
  return result ? "no error" : result.error().message();
}

TEST(Attributes, GettersGiveWhatTheFileSays) {
  const Attributes config = parse(R"({"b": true, "i": -7, "f": 1e-6, "s": "x\u00e9", "whole": 4096.0,
    "names": ["a", "b"], "ints": [1, 2], "mixed": [1, 2.5], "flags": [true, false], "none": [],
    "inner": {"deep": {"x": 3}}, "nothing": null, "big": 9223372036854775807})");
  EXPECT_EQ(config.get_bool("b").value(), true);
  EXPECT_EQ(config.get_int("i").value(), -7);
  EXPECT_EQ(config.get_float("f").value(), 1e-6);
  EXPECT_EQ(config.get_string("s").value(), "x\xc3\xa9");
  EXPECT_EQ(config.get_int("whole").value(), 4096);
  EXPECT_EQ(config.get_float("i").value(), -7.0);
  EXPECT_EQ(config.get_int("big").value(), INT64_MAX);
  EXPECT_THAT(config.get_strings("names").value(), ElementsAre("a", "b"));
  EXPECT_TRUE(config.get_strings("none").value().empty());
  EXPECT_THAT(config.get_ints("ints").value(), ElementsAre(1, 2));
  EXPECT_THAT(config.get_floats("mixed").value(), ElementsAre(1.0, 2.5));
  EXPECT_THAT(config.get_bools("flags").value(), ElementsAre(true, false));
  EXPECT_THAT(config.get_int_or_ints("i").value(), ElementsAre(-7));
  EXPECT_THAT(config.get_int_or_ints("ints").value(), ElementsAre(1, 2));
  EXPECT_EQ(config.get_object("inner")->get_object("deep")->get_int("x").value(), 3);
  EXPECT_EQ(config.keys().front(), "b");
  EXPECT_EQ(config.keys().size(), 13u);
}

TEST(Attributes, ANullIsAbsentExceptWhereAsked) {
  const Attributes config = parse(R"({"window": null})");
  EXPECT_TRUE(config.has("window"));
  EXPECT_TRUE(config.is_null("window"));
  EXPECT_FALSE(config.is_null("other"));
  EXPECT_EQ(config.kind("window"), AttributeKind::kAbsent);
  EXPECT_EQ(config.get_int_or("window", 5).value(), 5);
  EXPECT_EQ(config.get_float_or("window", 0.5).value(), 0.5);
  EXPECT_EQ(config.get_string_or("window", "w").value(), "w");
  EXPECT_EQ(config.get_bool_or("window", true).value(), true);
  EXPECT_EQ(config.require_int_or("window", -1, 1, 8).value(), -1);
  EXPECT_TRUE(config.get_object_or_empty("window")->keys().empty());
  EXPECT_EQ(message(config.get_int("window")), "window is null; an integer is expected");
}

TEST(Attributes, ErrorsNameTheKeyTheValueAndWhatIsExpected) {
  const Attributes config =
      parse(R"({"n": "x", "l": [1, "a"], "o": {"theta": []}, "f": 2.5, "u": 18446744073709551615,
    "huge": 1e300, "k\u0001": 1})");
  EXPECT_EQ(message(config.get_int("n")), "n is \"x\"; an integer is expected");
  EXPECT_EQ(message(config.get_int("f")), "f is 2.5; an integer is expected");
  EXPECT_EQ(message(config.get_int("huge")), "huge is 1e+300; an integer is expected");
  EXPECT_EQ(message(config.get_int("u")),
            "u is 18446744073709551615; an integer up to 9223372036854775807 is expected");
  EXPECT_EQ(message(config.get_int("gone")), "gone is missing from config.json; an integer is expected");
  EXPECT_EQ(message(config.get_ints("l")), "l is an array of 2; an array of integers is expected");
  EXPECT_EQ(message(config.get_strings("l")), "l is an array of 2; an array of strings is expected");
  EXPECT_EQ(message(config.get_string("o")), "o is an object; a string is expected");
  EXPECT_EQ(message(config.get_object("o")->get_float("theta")),
            "o.theta is an array of 0; a number is expected");
  EXPECT_EQ(message(config.get_bool("k\x01")), "k\\x01 is 1; true or false is expected");
  EXPECT_EQ(message(config.require_int("f", 1, 8)), "f is 2.5; an integer from 1 to 8 is expected");
  EXPECT_EQ(message(config.require_float("huge", 0, 1)), "huge is 1e+300; a number from 0 to 1 is expected");
  EXPECT_EQ(config.get_float("u").value(), 18446744073709551615.0);
}

TEST(Attributes, BoundsAreInclusive) {
  const Attributes config = parse(R"({"n": 8, "x": 0.5, "bad": NaN})");
  EXPECT_TRUE(config.require_int("n", 8, 8));
  EXPECT_FALSE(config.require_int("n", 1, 7));
  EXPECT_FALSE(config.require_int("n", 9, 10));
  EXPECT_TRUE(config.require_float("x", 0.5, 0.5));
  EXPECT_FALSE(config.require_float("bad", -INFINITY, INFINITY));
}

TEST(Attributes, InfinityIsReadInBothSpellings) {
  const Attributes config = parse(R"({"bare": [0.0, Infinity], "minus": -Infinity, "nan": NaN,
    "spelled": [0.0, {"__float__": "Infinity"}], "text": "Infinity \" NaN", "Infinity": 1,
    "other": {"__float__": "1"}})");
  EXPECT_THAT(config.get_floats("bare").value(), ElementsAre(0.0, INFINITY));
  EXPECT_THAT(config.get_floats("spelled").value(), ElementsAre(0.0, INFINITY));
  EXPECT_EQ(config.get_float("minus").value(), -INFINITY);
  EXPECT_TRUE(std::isnan(config.get_float("nan").value()));
  EXPECT_EQ(config.get_string("text").value(), "Infinity \" NaN");
  EXPECT_EQ(config.get_int("Infinity").value(), 1);
  EXPECT_EQ(config.kind("other"), AttributeKind::kObject);
  EXPECT_FALSE(config.get_int("minus"));
}

TEST(Attributes, TextThatIsNotJsonIsRefusedWithItsLine) {
  EXPECT_THAT(parse_error(""), HasSubstr("config.json: line 1 is not JSON"));
  EXPECT_THAT(parse_error("{\n\"a\": 1,\n}"), HasSubstr("config.json: line 3 is not JSON"));
  EXPECT_THAT(parse_error("{\"a\": 1} x"), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error("{\"a\": 1e999}"), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error("{\"a\": Infinit}"), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error("{\"a\": InfinityInfinity}"), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error("{Infinity: 1}"), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error("{\"a\": \"\xff\"}"), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error("{\"a\": \"unfinished"), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error("{\"a\": \"\\"), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error(std::string_view("{\"a\": 1}\0", 9)), HasSubstr("not JSON"));
}

TEST(Attributes, OnlyAnObjectIsAConfiguration) {
  EXPECT_EQ(parse_error("[]"), "config.json: an array is found; an object is expected");
  EXPECT_EQ(parse_error("3"), "config.json: a single value is found; an object is expected");
  EXPECT_EQ(parse_error("NaN"), "config.json: a single value is found; an object is expected");
}

TEST(Attributes, AKeyMetTwiceIsAnError) {
  EXPECT_EQ(parse_error(R"({"a": 1, "b": 2, "a": 3})"), "config.json: the key a is there twice");
  EXPECT_EQ(parse_error(R"({"o": {"a": 1, "\u0061": 3}})"), "config.json: the key a is there twice");
}

TEST(Attributes, SizeDepthAndCountAreBounded) {
  const std::string deep = "{\"a\":" + std::string(100000, '[');
  EXPECT_EQ(parse_error(deep), "config.json: values are nested deeper than 32");
  EXPECT_EQ(parse_error(R"({"a": [1, 2, 3, 4]})", {.max_bytes = 100, .max_depth = 8, .max_values = 3}),
            "config.json: there are more than 3 values");
  EXPECT_EQ(parse_error(R"({"a": 1})", {.max_bytes = 7, .max_depth = 8, .max_values = 3}),
            "config.json has 8 bytes; at most 7 are expected");
}

TEST(Attributes, PartsKeepTheDocumentAlive) {
  Attributes inner;
  {
    const Attributes config = parse(R"({"rope": {"kind": "a string longer than any small buffer"}})");
    inner = *config.get_object("rope");
  }
  EXPECT_EQ(inner.get_string("kind").value(), "a string longer than any small buffer");
  EXPECT_EQ(inner.full_name("kind"), "rope.kind");
  EXPECT_TRUE(Attributes().keys().empty());
}

}  // namespace
}  // namespace butter
