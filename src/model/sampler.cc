#include "butter/sampler.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/status.h"

namespace butter {
namespace {

// OpenAI's bounds.
constexpr float kMostPenalty = 2;
constexpr float kMostBias = 100;
constexpr int kMostLogprobs = 1000;

Status check_penalty(const char* option, float penalty) {
  if (std::fabs(penalty) <= kMostPenalty) return {};
  return fail(StatusCode::kInvalidArgument, "{} is {}; a number from {} to {} is expected", option, penalty,
              -kMostPenalty, kMostPenalty);
}

Status check_bias(const LogitBias& bias) {
  if (bias.id < 0) {
    return fail(StatusCode::kInvalidArgument,
                "--logit-bias names the token {}; an id of 0 or more is expected", bias.id);
  }
  if (std::fabs(bias.bias) <= kMostBias || bias.bias == -INFINITY) return {};
  return fail(StatusCode::kInvalidArgument,
              "--logit-bias of token {} is {}; a number from {} to {}, or -inf, is expected", bias.id,
              bias.bias, -kMostBias, kMostBias);
}

}  // namespace

Status Sampler::check(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    return fail(StatusCode::kInvalidArgument,
                "--temperature is {}; a finite number that is 0 or more is expected", options.temperature);
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return fail(StatusCode::kInvalidArgument, "--top-p is {}; a number above 0 and up to 1 is expected",
                options.top_p);
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return fail(StatusCode::kInvalidArgument, "--min-p is {}; a number from 0 to 1 is expected",
                options.min_p);
  }
  if (options.top_k < 0) {
    return fail(StatusCode::kInvalidArgument, "--top-k is {}; 0 (no limit) or more is expected",
                options.top_k);
  }
  if (!(options.repetition_penalty > 0) || std::isinf(options.repetition_penalty)) {
    return fail(StatusCode::kInvalidArgument,
                "--repetition-penalty is {}; a finite number above 0 is expected",
                options.repetition_penalty);
  }
  BUTTER_TRY(check_penalty("--presence-penalty", options.presence_penalty));
  BUTTER_TRY(check_penalty("--frequency-penalty", options.frequency_penalty));
  for (const LogitBias& each : options.logit_bias) BUTTER_TRY(check_bias(each));
  if (options.logprobs < -1 || options.logprobs > kMostLogprobs) {
    return fail(StatusCode::kInvalidArgument, "--logprobs is {}; 0 to {} are expected", options.logprobs,
                kMostLogprobs);
  }
  return {};
}

namespace {

// The largest logit's id, of finite ones: nothing where it is not finite or a logit is not a number. A step's
// other threads wait while this is looked for, so lanes are kept apart for the compiler to vectorise.
std::optional<int32_t> most_likely(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  float best[kLanes];
  int odd[kLanes] = {};  // not numbers
  std::fill(best, best + kLanes, -INFINITY);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = logits[i + lane];
      best[lane] = logit > best[lane] ? logit : best[lane];
      odd[lane] |= static_cast<int>(logit != logit);
    }
  }
  bool numbers = std::count(odd, odd + kLanes, 0) == std::ptrdiff_t{kLanes};
  float top = *std::max_element(best, best + kLanes);
  for (; i < logits.size(); ++i) {
    numbers = numbers && !std::isnan(logits[i]);
    top = std::max(top, logits[i]);
  }
  if (!numbers || std::isinf(top)) return std::nullopt;
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), top) - logits.begin());
}

}  // namespace

// Ids that may not be chosen, of candidates in the order of their ids.
template <typename Candidates>
void exclude(Candidates& candidates, std::span<const int32_t> absent) {
  for (int32_t id : absent) {
    if (static_cast<size_t>(id) < candidates.size()) candidates[static_cast<size_t>(id)].logit = -INFINITY;
  }
}

// Equal logits go to the lowest id.
bool Sampler::more_likely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

Sampler::Sampler(const SamplingOptions& options) : options_(options), state_(options.seed) {}

// splitmix64 (Steele, Lea, Flood 2014), 53 bits of it.
double Sampler::uniform() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

void Sampler::observe(std::span<const int32_t> tokens) {
  if (options_.repetition_penalty == 1) return;
  for (int32_t id : tokens) {
    if (id < 0) continue;
    if (static_cast<size_t>(id) >= is_seen_.size()) is_seen_.resize(static_cast<size_t>(id) + 1);
    if (is_seen_[static_cast<size_t>(id)]) continue;
    is_seen_[static_cast<size_t>(id)] = true;
    seen_.push_back(id);
  }
}

Result<int32_t> Sampler::sample(std::span<const float> logits, std::span<const int32_t> absent) {
  BUTTER_ASSIGN(const int32_t id, choose(logits, absent));
  if (options_.logprobs >= 0) record_logprobs(logits, absent, id);
  count(id);
  return id;
}

bool Sampler::changes_logits() const {
  return !options_.logit_bias.empty() || !seen_.empty() || !generated_.empty();
}

Result<int32_t> Sampler::choose(std::span<const float> logits, std::span<const int32_t> absent) {
  if (options_.temperature == 0 && !changes_logits()) {
    const auto best = most_likely(logits);
    if (best && !std::binary_search(absent.begin(), absent.end(), *best)) return *best;
  }
  candidates_.clear();
  candidates_.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return fail(StatusCode::kNumeric, "the logit of token {} is not a number", i);
    candidates_.push_back({static_cast<int32_t>(i), logits[i], 0});
  }
  if (candidates_.empty()) return fail(StatusCode::kNumeric, "there are no logits to choose from");
  change_logits();
  exclude(candidates_, absent);
  const auto best = std::min_element(candidates_.begin(), candidates_.end(), more_likely);
  if (std::isinf(best->logit)) {
    if (best->logit < 0 && !options_.logit_bias.empty())
      return fail(StatusCode::kNumeric, "--logit-bias leaves no token to choose; at least one is expected");
    return fail(StatusCode::kNumeric, "the largest logit is {}; a finite number is expected", best->logit);
  }
  if (options_.temperature == 0) return best->id;
  return draw(best->logit);
}

// Bias and penalties, on all candidates in the order of their ids. Ids without a logit do no harm.
void Sampler::change_logits() {
  const auto has_logit = [&](int32_t id) { return static_cast<size_t>(id) < candidates_.size(); };
  const auto logit_of = [&](int32_t id) -> float& { return candidates_[static_cast<size_t>(id)].logit; };
  for (const LogitBias& each : options_.logit_bias) {
    if (has_logit(each.id)) logit_of(each.id) += each.bias;
  }
  // A token that has been seen: positive logits are divided, negative ones multiplied (Keskar et al. 2019).
  for (int32_t id : seen_) {
    if (!has_logit(id)) continue;
    float& logit = logit_of(id);
    logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
  }
  for (int32_t id : generated_) {
    if (!has_logit(id)) continue;
    const auto times = static_cast<float>(counts_[static_cast<size_t>(id)]);
    logit_of(id) -= times * options_.frequency_penalty + options_.presence_penalty;
  }
}

void Sampler::record_logprobs(std::span<const float> logits, std::span<const int32_t> absent, int32_t id) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) candidates_.push_back({static_cast<int32_t>(i), logits[i], 0});
  exclude(candidates_, absent);
  float top = -INFINITY;
  for (const Candidate& c : candidates_) top = std::max(top, c.logit);
  double total = 0;
  for (const Candidate& c : candidates_)
    total += std::exp(static_cast<double>(c.logit) - static_cast<double>(top));
  const double log_total = static_cast<double>(top) + std::log(total);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_total);
  };
  logprobs_.chosen = {id, logprob(logits[static_cast<size_t>(id)])};
  logprobs_.top.clear();
  const size_t count = std::min(static_cast<size_t>(options_.logprobs), candidates_.size());
  sort_best(count);
  for (size_t i = 0; i < count && std::isfinite(candidates_[i].logit); ++i)
    logprobs_.top.push_back({candidates_[i].id, logprob(candidates_[i].logit)});
}

// A token that was generated, for the penalties that look at those.
void Sampler::count(int32_t id) {
  if (options_.presence_penalty == 0 && options_.frequency_penalty == 0) return;
  const auto at = static_cast<size_t>(id);
  if (at >= counts_.size()) counts_.resize(at + 1);
  if (counts_[at]++ == 0) generated_.push_back(id);
}

// Chooses among candidates_ by their weights exp((logit - top) / temperature).
int32_t Sampler::draw(float top) {
  for (Candidate& c : candidates_) c.weight = std::exp((c.logit - top) / options_.temperature);
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < candidates_.size()) {
    sort_best(static_cast<size_t>(options_.top_k));
    candidates_.resize(static_cast<size_t>(options_.top_k));
  }
  if (options_.top_p < 1) cut_to_nucleus();
  if (options_.min_p > 0)
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  double remaining = uniform() * total;
  for (const Candidate& c : candidates_) {
    remaining -= c.weight;
    if (remaining < 0) return c.id;
  }
  return candidates_.back().id;
}

// Brings the `count` most likely candidates to the front, in order.
void Sampler::sort_best(size_t count) {
  const auto middle = candidates_.begin() + static_cast<std::ptrdiff_t>(std::min(count, candidates_.size()));
  if (middle != candidates_.end())
    std::nth_element(candidates_.begin(), middle, candidates_.end(), more_likely);
  std::sort(candidates_.begin(), middle, more_likely);
}

// Keeps the fewest most likely candidates whose weights reach top_p of all (Holtzman et al. 2020). Sorts only
// as many as that takes: usually a few dozen of a vocabulary.
void Sampler::cut_to_nucleus() {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  const double wanted = options_.top_p * total;
  for (size_t sorted = 64;; sorted *= 8) {
    sorted = std::min(sorted, candidates_.size());
    sort_best(sorted);
    double sum = 0;
    for (size_t count = 0; count < sorted; ++count) {
      sum += candidates_[count].weight;
      if (sum >= wanted) {
        candidates_.resize(count + 1);
        return;
      }
    }
    if (sorted == candidates_.size()) return;
  }
}

}  // namespace butter
