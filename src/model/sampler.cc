#include "butter/sampler.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/status.h"

namespace butter {

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

Result<int32_t> Sampler::sample(std::span<const float> logits) {
  if (options_.temperature == 0 && seen_.empty()) {
    if (const auto best = most_likely(logits)) return *best;
  }
  candidates_.clear();
  candidates_.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return fail(StatusCode::kNumeric, "the logit of token {} is not a number", i);
    candidates_.push_back({static_cast<int32_t>(i), logits[i], 0});
  }
  // A token that has been seen: positive logits are divided, negative ones multiplied (Keskar et al. 2019).
  for (int32_t id : seen_) {
    if (static_cast<size_t>(id) >= logits.size()) continue;
    float& logit = candidates_[static_cast<size_t>(id)].logit;
    logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
  }
  if (candidates_.empty()) return fail(StatusCode::kNumeric, "there are no logits to choose from");
  const auto best = std::min_element(candidates_.begin(), candidates_.end(), more_likely);
  if (std::isinf(best->logit)) {
    return fail(StatusCode::kNumeric, "the largest logit is {}; a finite number is expected", best->logit);
  }
  if (options_.temperature == 0) return best->id;
  return draw(best->logit);
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
