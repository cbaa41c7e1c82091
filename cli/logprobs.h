// Log-probabilities of an answer's tokens, as --logprobs shows them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "butter/session.h"

namespace butter::cli {

// [{id, token, logprob, top: [{id, token, logprob}]}]; token is null without a tokenizer.
nlohmann::ordered_json logprobs_json(const GenerateResult& result, const Tokenizer* tokenizer);

// A line for each token: its log-probability, and the likeliest in its place with theirs.
std::string logprobs_lines(const GenerateResult& result, const Tokenizer* tokenizer);

}  // namespace butter::cli
