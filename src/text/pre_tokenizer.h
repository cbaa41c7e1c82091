// PreTokenizer: cuts text into the words inside which byte-pair merges stay.
//
// What one does is data: a row of the table in pre_tokenizers.cc, which is a name and a list of stages. A
// stage is a pattern; its matches, and what lies between them, are the pieces that the next stage cuts
// further, each as if it were a text of its own (so a lookahead sees the end at a piece's end).
//
// Patterns run on PCRE2 (compiled once, with its JIT where the machine has it). Character classes are
// those of Unicode 16 whatever version the PCRE2 library knows, as in PyPI `tokenizers`; white space is
// the property White_Space.
//
// Threads: const and free of shared scratch; each text is cut by a WordReader of its own.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace butter {

// One row of the table.
struct PreTokenizerRow {
  std::span<const std::string_view> names;   // the first is the one shown; GGUF's and ours
  std::span<const std::string_view> stages;  // patterns, spelled as tokenizer.json spells them
};

std::span<const PreTokenizerRow> pre_tokenizer_rows();

// The patterns that parts of a tokenizer.json stand for (pre_tokenizers.cc).
extern const std::string_view kByteLevelPattern;  // ByteLevel with use_regex
extern const std::string_view kDigitsPattern;     // Digits with individual_digits

class PreTokenizer {
 public:
  // Of the table. The error of an unknown name lists those that exist.
  static Result<PreTokenizer> create(std::string_view name);
  // Of any patterns; `name` is for messages.
  static Result<PreTokenizer> create(std::string_view name, std::span<const std::string_view> stages);

  // "gpt2, smollm", for messages.
  static std::string names();
  // The row that has exactly these stages.
  static std::optional<std::string_view> name_of(std::span<const std::string_view> stages);

  const std::string& name() const { return name_; }
  size_t stages() const { return stages_.size(); }

 private:
  friend class WordReader;
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  struct Stage {
    std::unique_ptr<pcre2_real_code_8, FreeCode> code;
    bool has_jit;
  };

  std::string name_;
  std::vector<Stage> stages_;
};

// Reads the words of texts, one after the other; together they are the text. Holds the scratch that
// matching needs: make one per call or thread, and start() it anew for each text. The PreTokenizer and the
// text must outlive it.
class WordReader {
 public:
  explicit WordReader(const PreTokenizer& pre_tokenizer);
  ~WordReader();
  WordReader(const WordReader&) = delete;
  WordReader& operator=(const WordReader&) = delete;

  // `text` must be well-formed UTF-8.
  void start(std::string_view text);
  // False at the end, and where matching gave up: status() tells which.
  bool next(std::string_view* word);
  // kLimit where PCRE2 ran into a limit of its own.
  const Status& status() const { return status_; }

 private:
  struct FreeMatch {
    void operator()(pcre2_real_match_data_8* match) const;
  };
  // The piece that a stage is cutting, and how far it is.
  struct Cut {
    std::string_view piece;
    size_t at = 0;
    size_t match_end = 0;  // beyond `at` where a match begins there, and is already known
    std::unique_ptr<pcre2_real_match_data_8, FreeMatch> match;
  };

  bool next_of_stage(size_t stage, std::string_view* piece);
  // The first match in [at, end), or an empty one at the end.
  std::pair<size_t, size_t> find_match(size_t stage);

  const PreTokenizer& pre_tokenizer_;
  std::vector<Cut> cuts_;
  std::string_view text_;
  bool text_pending_ = false;
  Status status_;
};

}  // namespace butter
