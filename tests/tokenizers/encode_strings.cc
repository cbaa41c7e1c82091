// Encodes strings with a tokenizer, for compare.py: `encode_strings KIND PATH`, where KIND names what the
// file is, or is `checkpoint`.
//
// stdin:  [text, ...], a JSON array
// stdout: {"vocabulary": tokens, "plain": [[id, ...], ...], "special": likewise, with special tokens parsed,
//          "decoded": [text of the plain ids, bad UTF-8 replaced, ...]}; no BOS, no EOS
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/tokenizer_source.h"
#include "support/test_data.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace butter {
namespace {

using nlohmann::json;

Result<std::unique_ptr<const Tokenizer>> read(const std::string& kind, const std::string& path) {
  if (kind == "checkpoint") {
    BUTTER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path));
    return load_tokenizer(checkpoint);
  }
  const std::string bytes = read_test_file(path);
  const auto made = [&]() -> Result<VocabularyTokenizer> {
    if (kind == "tokenizer.json") return VocabularyTokenizer::from_tokenizer_json(bytes);
    if (kind == "tekken") return VocabularyTokenizer::from_tekken(bytes);
    if (kind == "model") return VocabularyTokenizer::from_model_file(bytes);
    return fail(StatusCode::kInvalidArgument, "{} is no kind of file", kind);
  };
  BUTTER_ASSIGN(VocabularyTokenizer tokenizer, made());
  return std::make_unique<const VocabularyTokenizer>(std::move(tokenizer));
}

int run(const std::string& kind, const std::string& path) {
  const auto tokenizer = read(kind, path);
  if (!tokenizer || *tokenizer == nullptr) {
    std::cerr << (tokenizer ? "there is no tokenizer" : tokenizer.error().message()) << '\n';
    return 1;
  }
  const json texts = json::parse(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  json out = {{"vocabulary", (*tokenizer)->vocab_size()}};
  for (const json& one : texts) {
    const auto& text = one.get_ref<const std::string&>();
    EncodeOptions options = {.add_bos = false, .add_eos = false};
    const auto plain = (*tokenizer)->encode(text, options);
    options.parse_special = true;
    const auto special = (*tokenizer)->encode(text, options);
    if (!plain || !special) {
      std::cerr << (plain ? special : plain).error().message() << '\n';
      return 1;
    }
    std::string decoded;
    append_replacing_malformed((*tokenizer)->decode(*plain), &decoded);
    out["plain"].push_back(*plain);
    out["special"].push_back(*special);
    out["decoded"].push_back(decoded);
  }
  std::cout << out.dump() << '\n';
  return 0;
}

}  // namespace
}  // namespace butter

int main(int argc, char** argv) {
  if (argc == 3) return butter::run(argv[1], argv[2]);
  std::cerr << "usage: encode_strings KIND PATH\n";
  return 2;
}
