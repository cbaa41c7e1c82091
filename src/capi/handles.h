// What the opaque handles of butter/c.h are. A sequence or session shares its engine, so that handles may be
// freed in any order.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "butter/c.h"
#include "butter/session.h"

struct butter_engine {
  std::shared_ptr<butter::Engine> engine;
  bool has_chat_template = false;
};

struct butter_sequence {
  std::shared_ptr<butter::Engine> engine;  // outlives the sequence
  butter::Sequence sequence;
  std::vector<float> logits;  // of the last feed that asked for them
};

struct butter_sampler {
  butter::Sampler sampler;
};

struct butter_session {
  std::shared_ptr<butter::Engine> engine;  // outlives the session
  butter::Session session;
};

struct butter_answer {
  butter::GenerateResult result;
  butter_finish finish = BUTTER_FINISH_STOP;
  // The lists of likeliest tokens as C has them, one after the other; `top_ends` by token.
  std::vector<butter_token_logprob> top;
  std::vector<size_t> top_ends;
};

namespace butter::capi {

std::unique_ptr<butter_answer> make_answer(GenerateResult result);

}  // namespace butter::capi
