// Answers.
#include <utility>

#include "capi/handles.h"
#include "capi/options.h"

using namespace butter;
using namespace butter::capi;

namespace {

constexpr size_t kAnswerInfoBytes = sizeof(butter_answer_info);

butter_finish finish_of(const std::string& reason) {
  if (reason == "stop") return BUTTER_FINISH_STOP;
  if (reason == "stop_string") return BUTTER_FINISH_STOP_STRING;
  return reason == "length" ? BUTTER_FINISH_LENGTH : BUTTER_FINISH_CANCELLED;
}

}  // namespace

namespace butter::capi {

std::unique_ptr<butter_answer> make_answer(GenerateResult result) {
  auto answer = std::make_unique<butter_answer>();
  answer->finish = finish_of(result.finish_reason);
  for (const TokenLogprobs& token : result.logprobs) {
    for (const TokenLogprob& each : token.top) answer->top.push_back({each.id, each.logprob});
    answer->top_ends.push_back(answer->top.size());
  }
  answer->result = std::move(result);
  return answer;
}

}  // namespace butter::capi

void butter_answer_free(butter_answer* answer) {
  delete answer;
}

const char* butter_answer_text(const butter_answer* answer, size_t* bytes) {
  if (bytes != nullptr) *bytes = 0;
  const char* text = nullptr;
  guarded("butter_answer_text", [&]() -> Status {
    BUTTER_TRY(require(answer, "answer"));
    if (bytes != nullptr) *bytes = answer->result.text.size();
    text = answer->result.text.c_str();
    return {};
  });
  return text;
}

const int32_t* butter_answer_ids(const butter_answer* answer, size_t* count) {
  if (count != nullptr) *count = 0;
  const int32_t* ids = nullptr;
  guarded("butter_answer_ids", [&]() -> Status {
    BUTTER_TRY(require(answer, "answer"));
    BUTTER_TRY(require(count, "count"));
    *count = answer->result.token_ids.size();
    ids = answer->result.token_ids.data();
    return {};
  });
  return ids;
}

butter_status butter_answer_get_info(const butter_answer* answer, butter_answer_info* info) {
  return guarded("butter_answer_get_info", [&]() -> Status {
    BUTTER_TRY(require(answer, "answer"));
    const GenerateResult& from = answer->result;
    const butter_answer_info filled = {sizeof(butter_answer_info), answer->finish,       from.prompt_tokens,
                                       from.reused_tokens,         from.prefill_seconds, from.decode_seconds,
                                       from.time_to_first_token,   from.kv_bytes,        from.kv_raw_bytes};
    return give_part(info, kAnswerInfoBytes, filled, "info");
  });
}

butter_status butter_answer_logprobs(const butter_answer* answer, size_t index, butter_token_logprob* chosen,
                                     const butter_token_logprob** top, size_t* count) {
  return guarded("butter_answer_logprobs", [&]() -> Status {
    if (top != nullptr) *top = nullptr;
    if (count != nullptr) *count = 0;
    BUTTER_TRY(require(answer, "answer"));
    BUTTER_TRY(require(chosen, "chosen"));
    const std::vector<TokenLogprobs>& tokens = answer->result.logprobs;
    if (index >= tokens.size()) {
      return fail(StatusCode::kInvalidArgument,
                  "token {} was asked for; the answer has log-probabilities of {}", index, tokens.size());
    }
    *chosen = {tokens[index].chosen.id, tokens[index].chosen.logprob};
    const size_t begin = index == 0 ? 0 : answer->top_ends[index - 1];
    if (top != nullptr) *top = answer->top.data() + begin;
    if (count != nullptr) *count = answer->top_ends[index] - begin;
    return {};
  });
}
