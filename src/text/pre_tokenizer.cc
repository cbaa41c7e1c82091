#include "text/pre_tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace butter {
namespace {

// Whether a segment and the one behind it are one piece.
bool are_joined(SplitBehavior behavior, bool is_match, bool next_is_match) {
  switch (behavior) {
    case SplitBehavior::kContiguous:
      return is_match == next_is_match;
    case SplitBehavior::kMergedWithPrevious:
      return !is_match && next_is_match;
    case SplitBehavior::kMergedWithNext:
      return is_match && !next_is_match;
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      return false;
  }
  return false;
}

}  // namespace

const PreTokenizerRow* PreTokenizer::find_row(std::string_view name) {
  for (const PreTokenizerRow& row : pre_tokenizer_rows()) {
    if (std::ranges::find(row.names, name) != row.names.end()) return &row;
  }
  return nullptr;
}

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  if (const PreTokenizerRow* const row = find_row(name)) return create(row->names[0], row->stages);
  return fail(StatusCode::kUnsupported, "pre-tokenizer '{}' is not one that Butter knows: {}",
              name.substr(0, 64), names());
}

Result<PreTokenizer> PreTokenizer::create(std::string_view name, std::span<const PreTokenizerStage> stages) {
  if (stages.size() > kMaxStages) {
    return fail(StatusCode::kUnsupported, "pre-tokenizer '{}' has {} steps; at most {} are expected", name,
                stages.size(), kMaxStages);
  }
  PreTokenizer made;
  made.name_ = name;
  for (const PreTokenizerStage& what : stages) {
    auto stage = make_stage(what);
    if (!stage) return fail(stage.error().within(fmt::format("pre-tokenizer '{}'", name)));
    made.stages_.push_back(std::move(*stage));
  }
  return made;
}

Result<PreTokenizer::Stage> PreTokenizer::make_stage(const PreTokenizerStage& what) {
  using Kind = PreTokenizerStage::Kind;
  Stage stage{what, std::nullopt};
  if (what.kind == Kind::kMark) return stage;
  const Regex::Language language = what.kind == Kind::kText    ? Regex::Language::kText
                                   : what.kind == Kind::kPcre2 ? Regex::Language::kPcre2
                                                               : Regex::Language::kTokenizerJson;
  BUTTER_ASSIGN(stage.regex, Regex::compile(what.text, language));
  return stage;
}

std::string PreTokenizer::names() {
  std::vector<std::string_view> shown;
  for (const PreTokenizerRow& row : pre_tokenizer_rows()) shown.push_back(row.names[0]);
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::optional<std::string_view> PreTokenizer::name_of(std::span<const PreTokenizerStage> stages) {
  for (const PreTokenizerRow& row : pre_tokenizer_rows()) {
    if (std::ranges::equal(row.stages, stages)) return row.names[0];
  }
  return std::nullopt;
}

WordReader::WordReader(const PreTokenizer& pre_tokenizer) : pre_tokenizer_(pre_tokenizer) {
  cuts_.resize(pre_tokenizer.stages_.size());
  for (size_t i = 0; i < cuts_.size(); ++i) {
    if (pre_tokenizer.stages_[i].regex) cuts_[i].matches.emplace(*pre_tokenizer.stages_[i].regex);
  }
}

WordReader::~WordReader() = default;

void WordReader::start(std::string_view text, Place place) {
  text_ = text;
  place_ = place;
  text_pending_ = !text.empty();
  status_ = {};
  for (Cut& cut : cuts_) {
    cut.is_done = true;
    cut.seen_piece = false;
  }
}

bool WordReader::next(std::string_view* word) {
  return next_of_stage(cuts_.size(), word);
}

// The next piece that the first `stage` stages leave.
bool WordReader::next_of_stage(size_t stage, std::string_view* piece) {
  if (stage == 0) {
    *piece = text_;
    return std::exchange(text_pending_, false);
  }
  const bool marks = pre_tokenizer_.stages_[stage - 1].what.kind == PreTokenizerStage::Kind::kMark;
  return marks ? next_marked(stage - 1, piece) : next_cut(stage - 1, piece);
}

bool WordReader::next_marked(size_t stage, std::string_view* piece) {
  if (!next_of_stage(stage, piece)) return false;
  const PreTokenizerStage& what = pre_tokenizer_.stages_[stage].what;
  const bool is_first = !std::exchange(cuts_[stage].seen_piece, true);
  const bool may_prepend =
      (what.scheme == MarkScheme::kAlways && !(is_first && place_ == Place::kContinues)) ||
      (what.scheme == MarkScheme::kFirst && is_first && place_ == Place::kFirst);
  const bool begins_with_mark = piece->starts_with(what.text) || piece->starts_with(' ');
  const bool prepends = may_prepend && !begins_with_mark;
  const bool replaces = what.text != " " && piece->find(' ') != std::string_view::npos;
  if (!prepends && !replaces) return true;

  std::string& marked = marked_.emplace_back(prepends ? what.text : "");
  marked.reserve(marked.size() + piece->size());
  for (const char c : *piece) {
    if (c == ' ') {
      marked += what.text;
    } else {
      marked += c;
    }
  }
  *piece = marked;
  return true;
}

bool WordReader::next_cut(size_t stage, std::string_view* piece) {
  Cut& cut = cuts_[stage];
  const SplitBehavior behavior = pre_tokenizer_.stages_[stage].what.behavior;
  while (true) {
    if (cut.is_done && !begin_piece(stage)) return false;
    Segment segment;
    if (!next_segment(stage, &segment)) {
      if (!status_) return false;
      cut.is_done = true;
      continue;
    }
    if (segment.begin == segment.end || (segment.is_match && behavior == SplitBehavior::kRemoved)) continue;
    *piece = cut.piece.substr(segment.begin, segment.end - segment.begin);
    return true;
  }
}

bool WordReader::begin_piece(size_t stage) {
  Cut& cut = cuts_[stage];
  if (!next_of_stage(stage, &cut.piece)) return false;
  cut.is_done = false;
  cut.at = 0;
  cut.matches->start(cut.piece);
  cut.match.reset();
  cut.ahead.reset();
  return true;
}

// Segments, joined as the behaviour says.
bool WordReader::next_segment(size_t stage, Segment* segment) {
  const SplitBehavior behavior = pre_tokenizer_.stages_[stage].what.behavior;
  if (behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved)
    return next_raw_segment(stage, segment);
  Cut& cut = cuts_[stage];
  if (cut.ahead) {
    *segment = *std::exchange(cut.ahead, std::nullopt);
  } else if (!next_raw_segment(stage, segment)) {
    return false;
  }
  Segment following;
  bool last_is_match = segment->is_match;
  while (next_raw_segment(stage, &following)) {
    if (!are_joined(behavior, last_is_match, following.is_match)) {
      cut.ahead = following;
      break;
    }
    segment->end = following.end;
    last_is_match = following.is_match;
  }
  return status_.has_value();
}

// The next match of the piece, or what lies before it.
bool WordReader::next_raw_segment(size_t stage, Segment* segment) {
  Cut& cut = cuts_[stage];
  if (!cut.match && !find_match(stage)) {
    if (!status_ || cut.at == cut.piece.size()) return false;
    *segment = {cut.at, cut.piece.size(), false};
  } else if (cut.at < cut.match->begin) {
    *segment = {cut.at, cut.match->begin, false};
  } else {
    *segment = *std::exchange(cut.match, std::nullopt);
  }
  cut.at = segment->end;
  segment->is_match ^= pre_tokenizer_.stages_[stage].what.invert;
  return true;
}

bool WordReader::find_match(size_t stage) {
  Cut& cut = cuts_[stage];
  Segment match = {0, 0, true};
  if (cut.matches->next(&match.begin, &match.end)) {
    cut.match = match;
    return true;
  }
  if (!cut.matches->error().empty()) {
    status_ = fail(StatusCode::kLimit, "pre-tokenizer '{}' gives up on a text of {} bytes: {}",
                   pre_tokenizer_.name_, cut.piece.size(), cut.matches->error());
  }
  return false;
}

}  // namespace butter
