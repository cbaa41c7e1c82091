// PreTokenizer: cuts text into the words inside which a model's merges stay.
//
// What one does is data: a list of stages, either a row of the table in pre_tokenizers.cc, by name, or what a
// tokenizer.json says. Each stage takes the pieces that the one before left, each as if it were a text of its
// own (so a lookahead sees the end at a piece's end), and cuts them further or changes their spaces.
//
// Threads: const and free of shared scratch; each text is cut by a WordReader of its own.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "text/regex_matcher.h"

namespace butter {

// What becomes of the matches of a pattern, and of what lies between them. The names are tokenizer.json's.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Which pieces a stage puts its mark in front of, unless they begin with one.
enum class MarkScheme { kNever, kFirst, kAlways };

struct PreTokenizerStage {
  enum class Kind {
    kPattern,  // cut at the matches of an expression in the language of tokenizer.json
    kPcre2,    // the same, of an expression of ours
    kText,     // cut at each place where this very text stands
    kMark,     // spaces become the mark, and a piece may be given one
  };
  Kind kind = Kind::kPattern;
  std::string text;  // the pattern or the mark
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what the pattern does not match counts as matched
  MarkScheme scheme = MarkScheme::kNever;

  friend bool operator==(const PreTokenizerStage&, const PreTokenizerStage&) = default;
};

// One row of the table.
struct PreTokenizerRow {
  std::vector<std::string_view> names;  // the first is the one shown; GGUF's and ours
  std::vector<PreTokenizerStage> stages;
  bool ignore_merges = false;  // the models of that name take a word that is a token as that token
  bool nfc = false;            // their tokenizer.json composes characters first (GGUF does not say so)
  bool adds_bos = false;       // BOS comes first where a GGUF file does not say
};

std::span<const PreTokenizerRow> pre_tokenizer_rows();

// The stages that parts of a tokenizer.json stand for (pre_tokenizers.cc).
PreTokenizerStage byte_level_stage();             // ByteLevel with use_regex
PreTokenizerStage digits_stage(bool one_by_one);  // Digits
PreTokenizerStage white_space_stage();            // WhitespaceSplit
PreTokenizerStage word_stage();                   // Whitespace
PreTokenizerStage punctuation_stage(SplitBehavior behavior);

class PreTokenizer {
 public:
  static constexpr size_t kMaxStages = 32;

  // Of the table. The error of an unknown name lists those that exist.
  static Result<PreTokenizer> create(std::string_view name);
  // Of any stages; `name` is for messages.
  static Result<PreTokenizer> create(std::string_view name, std::span<const PreTokenizerStage> stages);

  // The row of that name, or null.
  static const PreTokenizerRow* find_row(std::string_view name);
  // "gpt2, smollm", for messages.
  static std::string names();
  // The row that has exactly these stages.
  static std::optional<std::string_view> name_of(std::span<const PreTokenizerStage> stages);

  const std::string& name() const { return name_; }

 private:
  friend class WordReader;
  struct Stage {
    PreTokenizerStage what;
    std::optional<Regex> regex;  // none for a mark
  };
  static Result<Stage> make_stage(const PreTokenizerStage& what);

  std::string name_;
  std::vector<Stage> stages_;
};

// Reads the words of texts, one after the other; together they are the text, but for what stages remove or
// mark. Holds the scratch that matching needs: make one per call or thread, and start() it anew for each
// text. The PreTokenizer and the text must outlive it; words are good for as long as the reader lives.
class WordReader {
 public:
  explicit WordReader(const PreTokenizer& pre_tokenizer);
  ~WordReader();
  WordReader(const WordReader&) = delete;
  WordReader& operator=(const WordReader&) = delete;

  // Where a text stands, for the stages that mark its beginning.
  enum class Place {
    kFirst,      // at the beginning of what was asked for
    kLater,      // after a special token
    kContinues,  // in the middle, after bytes that are no UTF-8: its first piece is given no mark
  };
  // `text` must be well-formed UTF-8.
  void start(std::string_view text, Place place = Place::kFirst);
  // False at the end, and where matching gave up: status() tells which.
  bool next(std::string_view* word);
  // kLimit where PCRE2 ran into a limit.
  const Status& status() const { return status_; }

 private:
  // A match, or what lies before one.
  struct Segment {
    size_t begin;
    size_t end;
    bool is_match;
  };
  // The piece that a stage is cutting, and how far it is.
  struct Cut {
    std::string_view piece;
    bool is_done = true;      // the piece is used up
    bool seen_piece = false;  // of this text
    size_t at = 0;            // what comes before is in segments already
    std::optional<MatchFinder> matches;
    std::optional<Segment> match;  // found, and not yet a segment
    std::optional<Segment> ahead;  // looked at, and not yet taken
  };

  bool next_of_stage(size_t stage, std::string_view* piece);
  bool next_marked(size_t stage, std::string_view* piece);
  bool next_cut(size_t stage, std::string_view* piece);
  bool begin_piece(size_t stage);
  bool next_segment(size_t stage, Segment* segment);
  bool next_raw_segment(size_t stage, Segment* segment);
  bool find_match(size_t stage);

  const PreTokenizer& pre_tokenizer_;
  std::vector<Cut> cuts_;
  std::deque<std::string> marked_;  // pieces that are no part of a text that was given
  std::string_view text_;
  Place place_ = Place::kFirst;
  bool text_pending_ = false;
  Status status_;
};

}  // namespace butter
