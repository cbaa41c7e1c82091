// SentencePieceFile: what a SentencePiece model says (tokenizer.model, spiece.model: a ModelProto of
// protobuf).
#pragma once

#include <string_view>
#include <vector>

#include "butter/tokenizer.h"
#include "core/status.h"
#include "text/sentencepiece_normalizer.h"

namespace butter {

// Views look into the bytes of the file. What it leaves out has SentencePiece's own value.
struct SentencePieceFile {
  enum class Model { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

  std::vector<std::string_view> pieces;  // by id
  std::vector<float> scores;             // by id
  std::vector<TokenType> types;          // by id
  Model model = Model::kUnigram;
  bool byte_fallback = false;
  SentencePieceRules rules;
  bool has_denormalizer = false;  // a map that is applied to decoded text
  std::string_view unk_surface = " \u2047 ";
  std::string_view bos_piece = "<s>";
  std::string_view eos_piece = "</s>";
  std::string_view pad_piece = "<pad>";
};

// kCorrupt where the bytes are no ModelProto.
Result<SentencePieceFile> read_sentencepiece_file(std::string_view bytes);

}  // namespace butter
