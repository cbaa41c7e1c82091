#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "text/jinja_json.h"
#include "text/jinja_print.h"
#include "text/jinja_testing.h"

namespace butter::jinja {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string rendered(const std::string& source) {
  return shown(render(source));
}

std::string repeated(const std::string& piece, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += piece;
  return out;
}

std::vector<std::pair<std::string, Value>> variables_from(const nlohmann::ordered_json& json,
                                                          Provenance provenance) {
  std::vector<std::pair<std::string, Value>> variables;
  for (const auto& [name, value] : json.items()) {
    auto converted = value_from_json(value.dump(), provenance);
    EXPECT_TRUE(converted) << name;
    if (converted) variables.emplace_back(name, *std::move(converted));
  }
  return variables;
}

// ---- against jinja2 ----

TEST(JinjaGolden, EveryCaseIsWhatJinja2Renders) {
  const nlohmann::ordered_json& golden = golden_cases();
  ASSERT_GE(golden["cases"].size(), 5000u);
  const auto shared = variables_from(golden["variables"], Provenance::kTemplate);
  size_t wrong = 0;
  for (const auto& test : golden["cases"]) {
    const std::string source = test["template"];
    const auto own =
        test.contains("variables") ? variables_from(test["variables"], Provenance::kTemplate) : shared;
    const auto text = render(source, own);
    const bool same =
        test.contains("output") ? text && text->bytes == test["output"].get<std::string>() : !text;
    if (same) continue;
    ADD_FAILURE() << "template: " << source
                  << "\n  jinja2: " << (test.contains("output") ? test["output"].get<std::string>() : "error")
                  << "\n  butter: " << shown(text);
    ASSERT_LT(++wrong, 20u) << "and more";
  }
}

// ---- what Butter does not do ----

TEST(JinjaUnsupported, IsAnErrorThatNamesTheConstructAndItsLine) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{% include 'x' %}", "'include'"},
      {"{% extends 'x' %}", "'extends'"},
      {"{% import 'x' as y %}", "'import'"},
      {"{% block x %}{% endblock %}", "'block'"},
      {"{% autoescape true %}{% endautoescape %}", "'autoescape'"},
      {"{{ x|wordwrap(3) }}", "filter named 'wordwrap'"},
      {"{% if false %}{{ x|nope }}{% endif %}", "filter named 'nope'"},
      {"{{ x is nope }}", "test named 'nope'"},
      {"{% nope %}", "tag 'nope'"},
      {"{{ lipsum() }}", "'lipsum'"},
      {"{{ cycler('a') }}", "a Cycler cannot be printed"},
      {"{{ 'a'.encode() }}", "'encode'"},
      {"{{ '{!a}'.format(1) }}", "'!a'"},
      {"{{ [].append(1) }}", "'append'"},
      {"{{ {}.update({}) }}", "'update'"},
      {"{{ 'a' % 1 }}", "1 values"},
      {"{{ '%a' % 65 }}", "'%a'"},
      {"{{ '\\N{DASH}' }}", "\\N"},
      {"{{ (0 - 8) ** 0.5 }}", "complex"},
      {"{{ [1]|map('upper') }}", "generator"},
      {"{{ [1]|map('nope')|list }}", "filter named 'nope'"},
  };
  for (const auto& [source, named] : kCases) {
    EXPECT_THAT(rendered(std::string("x\n\n") + source),
                AllOf(HasSubstr("error: template line 3: "), HasSubstr(named)))
        << source;
  }
}

TEST(JinjaUnsupported, UnknownNamesAreErrorsAlsoWhereNothingWouldReachThem) {
  EXPECT_FALSE(render("{% if false %}{% nope %}{% endif %}"));
  EXPECT_FALSE(render("{% if false %}{{ 1 is nope }}{% endif %}"));
  EXPECT_FALSE(render("{{ 1 if true else (2|nope) }}"));
}

TEST(JinjaErrors, NameTheLineOfTheExpression) {
  EXPECT_THAT(rendered("a\n{{ 1 }}\n{{ 1 / 0 }}\n"), HasSubstr("template line 3: '/' by zero"));
  EXPECT_THAT(rendered("{# a\nb #}\n{{ x.y }}"), HasSubstr("template line 3: 'x' is undefined"));
  EXPECT_THAT(rendered("{% macro m() %}\n{{ x.y }}\n{% endmacro %}\n{{ m() }}"),
              HasSubstr("line 2: 'x' is undefined"));
  EXPECT_THAT(rendered("{{ raise_exception('roles must alternate') }}"), HasSubstr("roles must alternate"));
  EXPECT_THAT(rendered("a\n{{ 'abc"), HasSubstr("template line 2: a string has no end"));
}

// ---- hostile templates ----

// The same templates under small limits end soon also with sanitizers.
Limits small_limits() {
  Limits limits;
  limits.max_steps = 20'000;
  limits.max_output_bytes = size_t{1} << 16;
  limits.max_allocated_bytes = size_t{1} << 20;
  limits.max_repeated_bytes = size_t{1} << 12;
  return limits;
}

void expect_limit(const std::string& source, const std::string& bound,
                  const Limits& limits = small_limits()) {
  const auto text = render(source, {}, limits);
  ASSERT_FALSE(text) << source.substr(0, 200);
  EXPECT_EQ(text.error().code(), StatusCode::kLimit) << text.error().message();
  EXPECT_THAT(text.error().message(), HasSubstr(bound)) << source.substr(0, 200);
}

TEST(JinjaHostile, NestingInTheSourceIsBounded) {
  constexpr size_t kMany = 5'000;
  const std::pair<std::string, std::string> kCases[] = {
      {"(", ")"},           {"[", "]"},  {"{1:", "}"},  {"not ", ""},      {"-", ""},    {"x(", ")"},
      {"1 if 1 else ", ""}, {"x[", "]"}, {"x|d(", ")"}, {"x is in(", ")"}, {"(1,", ")"}, {"x(a=", ")"},
  };
  for (const auto& [open, close] : kCases) {
    expect_limit(std::string("{{ ") + repeated(open, kMany) + "1" + repeated(close, kMany) + " }}",
                 "max_nesting");
    expect_limit(std::string("{{ ") + repeated(open, kMany), "max_nesting");
  }
  for (const std::string postfix : {".a", "[0]", "()", "|trim"}) {
    expect_limit(std::string("{{ x") + repeated(postfix, kMany) + " }}", "max_nesting");
  }
  for (const std::string block :
       {"{% if 1 %}", "{% for x in [1] %}", "{% set x %}", "{% filter trim %}", "{% with %}",
        "{% macro m() %}", "{% call m() %}", "{% generation %}", "{% if 0 %}{% else %}"}) {
    expect_limit(repeated(block, kMany), "max_nesting");
  }
  expect_limit(std::string("{% set ") + repeated("(", kMany) + "x", "max_nesting");
  expect_limit(std::string("{% for ") + repeated("(", kMany) + "x", "max_nesting");
}

TEST(JinjaHostile, LongChainsOfOneLevelAreNoNesting) {
  Limits limits;
  limits.max_steps = 200'000;
  EXPECT_EQ(shown(render(std::string("{{ 0") + repeated(" + 1", 20'000) + " }}", {}, limits)), "20000");
  EXPECT_EQ(shown(render(std::string("{{ 'x'") + repeated(" ~ ''", 20'000) + " }}", {}, limits)), "x");
  EXPECT_EQ(shown(render(std::string("{{ false") + repeated(" or false", 20'000) + " }}", {}, limits)),
            "False");
  EXPECT_EQ(shown(render(std::string("{{ 1") + repeated(" == 1", 20'000) + " }}", {}, limits)), "True");
  EXPECT_EQ(
      shown(render("{% if 0 %}" + repeated("{% elif 0 %}", 20'000) + "{% else %}x{% endif %}", {}, limits)),
      "x");
  EXPECT_EQ(shown(render(std::string("{{ ") + repeated("'a' ", 20'000) + "|length }}", {}, limits)), "20000");
}

TEST(JinjaHostile, StepsAreBounded) {
  const std::string loop = "{% for x in range(100000) %}";
  expect_limit(repeated(loop, 8) + repeated("{% endfor %}", 8), "max_steps");
  expect_limit("{% set l = range(9000)|list %}{{ l == l|list }}{{ l|sort }}{{ l|map('string')|list }}",
               "max_steps");
  // Sharing makes a value of 2^60 leaves out of 60 lists.
  const std::string doubling =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  expect_limit(doubling + "{{ ns.x }}", "");
  expect_limit(doubling + "{{ ns.x|tojson }}", "");
  expect_limit(doubling + "{% set a = ns.x %}" + doubling + "{{ ns.x == a }}", "max_steps");
  expect_limit(
      "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ "
      "{ns.x: 1} }}",
      "dict key");
  // A search that compares everything with everything.
  Limits limits = small_limits();
  limits.max_repeated_bytes = size_t{1} << 20;
  limits.max_allocated_bytes = size_t{64} << 20;
  limits.max_output_bytes = size_t{8} << 20;
  expect_limit("{{ ('a' * 500000 ~ 'b') in ('a' * 1000000) }}", "max_steps", limits);
  expect_limit("{{ ('a' * 1000000).replace('a' * 500000 ~ 'b', '') }}", "max_steps", limits);
  expect_limit("{{ ('a' * 1000000).split('a' * 500000 ~ 'b') }}", "max_steps", limits);
  expect_limit("{{ ('a' * 1000000).strip('b' * 500000 ~ 'a') }}", "max_steps", limits);
}

TEST(JinjaHostile, LongTextsAndManyNamesCostSteps) {
  Limits limits = small_limits();
  limits.max_repeated_bytes = size_t{1} << 20;
  limits.max_allocated_bytes = size_t{64} << 20;
  limits.max_output_bytes = size_t{8} << 20;
  const std::string long_text =
      "{% set t = ' ' * 1000000 %}{% set u = t ~ '' %}{% set d = {t: 1} %}{% for i in range(5000) %}";
  for (const std::string use :
       {"t == u", "t < u", "d[t]", "d.get(t)", "t in d", "t in [u]", "t is sameas u", "t|trim", "t.strip()",
        "t|int", "t|float", "t|length", "t[0]", "[d]|map(attribute=t)|list"}) {
    expect_limit(long_text + "{% set x = " + use + " %}{% endfor %}", "max_steps", limits);
  }
  std::string names;
  std::string attributes = "{% set ns = namespace() %}";
  std::string arguments = "{{ dict(";
  std::string parameters = "{% macro m(";
  for (int i = 0; i < 2'000; ++i) {
    names += fmt::format("{{% set x{} = 1 %}}", i);
    attributes += fmt::format("{{% set ns.x{} = 1 %}}", i);
    arguments += fmt::format("x{}=1,", i);
    parameters += fmt::format("x{},", i);
  }
  expect_limit(names, "max_steps");
  expect_limit(attributes, "max_steps");
  expect_limit(arguments, "more than 255");
  expect_limit(parameters, "more than 255");
}

TEST(JinjaHostile, MemoryIsBounded) {
  expect_limit("{{ 'a' * 10 ** 9 }}", "max_repeated_bytes");
  expect_limit("{{ 9223372036854775807 * 'ab' }}", "max_repeated_bytes");
  expect_limit("{{ [1] * 10 ** 15 }}", "max_repeated_bytes");
  expect_limit("{{ 'a'|indent(10 ** 12) }}", "max_repeated_bytes");
  expect_limit("{{ '%999999999d' % 1 }}", "width");
  expect_limit("{{ range(10 ** 9) }}", "max_range");
  expect_limit("{{ range(-9223372036854775807, 9223372036854775807) }}", "max_range");
  expect_limit("{{ [1]|batch(10 ** 15, 0)|list }}", "");
  expect_limit("{{ 1|tojson(indent=10 ** 9) }}", "1000");
  expect_limit("{{ [1]|slice(10 ** 15, 0)|list }}", "");
  expect_limit("{{ 'a'|center(10 ** 12) }}", "max_repeated_bytes");
  expect_limit("{{ 'a'.ljust(10 ** 12) }}{{ 'a'.zfill(10 ** 12) }}", "max_repeated_bytes");
  expect_limit("{{ '\t'.expandtabs(10 ** 12) }}", "max_repeated_bytes");
  expect_limit("{{ ('\t' * 2000).expandtabs(2000) }}", "max_output_bytes");
  expect_limit("{{ '{:>9999}'.format(1) }}{{ '{:.9999f}'.format(1.5) }}", "width");
  expect_limit("{{ ('{0:>1000}' * 400).format('a') }}", "");
  expect_limit("{% for i in range(3000) %}0123456789012345678901234567890123456789{% endfor %}",
               "max_output_bytes");
  expect_limit(
      "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "max_output_bytes");
  expect_limit(
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "");
  expect_limit("{% for i in range(9999) %}{% set x = namespace(a=1, b=2) %}{% endfor %}", "");
  Limits limits = small_limits();
  limits.max_steps = 1'000'000;
  expect_limit("{% for i in range(9999) %}{% set x = namespace(a=1, b=2) %}{% endfor %}",
               "max_allocated_bytes", limits);
  expect_limit("{% for i in range(99999) %}{% macro m() %}{% endmacro %}{% endfor %}", "max_allocated_bytes",
               limits);
  expect_limit(
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = ns.x + [i] %}{% endfor %}", "",
      limits);
}

TEST(JinjaHostile, RecursionIsBounded) {
  expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "max_eval_depth");
  expect_limit(
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{% if 1 %}{{ [a()] }}{% endif %}{% endmacro %}{{ "
      "a() }}",
      "max_eval_depth");
  expect_limit(
      "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% if caller %}{% endif %}{% endmacro %}{{ "
      "m() }}",
      "max_eval_depth");
  expect_limit("{% macro m(x=m()) %}{% endmacro %}{{ m() }}", "max_eval_depth");
  expect_limit("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "max_eval_depth");
  expect_limit("{% for x in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}",
               "max_steps");
  Limits limits = small_limits();
  limits.max_steps = 100'000;
  const std::string deepening = "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = ";
  for (const std::string next :
       {"[ns.x]", "(ns.x,)", "{1: ns.x}", "{'a': ns.x}.items", "{'a': ns.x}.values()", "dict(a=ns.x)",
        "[ns.x]|reverse", "[ns.x]|batch(1)|list", "cycler(ns.x)", "joiner(ns.x)", "cycler(ns.x).next",
        "[{'a': ns.x}]|groupby('b', default=1)", "cycler(ns.x, ns.x, ns.x)"}) {
    const auto text = render(deepening + next + " %}{% endfor %}", {}, limits);
    EXPECT_TRUE(text || text.error().code() == StatusCode::kLimit) << next << shown(text);
  }
  expect_limit("{{ ['a']|map(" + repeated("'map',", 5'000) + "'list')|list }}", "max_eval_depth", limits);
}

TEST(JinjaHostile, CyclesEndAndLeakNothing) {
  const std::string cycle =
      "{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.list = [ns, {'a': ns}] %}";
  EXPECT_EQ(rendered(cycle + "{{ ns == ns }}{{ ns.list == ns.list }}{{ ns.me.me.me is sameas ns }}"),
            "TrueTrueTrue");
  expect_limit(cycle + "{{ ns }}", "max_eval_depth");
  EXPECT_FALSE(render(cycle + "{{ ns|tojson }}"));
  // A loop that holds itself, and loops that hold one another after they have ended.
  EXPECT_EQ(rendered("{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{{ loop.changed(loop) "
                     "}}{{ loop.changed([ns]) }}"
                     "{% endfor %}"),
            "TrueTrue");
  EXPECT_EQ(rendered("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% for x in [ns.l] %}{% set "
                     "ns.l = [loop] %}"
                     "{% endfor %}{% endfor %}ok"),
            "ok");
  EXPECT_THAT(
      rendered(
          "{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{% endfor %}{{ ns.l.last }}"),
      HasSubstr("after the loop has ended"));
  EXPECT_THAT(
      rendered("{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor %}"
               "{{ ns.l([1]) }}"),
      HasSubstr("a loop is called after it has ended"));
  EXPECT_EQ(rendered("{% set ns = namespace() %}{% set ns.c = cycler(ns, 1) %}{% set ns.m = ns.c.next %}"
                     "{{ ns.m() is sameas ns }}{{ ns.m() }}"),
            "True1");
  EXPECT_THAT(
      rendered(
          "{% set ns = namespace() %}{% for x in [1] %}{% macro m() %}{{ x }}{% endmacro %}{% set ns.m = m %}"
          "{{ ns.m() }}{% endfor %}{{ ns.m() }}"),
      HasSubstr("after the block it was made in"));
}

TEST(JinjaHostile, UnterminatedAndMisplacedTagsAreErrors) {
  for (const std::string source : {"{{",          "{%",
                                   "{#",          "{{ ",
                                   "{{ 1",        "{{ 1 }",
                                   "{% if",       "{% if 1",
                                   "{% if 1 %",   "{% if 1 %}",
                                   "{% for",      "{% for x",
                                   "{% for x in", "{% for x in y %}",
                                   "{% set",      "{% set x",
                                   "{% set x =",  "{% set x %}",
                                   "{% macro",    "{% macro m",
                                   "{% macro m(", "{% macro m() %}",
                                   "{% raw %}",   "{% raw %}{% endraw",
                                   "{# #",        "{{ '",
                                   "{{ \"\\",     "{{ '\\x",
                                   "{{ [",        "{{ {",
                                   "{{ (",        "{{ x[",
                                   "{{ x(",       "{{ x.",
                                   "{{ x|",       "{{ x is",
                                   "{{ not",      "{{ 1 +",
                                   "{{ }}",       "{%%}",
                                   "{% -%}",      "{{ ] }}",
                                   "{{ (] }}",    "{% endif %}",
                                   "{% else %}",  "{% call",
                                   "{% with x"}) {
    const auto text = render(source);
    ASSERT_FALSE(text) << source;
    EXPECT_THAT(text.error().message(), HasSubstr("template line 1: ")) << source;
  }
}

TEST(JinjaHostile, EveryPrefixOfAGoldenTemplateEndsInTextOrAnError) {
  const auto& cases = golden_cases()["cases"];
  const auto variables = variables_from(golden_cases()["variables"], Provenance::kContent);
  size_t rendered_count = 0;
  for (size_t i = 0; i < cases.size(); i += 10) {
    const std::string source = cases[i]["template"];
    const size_t stride = 1 + source.size() / 40;
    for (size_t end = i % stride; end < source.size(); end += stride) {
      rendered_count += render(source.substr(0, end), variables, small_limits()).has_value() ? 1 : 0;
    }
  }
  EXPECT_GT(rendered_count, 0u);
}

TEST(JinjaHostile, BytesThatAreNoTextAreErrorsOrKept) {
  EXPECT_THAT(rendered("ab\xFF"), HasSubstr("not valid UTF-8 at byte 2"));
  EXPECT_THAT(rendered("{{ '\xC3' }}"), HasSubstr("not valid UTF-8 at byte 4"));
  EXPECT_THAT(rendered("\xED\xA0\x80"), HasSubstr("byte 0"));
  EXPECT_EQ(rendered(std::string("a\0b{{ 'c\0d'|length }}", 21)), std::string("a\0b3", 4));
  EXPECT_THAT(rendered(std::string("{{ \0 }}", 7)), HasSubstr("byte 0x00"));
  EXPECT_THAT(rendered("{{ \x01 }}"), HasSubstr("byte 0x01"));
  EXPECT_THAT(rendered("{{ 'x' \xE2\x82\xAC }}"), HasSubstr("character '\xE2\x82\xAC'"));
  EXPECT_THAT(rendered("{{ '\\ud800' }}"), HasSubstr("no character"));
  EXPECT_THAT(rendered("{{ '\\U00110000' }}"), HasSubstr("no character"));
  // A wrong byte of a message counts as a character and comes out as it went in, except in JSON.
  const std::string wrong = "a\xFF\xC3(\xED\xA0\x80";
  const auto text = render("{{ m|length }}{{ m[::-1] }}{{ m|upper }}{{ m|trim }}{{ m|tojson }}{{ [m] }}",
                           {{"m", Value::content(wrong)}});
  ASSERT_TRUE(text) << shown(text);
  EXPECT_EQ(text->bytes,
            "7\x80\xA0\xED(\xC3\xFF"
            "a"
            "A\xFF\xC3(\xED\xA0\x80" +
                wrong +
                "\"a\xEF\xBF\xBD\xEF\xBF\xBD(\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"['a\\xff\\xc3("
                "\\xed\\xa0\\x80']");
}

TEST(JinjaHostile, NumbersThatDoNotFitAreErrors) {
  for (const std::string expression :
       {"9223372036854775808", "99999999999999999999999999", "0xFFFFFFFFFFFFFFFFF", "9223372036854775807 + 1",
        "-9223372036854775807 - 2", "9223372036854775807 * 2", "(-9223372036854775807 - 1) // -1",
        "-(-9223372036854775807 - 1)", "(-9223372036854775807 - 1)|abs", "2 ** 63", "3 ** 999999999999",
        "'9223372036854775808'|int", "1e19|int", "9223372036854775807|round(-3)",
        "[9223372036854775807, 1]|sum"}) {
    expect_limit("{{ " + expression + " }}", "64 bits");
  }
  EXPECT_EQ(rendered("{{ -9223372036854775807 - 1 }}"), "-9223372036854775808");
  EXPECT_EQ(rendered("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_EQ(
      rendered("{{ 0 ** 9223372036854775807 }}{{ 1 ** 9223372036854775807 }}{{ -1 ** 9223372036854775807 }}"),
      "01-1");
  EXPECT_EQ(rendered("{{ [1, 2][9223372036854775807:-9223372036854775807:-9223372036854775807] }}"), "[2]");
  EXPECT_EQ(rendered("{{ 'ab'[-9223372036854775807 - 1:9223372036854775807:9223372036854775807] }}"), "a");
  EXPECT_EQ(rendered("{{ range(9223372036854775806, 9223372036854775807, 5)|list }}"),
            "[9223372036854775806]");
  EXPECT_EQ(rendered("{{ 1e400 }}{{ -1e400 }}{{ 1e-400 }}"), "inf-inf0.0");
}

TEST(JinjaHostile, TemplateSizeIsBounded) {
  Limits limits;
  limits.max_template_bytes = 10;
  EXPECT_TRUE(render("0123456789", {}, limits));
  expect_limit("0123456789a", "max_template_bytes", limits);
}

// ---- content spans ----

// The template's variable c is content, t is not; content is shown in [brackets].
std::string spans(const std::string& source, const std::string& content = "ab cd",
                  const std::string& trusted = "XY") {
  const auto text = render(source, {{"c", Value::content(content)}, {"t", Value::text(trusted)}});
  return text ? marked(*text) : shown(text);
}

TEST(JinjaContent, SpansFollowContentThroughEveryOperation) {
  EXPECT_EQ(spans("<{{ c }}>{{ t }}"), "<[ab cd]>XY");
  EXPECT_EQ(spans("{{ '<' + c + '>' ~ t ~ c }}"), "<[ab cd]>XY[ab cd]");
  EXPECT_EQ(spans("{{ ('<' ~ c ~ '>')[1:4] }}{{ ('<' ~ c ~ '>')[::-1] }}"), "[ab ]>[dc ba]<");
  EXPECT_EQ(spans("{{ ('<' ~ c ~ '>')|upper }}{{ ('x' ~ c)|title }}"), "<[AB CD]>X[ab Cd]");
  EXPECT_EQ(spans("{{ (' ' ~ c ~ ' ')|trim }}{{ c.strip('ad') }}"), "[ab cdb c]");
  EXPECT_EQ(spans("{{ c|replace('b', 'B') }}{{ t|replace('X', c) }}"), "[a]B[ cdab cd]Y");
  EXPECT_EQ(spans("{{ c.split(' ')|join('-') }}{{ [t, c]|join(c) }}"), "[ab]-[cd]XY[ab cdab cd]");
  EXPECT_EQ(spans("{{ c.split() }}{{ {c: t} }}"), "['[ab]', '[cd]']{'[ab cd]': 'XY'}");
  EXPECT_EQ(spans("{{ {'k': c}|tojson }}", "\"\n"), "{\"k\": \"[\\\"\\n]\"}");
  EXPECT_EQ(spans("{{ '%s/%5s/%r' % (c, t, c) }}"), "[ab cd]/   XY/'[ab cd]'");
  EXPECT_EQ(spans("{% set x %}<{{ c }}>{% endset %}{{ x }}{% filter upper %}{{ x }}{% endfilter %}"),
            "<[ab cd]><[AB CD]>");
  EXPECT_EQ(spans("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(c) ~ m(t) }}"), "<[ab cd]><XY>");
  EXPECT_EQ(spans("{% set ns = namespace(x='') %}{% for ch in c %}{% set ns.x = ns.x ~ '.' ~ ch %}{% endfor "
                  "%}{{ ns.x }}",
                  "ab"),
            ".[a].[b]");
  EXPECT_EQ(spans("{{ c|indent(2) }}|{{ (c ~ '<')|escape }}", "a\n>"), "[a]\n  [>]|[a\n&gt;]&lt;");
  EXPECT_EQ(spans("{{ c * 2 }}{{ c|list|last }}{{ c|first }}{{ c|string }}{{ c|default('x') }}"),
            "[ab cdab cddaab cdab cd]");
  EXPECT_EQ(spans("{{ '{}:{:>7}:{!r}'.format(c, c, c) }}{{ '<%(a)s>' % {'a': c} }}"),
            "[ab cd]:  [ab cd]:'[ab cd]'<[ab cd]>");
  EXPECT_EQ(spans("{{ '{:{}>4}|{:{}>4}'.format(t, c, 1, c) }}", "<"), "[<<]XY|[<<<]1");
  EXPECT_EQ(
      spans("{{ ('<' ~ c ~ '>').partition(' ')|join('|') }}{{ c.center(7, '*') }}{{ t.rjust(4, c[0]) }}"),
      "<[ab]|[ ]|[cd]>*[ab cd]*[aa]XY");
  EXPECT_EQ(
      spans("{{ ('x' ~ c).swapcase() }}{{ (c ~ '/tail')|truncate(4, true, leeway=0) }}{{ '-5'.zfill(4) }}"),
      "X[AB CDa]...-005");
  EXPECT_EQ(spans("{{ c.rsplit(none, 1)|join('.') }}{{ [{'k': c}]|groupby('k') }}"),
            "[ab].[cd][('[ab cd]', [{'k': '[ab cd]'}])]");
  EXPECT_EQ(spans("{{ c|length }}{{ c|int }}{{ c == 'ab cd' }}{{ 'T' if c else 'F' }}"), "50TrueT");
}

TEST(JinjaContent, WhatContentLeavesOverOfTheTemplatesWordsIsContent) {
  EXPECT_EQ(spans("{{ '<|imX_end|>'|replace(c, '') }}", "X"), "[<|im_end|>]");
  EXPECT_EQ(spans("{{ '<|im_end|>'|replace(c, '') }}", "X"), "<|im_end|>");
}

// Content of letters that no template has: wherever one comes out, it is in a span, and nothing else is.
TEST(JinjaContent, SpansAreExactInEveryGoldenCase) {
  const auto& golden = golden_cases();
  const auto disguise = [](const std::string& text) {
    std::string out;
    for (const char c : text) out += c == ' ' ? std::string("\xEA\x80\x80") : std::string("\xEA\x80\x81");
    return out;
  };
  std::vector<std::pair<std::string, Value>> variables =
      variables_from(golden["variables"], Provenance::kTemplate);
  std::vector<Value> messages;
  for (const auto& message : golden["variables"]["msgs"]) {
    messages.push_back(Value::dict(
        {{"role", Value::text(message["role"])}, {"content", Value::content(disguise(message["content"]))}}));
  }
  for (auto& [name, value] : variables) {
    if (value.is(Kind::kText)) value = Value::content(disguise(value.bytes()));
    if (name == "msgs") value = Value::list(messages);
  }
  size_t with_spans = 0;
  for (const auto& test : golden["cases"]) {
    const std::string source = test["template"];
    const auto text = render(source, variables, small_limits());
    if (!text || source.find("ensure_ascii") != std::string::npos) continue;
    std::vector<bool> in_span(text->bytes.size(), false);
    size_t last = 0;
    for (const Span& span : text->content) {
      ASSERT_TRUE(span.begin < span.end && span.end <= text->bytes.size()) << source;
      ASSERT_TRUE(span.begin > last || (span.begin == 0 && last == 0)) << source;
      last = span.end;
      std::fill(in_span.begin() + static_cast<ptrdiff_t>(span.begin),
                in_span.begin() + static_cast<ptrdiff_t>(span.end), true);
    }
    with_spans += text->content.empty() ? 0 : 1;
    const bool exact = source.find("replace(") == std::string::npos;
    for (size_t i = 0; i < text->bytes.size(); i += code_point_at(text->bytes, i).length) {
      const bool is_content = text->bytes.compare(i, 2, "\xEA\x80") == 0;
      ASSERT_TRUE(in_span[i] == is_content || (in_span[i] && !exact)) << source << "\n" << marked(*text);
    }
  }
  EXPECT_GT(with_spans, 200u);
}

// ---- values ----

TEST(JinjaValue, FloatsPrintTheShortestDigitsThatReadBack) {
  const std::pair<double, const char*> kCases[] = {{0.1, "0.1"},
                                                   {1.0, "1.0"},
                                                   {-0.0, "-0.0"},
                                                   {1e16, "1e+16"},
                                                   {9999999999999998.0, "9999999999999998.0"},
                                                   {1e-5, "1e-05"},
                                                   {0.0001, "0.0001"},
                                                   {123.456, "123.456"},
                                                   {5e-324, "5e-324"},
                                                   {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                   {1.5e300, "1.5e+300"}};
  for (const auto& [number, text] : kCases) EXPECT_EQ(float_repr(number), text);
  EXPECT_EQ(float_repr(std::nan("")), "nan");
  EXPECT_EQ(float_repr(-INFINITY), "-inf");
}

TEST(JinjaValue, JsonThatDoesNotFitIsAnError) {
  EXPECT_TRUE(value_from_json("{\"a\": [1, 2.5, null, true, \"x\"]}", Provenance::kContent));
  EXPECT_EQ(value_from_json("-9223372036854775808", Provenance::kContent)->as_int(), INT64_MIN);
  for (const std::string json : {"", "{", "[1,]", "nul", "{\"a\"}", "9223372036854775808",
                                 "-9223372036854775809", "[\"\xFF\"]", "\"\\ud800\"", "1 2"}) {
    EXPECT_FALSE(value_from_json(json, Provenance::kContent)) << json;
  }
  EXPECT_FALSE(value_from_json(repeated("[", 100'000), Provenance::kContent));
  EXPECT_FALSE(value_from_json(repeated("[", 101) + repeated("]", 101), Provenance::kContent));
  EXPECT_TRUE(value_from_json(repeated("[", 100) + repeated("]", 100), Provenance::kContent));
  EXPECT_FALSE(value_from_json(repeated("{\"a\":", 100'000), Provenance::kContent));
}

}  // namespace
}  // namespace butter::jinja
