// QualityCard: what `butter eval` measured on a model, kept beside it as JSON, so that inspect and plan can
// say what a scheme costs.
//
// The card of a file or folder is `<path>.quality.json`; where that folder cannot be written, it is
// `quality/<hash of the model>.json` in the user's cache directory. A card is whole or absent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "butter/eval.h"
#include "butter/export.h"
#include "butter/status.h"

namespace butter {

struct BUTTER_API QualityCard {
  std::string model;       // name of the file or folder
  std::string model_hash;  // model_fingerprint()
  std::string text;        // "alice29.txt, asyoulik.txt"
  std::string text_hash;   // text_fingerprint()
  std::string version;     // of Butter
  std::string command;
  std::vector<SchemeQuality> rows;

  // The row of a scheme; null if there is none.
  const SchemeQuality* find(const std::string& kv_cache) const;
};

// "xxh3-ends:<16 digits>": XXH3 of the name, size, first and last MiB of each weight file: as quick for 20 GB
// as for 20 MB, and another quantisation of the same model has another one.
BUTTER_API Result<std::string> model_fingerprint(const std::string& model);
// "xxh3:<16 digits>" over all bytes of the texts, in order.
BUTTER_API std::string text_fingerprint(std::span<const NamedText> texts);

// Where a card of this model would be written. kIo where no place can be.
BUTTER_API Result<std::string> quality_card_path(const std::string& model);
// Returns the path. The card's own model and model_hash are not read: they are the file's.
BUTTER_API Result<std::string> write_quality_card(const std::string& model, QualityCard card);
// Nothing where there is no card, or it is of another file that stood there before. kCorrupt where it does
// not read.
BUTTER_API Result<std::optional<QualityCard>> read_quality_card(const std::string& model);

}  // namespace butter
