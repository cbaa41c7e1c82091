#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/characters.h"
#include "text/utf8.h"

namespace butter {
namespace {

using Kind = NormalizerStep::Kind;

struct CodePoints {
  char32_t first;
  char32_t last;
};

bool is_among(std::span<const CodePoints> sorted, char32_t c) {
  const auto found = std::ranges::lower_bound(sorted, c, {}, &CodePoints::last);
  return found != sorted.end() && found->first <= c;
}

// Characters with a decomposition or a combining class that the tables of `tokenizers` do not have yet: there
// they neither change nor move, and nothing combines across them. U+11930 is here for the pair that it ends.
constexpr CodePoints kUnknownToNormalization[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};
// Marks that those tables do not have as marks.
constexpr CodePoints kUnknownMarks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},
    {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},     {0xCF3, 0xCF3},     {0xD00, 0xD00},
    {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},
    {0x180F, 0x180F},   {0x1ABF, 0x1ACE},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0xA8FF, 0xA8FF},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x11145, 0x11146},
    {0x111C9, 0x111C9}, {0x111CE, 0x111CF}, {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x1182C, 0x1183A}, {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193B, 0x1193E}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119D1, 0x119D7}, {0x119DA, 0x119E0}, {0x119E4, 0x119E4}, {0x11A01, 0x11A0A},
    {0x11A33, 0x11A39}, {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47}, {0x11A51, 0x11A5B}, {0x11A8A, 0x11A99},
    {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A}, {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45}, {0x11D47, 0x11D47},
    {0x11D8A, 0x11D8E}, {0x11D90, 0x11D91}, {0x11D93, 0x11D97}, {0x11EF3, 0x11EF6}, {0x11F00, 0x11F01},
    {0x11F03, 0x11F03}, {0x11F34, 0x11F3A}, {0x11F3E, 0x11F42}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE4, 0x16FE4}, {0x16FF0, 0x16FF1}, {0x1CF00, 0x1CF2D},
    {0x1CF30, 0x1CF46}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}};

// Calls `take` with each character of well-formed text.
template <typename Take>
void for_each_character(std::string_view text, const Take& take) {
  while (!text.empty()) {
    const size_t bytes = first_utf8_unit(text).bytes;
    take(decode_utf8(text.substr(0, bytes)));
    text.remove_prefix(bytes);
  }
}

int combining_class(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

// One of the four forms of a text, a run between unknown characters at a time.
//
// utf8proc decomposes single characters and composes; the order of marks is ours, because utf8proc's own way
// is quadratic in a run of marks.
class FormWriter {
 public:
  FormWriter(Kind form, std::string* out)
      : composes_(form == Kind::kNfc || form == Kind::kNfkc),
        options_(form == Kind::kNfkc || form == Kind::kNfkd ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT
                                                            : UTF8PROC_DECOMPOSE),
        out_(*out) {}

  void add(char32_t c) {
    if (is_among(kUnknownToNormalization, c)) {
      finish();
      append_utf8(c, &out_);
      return;
    }
    // The longest decomposition of one character has 18.
    utf8proc_int32_t parts[32];
    int boundary_class = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32,
                                               static_cast<utf8proc_option_t>(options_), &boundary_class);
    run_.insert(run_.end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, 32));
  }

  void finish() {
    order_marks();
    auto length = static_cast<utf8proc_ssize_t>(run_.size());
    if (composes_ && length > 0) {
      length = utf8proc_normalize_utf32(run_.data(), length, compose_options());
    }
    for (utf8proc_ssize_t i = 0; i < length; ++i) append_utf8(static_cast<char32_t>(run_[i]), &out_);
    run_.clear();
  }

 private:
  static utf8proc_option_t compose_options() {
    return static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  }

  void order_marks() {
    const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
    for (auto at = run_.begin(); at != run_.end();) {
      const auto first = std::find_if(at, run_.end(), is_mark);
      const auto last = std::find_if_not(first, run_.end(), is_mark);
      std::stable_sort(first, last, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
      at = last;
    }
  }

  bool composes_;
  int options_;
  std::string& out_;
  std::vector<utf8proc_int32_t> run_;
};

// Cases that are younger than utf8proc's tables, and the one that has two characters.
void append_lowercase(char32_t c, std::string* out) {
  if (c == 0x130) {
    out->append("i\u0307");
    return;
  }
  struct Younger {
    CodePoints upper;
    char32_t lower;  // of the first
  };
  constexpr Younger kYounger[] = {{{0x1C89, 0x1C89}, 0x1C8A},    {{0xA7CB, 0xA7CB}, 0x264},
                                  {{0xA7CC, 0xA7CC}, 0xA7CD},    {{0xA7CE, 0xA7CE}, 0xA7CF},
                                  {{0xA7D2, 0xA7D2}, 0xA7D3},    {{0xA7D4, 0xA7D4}, 0xA7D5},
                                  {{0xA7DA, 0xA7DA}, 0xA7DB},    {{0xA7DC, 0xA7DC}, 0x19B},
                                  {{0x10D50, 0x10D65}, 0x10D70}, {{0x16EA0, 0x16EB8}, 0x16EBB}};
  for (const auto& [upper, lower] : kYounger) {
    if (upper.first <= c && c <= upper.last) return append_utf8(lower + (c - upper.first), out);
  }
  append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

bool is_mark(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  const bool is_one = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                      category == UTF8PROC_CATEGORY_ME;
  const bool was_one = c == 0x1CF2 || c == 0x1CF3;  // of Unicode 9 alone
  return was_one || (is_one && !is_among(kUnknownMarks, c));
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && is_white_space(first_character(text)))
    text.remove_prefix(first_character(text).size());
  while (right && !text.empty() && is_white_space(last_character(text)))
    text.remove_suffix(last_character(text).size());
  return text;
}

Status put_replaced(std::string_view text, const Regex& regex, std::string_view content, size_t most_bytes,
                    std::string* out) {
  MatchFinder matches(regex);
  matches.start(text);
  size_t at = 0, begin = 0, end = 0;
  while (matches.next(&begin, &end)) {
    out->append(text.substr(at, begin - at));
    out->append(content);
    at = end;
    if (out->size() > most_bytes)
      return fail(StatusCode::kLimit, "the normalizer makes more than {} bytes", most_bytes);
  }
  if (!matches.error().empty()) {
    return fail(StatusCode::kLimit, "the normalizer gives up on a text of {} bytes: {}", text.size(),
                matches.error());
  }
  out->append(text.substr(at));
  return {};
}

}  // namespace

Result<Normalizer> Normalizer::create(std::span<const NormalizerStep> steps) {
  if (steps.size() > kMaxSteps) {
    return fail(StatusCode::kUnsupported, "the normalizer has {} steps; at most {} are expected",
                steps.size(), kMaxSteps);
  }
  Normalizer made;
  for (const NormalizerStep& what : steps) {
    Step step{what, std::nullopt, std::nullopt};
    if (what.kind == Kind::kCharsMap) {
      BUTTER_ASSIGN(step.charsmap, CharsMap::create(what.content));
      step.what.content.clear();
    }
    if (what.kind == Kind::kReplaceText || what.kind == Kind::kReplaceRegex) {
      const bool is_text = what.kind == Kind::kReplaceText;
      auto regex =
          Regex::compile(what.pattern, is_text ? Regex::Language::kText : Regex::Language::kTokenizerJson);
      if (!regex) return fail(regex.error().within("normalizer"));
      step.regex = std::move(*regex);
    }
    made.steps_.push_back(std::move(step));
  }
  return made;
}

size_t Normalizer::most_bytes_from(std::string_view text) {
  return text.size() * kMostGrowth + (size_t{1} << 20);
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  const size_t most_bytes = most_bytes_from(text);
  std::string normalized(text);
  for (const Step& step : steps_) {
    BUTTER_TRY(apply_step(step, most_bytes, &normalized));
    if (normalized.size() > most_bytes)
      return fail(StatusCode::kLimit, "the normalizer makes more than {} bytes", most_bytes);
  }
  return normalized;
}

// What a step makes of a stretch that is well-formed UTF-8.
Status Normalizer::put_stretch(const Step& step, std::string_view text, size_t most_bytes, std::string* out) {
  switch (step.what.kind) {
    case Kind::kLowercase:
      for_each_character(text, [&](char32_t c) { append_lowercase(c, out); });
      return {};
    case Kind::kStripAccents:
      for_each_character(text, [&](char32_t c) {
        if (!is_mark(c)) append_utf8(c, out);
      });
      return {};
    case Kind::kReplaceText:
    case Kind::kReplaceRegex:
      return put_replaced(text, *step.regex, step.what.content, most_bytes, out);
    case Kind::kCharsMap:
      step.charsmap->append_as_tokenizers(text, out);
      return {};
    default:
      break;
  }
  FormWriter writer(step.what.kind, out);
  for_each_character(text, [&](char32_t c) { writer.add(c); });
  writer.finish();
  return {};
}

Status Normalizer::apply_step(const Step& step, size_t most_bytes, std::string* text) {
  if (step.what.kind == Kind::kPrepend) {
    if (!text->empty()) text->insert(0, step.what.content);
    return {};
  }
  if (step.what.kind == Kind::kStrip) {
    *text = std::string(stripped(*text, step.what.left, step.what.right));
    return {};
  }
  std::string out;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view good = rest.substr(0, well_formed_utf8_bytes(rest));
    BUTTER_TRY(put_stretch(step, good, most_bytes, &out));
    rest.remove_prefix(good.size());
    if (rest.empty()) break;
    const size_t bad = first_utf8_unit(rest).bytes;
    out.append(rest.substr(0, bad));
    rest.remove_prefix(bad);
  }
  *text = std::move(out);
  return {};
}

}  // namespace butter
