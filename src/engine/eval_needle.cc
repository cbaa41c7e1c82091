// probe_needles: how much of what was said in a long prompt can still be asked for.
//
// A haystack's prompts differ only from its question on. What they have in common is read once for each
// scheme; every question goes to a fork of that.
#include <algorithm>

#include "butter/session.h"
#include "core/status.h"
#include "engine/eval_haystack.h"
#include "engine/eval_metrics.h"
#include "engine/eval_sequences.h"

namespace butter {
namespace {

constexpr int64_t kTokensPerNeedle = 200;  // of context, at least: facts do not stand side by side
constexpr int kMostPerHaystack = 5;
constexpr int64_t kAnswerTokens = 16;
constexpr int64_t kLeastContext = 256;
constexpr size_t kDepths = 5;

struct Prompt {
  Needle needle;
  std::vector<int32_t> ids;
};

// Prompts with a common past.
struct Haystack {
  std::vector<Prompt> prompts;
  size_t shared = 0;  // tokens that all prompts begin with

  int64_t longest() const {
    size_t most = 0;
    for (const Prompt& prompt : prompts) most = std::max(most, prompt.ids.size());
    return static_cast<int64_t>(most);
  }
};

size_t shared_tokens(const std::vector<Prompt>& prompts) {
  size_t shared = prompts.front().ids.size() - 1;  // a question feeds one token at least
  for (const Prompt& prompt : prompts) {
    const auto& first = prompts.front().ids;
    const auto most = static_cast<std::ptrdiff_t>(std::min(shared, prompt.ids.size() - 1));
    const auto differs = std::mismatch(first.begin(), first.begin() + most, prompt.ids.begin()).first;
    shared = static_cast<size_t>(differs - first.begin());
  }
  return shared;
}

class NeedleProbe {
 public:
  NeedleProbe(Engine& engine, const NeedleOptions& needles, const EvalOptions& options, Session session)
      : engine_(engine),
        tokenizer_(*engine.tokenizer()),
        needles_(needles),
        options_(options),
        session_(std::move(session)) {
    NeedleScore score;
    score.context_tokens = needles.context_tokens;
    score.depths.resize(kDepths);
    report_.scores.assign(options.kv_caches.size(), score);
    total_ = needles.needles * static_cast<int64_t>(options.kv_caches.size());
  }

  Result<NeedleReport> run(std::span<const NamedText> filler) {
    BUTTER_TRY(encode_filler(filler));
    const int64_t fit = std::max<int64_t>(1, needles_.context_tokens / kTokensPerNeedle);
    const int64_t each = std::min<int64_t>({fit, kMostPerHaystack, needles_.needles});
    const int64_t count = (needles_.needles + each - 1) / each;
    for (int64_t h = 0; h < count && report_.complete; ++h) {
      const int64_t asked = std::min(each, needles_.needles - h * each);
      const uint64_t seed = needles_.seed * 1000003 + static_cast<uint64_t>(h);
      const double within = (static_cast<double>(h) + 0.5) / static_cast<double>(count);
      BUTTER_ASSIGN(const Haystack haystack,
                    fit_haystack(h, make_needles(seed, static_cast<int>(asked), within)));
      BUTTER_ASSIGN(report_.complete, ask_all(haystack));
    }
    return report_;
  }

 private:
  Status encode_filler(std::span<const NamedText> filler) {
    for (const NamedText& text : filler) {
      BUTTER_ASSIGN(std::vector<int32_t> ids,
                    tokenizer_.encode(text.text, {.add_bos = false, .add_eos = false}));
      if (static_cast<int64_t>(ids.size()) < needles_.context_tokens) {
        return fail(StatusCode::kInvalidArgument,
                    "{} has {} tokens; the {} of --needle-context are expected in a text to hide facts in",
                    text.name, ids.size(), needles_.context_tokens);
      }
      filler_.push_back(std::move(ids));
    }
    if (filler_.empty())
      return fail(StatusCode::kInvalidArgument, "there is no text; at least one is expected");
    return {};
  }

  // As much filler as the context takes.
  Result<Haystack> fit_haystack(int64_t number, const std::vector<Needle>& needles) const {
    const std::vector<int32_t>& source = filler_[static_cast<size_t>(number) % filler_.size()];
    int64_t tokens = needles_.context_tokens * 3 / 4;
    Haystack haystack;
    for (int attempt = 0; attempt < 6; ++attempt) {
      // Another place of the text each time, whatever its length.
      const auto room = source.size() - static_cast<size_t>(tokens) + 1;
      const size_t from = static_cast<size_t>(number) * 7919 % room;
      const auto filler = std::span(source).subspan(from, static_cast<size_t>(tokens));
      BUTTER_ASSIGN(haystack, make_prompts(make_haystack(tokenizer_, filler, needles), needles));
      const int64_t spare = needles_.context_tokens - kAnswerTokens - haystack.longest();
      if (spare >= 0 && spare < 16) return haystack;
      // Less than what is spare: its tokens may not be those of the text that it becomes part of.
      tokens = std::clamp<int64_t>(tokens + (spare > 0 ? spare - 4 : spare - 8), 1, needles_.context_tokens);
    }
    if (haystack.longest() + kAnswerTokens <= needles_.context_tokens) return haystack;
    return fail(
        StatusCode::kInvalidArgument,
        "--needle-context is {}; {} facts and a question take {} tokens of this model without any text",
        needles_.context_tokens, needles.size(), haystack.longest());
  }

  Result<Haystack> make_prompts(const std::string& text, const std::vector<Needle>& needles) const {
    Haystack haystack;
    for (const Needle& needle : needles) {
      BUTTER_ASSIGN(std::vector<int32_t> ids, prompt_tokens(text, needle));
      haystack.prompts.push_back({needle, std::move(ids)});
    }
    haystack.shared = shared_tokens(haystack.prompts);
    return haystack;
  }

  // The answer's beginning is given, so that a right answer is a value and not a turn of phrase.
  Result<std::vector<int32_t>> prompt_tokens(const std::string& text, const Needle& needle) const {
    const std::string asked =
        "Remember the access codes in this text.\n\n" + text + "\n\n" + needle.question();
    if (!session_.has_chat_template()) return tokenizer_.encode(asked + "\n" + needle.answer_start());
    BUTTER_ASSIGN(std::vector<int32_t> ids, session_.chat_tokens({{"user", asked}}));
    BUTTER_ASSIGN(const std::vector<int32_t> start,
                  tokenizer_.encode(needle.answer_start(), {.add_bos = false, .add_eos = false}));
    ids.insert(ids.end(), start.begin(), start.end());
    return ids;
  }

  // False: cancelled. All schemes answer the same questions; a haystack that is cancelled counts for none.
  Result<bool> ask_all(const Haystack& haystack) {
    std::vector<NeedleScore> scores = report_.scores;
    for (size_t s = 0; s < scores.size(); ++s) {
      if (is_cancelled(options_.control)) return false;
      BUTTER_ASSIGN(Sequence past, make_scheme_sequence(engine_, options_, s));
      if (haystack.shared > 0) {
        BUTTER_TRY(engine_.forward(past, std::span(haystack.prompts.front().ids).first(haystack.shared)));
      }
      for (const Prompt& prompt : haystack.prompts) {
        if (is_cancelled(options_.control)) return false;
        BUTTER_ASSIGN(const bool right, answers(past, prompt, haystack.shared));
        const auto depth = std::min(kDepths - 1, static_cast<size_t>(prompt.needle.depth * kDepths));
        for (auto* count : {&scores[s].asked, &scores[s].depths[depth].asked}) *count += 1;
        for (auto* count : {&scores[s].right, &scores[s].depths[depth].right}) *count += right ? 1 : 0;
        if (options_.control.progress) options_.control.progress(++done_, total_);
      }
    }
    report_.scores = std::move(scores);
    return true;
  }

  Result<bool> answers(const Sequence& past, const Prompt& prompt, size_t shared) const {
    BUTTER_ASSIGN(Sequence sequence, past.fork());
    Sampler sampler({});
    std::vector<int32_t> feed(prompt.ids.begin() + static_cast<std::ptrdiff_t>(shared), prompt.ids.end());
    std::vector<int32_t> answer;
    while (static_cast<int64_t>(answer.size()) < kAnswerTokens) {
      BUTTER_ASSIGN(const int32_t next, engine_.forward_sample(sequence, feed, sampler));
      if (tokenizer_.is_end(next)) break;
      answer.push_back(next);
      feed.assign(1, next);
      // One more token than the value: a digit that followed would make it another number.
      const std::string said = tokenizer_.decode(std::span(answer).first(answer.size() - 1));
      if (says_value(said, prompt.needle.value)) break;
    }
    return says_value(tokenizer_.decode(answer), prompt.needle.value);
  }

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const NeedleOptions& needles_;
  const EvalOptions& options_;
  Session session_;  // for its chat template
  std::vector<std::vector<int32_t>> filler_;
  NeedleReport report_;
  int64_t done_ = 0, total_ = 0;
};

Status check_options(const Engine& engine, const NeedleOptions& needles) {
  if (engine.tokenizer() == nullptr) {
    return fail(StatusCode::kInvalidArgument, "{} has no tokenizer, which facts and questions need",
                engine.info().name);
  }
  if (needles.needles < 1 || needles.context_tokens < kLeastContext) {
    return fail(StatusCode::kInvalidArgument,
                "{} needles in a context of {} tokens were asked for; at least 1 in {} is expected",
                needles.needles, needles.context_tokens, kLeastContext);
  }
  return {};
}

}  // namespace

double NeedleScore::share() const {
  return asked > 0 ? static_cast<double>(right) / static_cast<double>(asked) : 0;
}
double NeedleScore::low() const {
  return wilson_interval(right, asked).low;
}
double NeedleScore::high() const {
  return wilson_interval(right, asked).high;
}

Result<NeedleReport> probe_needles(Engine& engine, std::span<const NamedText> filler,
                                   const NeedleOptions& needles, const EvalOptions& options) {
  BUTTER_TRY(check_options(engine, needles));
  SequenceOptions raw = options.sequence;
  raw.kv_cache = "raw";
  BUTTER_ASSIGN(Session session, Session::create(engine, raw));
  return NeedleProbe(engine, needles, options, std::move(session)).run(filler);
}

}  // namespace butter
