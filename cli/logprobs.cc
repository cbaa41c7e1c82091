#include "cli/logprobs.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/printable.h"

namespace butter::cli {
namespace {

nlohmann::ordered_json entry(const TokenLogprob& token, const Tokenizer* tokenizer) {
  nlohmann::ordered_json json = {{"id", token.id}, {"token", nullptr}, {"logprob", token.logprob}};
  if (tokenizer != nullptr) json["token"] = std::string(tokenizer->piece(token.id));
  return json;
}

std::string spoken(const TokenLogprob& token, const Tokenizer* tokenizer) {
  const std::string name = tokenizer == nullptr
                               ? fmt::format("{}", token.id)
                               : fmt::format("\"{}\"", printable(tokenizer->piece(token.id)));
  return fmt::format("{:.4f} {}", token.logprob, name);
}

}  // namespace

nlohmann::ordered_json logprobs_json(const GenerateResult& result, const Tokenizer* tokenizer) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const TokenLogprobs& token : result.logprobs) {
    nlohmann::ordered_json json = entry(token.chosen, tokenizer);
    json["top"] = nlohmann::ordered_json::array();
    for (const TokenLogprob& other : token.top) json["top"].push_back(entry(other, tokenizer));
    list.push_back(std::move(json));
  }
  return list;
}

std::string logprobs_lines(const GenerateResult& result, const Tokenizer* tokenizer) {
  std::string lines;
  for (const TokenLogprobs& token : result.logprobs) {
    lines += spoken(token.chosen, tokenizer);
    const char* before = "   | ";
    for (const TokenLogprob& other : token.top) {
      lines += before;
      lines += spoken(other, tokenizer);
      before = ", ";
    }
    lines += '\n';
  }
  return lines;
}

}  // namespace butter::cli
