// How far the CPU kernels are from float32 arithmetic, on real text with the default model: perplexity
// against the stored computation of tests/data/quality/perplexity.py, and KLD(float32 || kernels) against the
// reference device.
//
// Every figure is printed: docs/quality.md is made of them. The bounds are the project's promises, and leave
// room: what the kernels do today is stated there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>

#include "butter/tokenizer.h"
#include "core/cpu_isa.h"
#include "support/run_engine.h"
#include "support/test_data.h"

namespace butter {
namespace {

constexpr double kPerplexityBound = 0.005;  // of the float32 value
constexpr double kKldBound = 1e-3;          // nats, mean over positions

constexpr const char* kTexts[] = {"alice29.txt", "asyoulik.txt", "lcet10.txt"};
// Tokens of each text whose distributions are compared: on the best instruction set, and on each other one.
constexpr size_t kBestTokens = 512;
constexpr size_t kOtherTokens = 128;
// Windows of the stored run that perplexity is measured on, other than on the best.
constexpr size_t kOtherWindows = 2;
constexpr size_t kPortableWindows = 1;  // takes a minute
constexpr int kLogitRows = 256;

EngineOptions default_options(const std::string& device) {
  EngineOptions options;
  options.model = "smollm2";
  options.device = device;
  options.max_context = 4096;
  options.prefill_rows = kLogitRows;
  options.logit_rows = kLogitRows;
  return options;
}

// Tests are skipped where the default model has not been fetched; not being able to load it is a failure.
void skip_without_default_model() {
  const auto engine = Engine::load(default_options("reference"));
  if (!engine && engine.error().code() == StatusCode::kNotFound) GTEST_SKIP() << engine.error().message();
  ASSERT_TRUE(engine) << engine.error().message();
}

std::vector<int32_t> ids_of(const Engine& engine, const std::string& text) {
  const auto ids = engine.tokenizer()->encode(read_test_file(test_data("text/" + text)));
  EXPECT_TRUE(ids) << ids.error().message();
  return ids ? *ids : std::vector<int32_t>();
}

double log_sum_exp(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - top);
  return top + std::log(sum);
}

// --- Perplexity
// ----------------------------------------------------------------------------------------------------

// Mean negative log-likelihood of ids[1:], each given those before it, by the prefill path.
double mean_nll(Engine& engine, std::span<const int32_t> ids) {
  Sequence sequence = make_sequence(engine);
  double sum = 0;
  const Status status = engine.forward_all(sequence, ids, [&](int64_t index, std::span<const float> logits) {
    const auto next = static_cast<size_t>(index) + 1;
    if (next < ids.size()) sum += log_sum_exp(logits) - logits[static_cast<size_t>(ids[next])];
  });
  EXPECT_TRUE(status) << status.error().message();
  return sum / static_cast<double>(ids.size() - 1);
}

size_t windows_on(Isa isa, size_t all) {
  if (isa == available_isas().back()) return all;
  return isa == Isa::kPortable ? kPortableWindows : kOtherWindows;
}

class PerplexityTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { skip_without_default_model(); }
};

TEST_P(PerplexityTest, IsWithinHalfAPercentOfFloat32) {
  const ScopedIsa forced(isa_name(GetParam()));
  const auto engine = load_engine(default_options("cpu"));
  ASSERT_EQ(engine->info().isa, isa_name(GetParam()));
  const auto stored = nlohmann::json::parse(read_test_file(test_data("quality/perplexity.json")));
  const auto window_tokens = stored["window_tokens"].get<size_t>();
  const auto nll = stored["nll"].get<std::vector<double>>();

  const std::vector<int32_t> ids = ids_of(*engine, stored["text"].get<std::string>());
  ASSERT_GE(ids.size(), window_tokens * nll.size());
  int64_t checksum = 0;
  for (size_t i = 0; i < window_tokens * nll.size(); ++i) checksum += static_cast<int64_t>(i + 1) * ids[i];
  ASSERT_EQ(checksum, stored["id_checksum"].get<int64_t>()) << "these are not the tokens of the stored run";

  const size_t windows = windows_on(GetParam(), nll.size());
  double ours = 0, exact = 0;
  for (size_t w = 0; w < windows; ++w) {
    ours += mean_nll(*engine, std::span(ids).subspan(w * window_tokens, window_tokens)) /
            static_cast<double>(windows);
    exact += nll[w] / static_cast<double>(windows);
  }
  const double change = std::exp(ours - exact) - 1;
  std::printf("perplexity %-8s %2zu windows: %.5f, float32 %.5f: %+.4f %%\n", isa_name(GetParam()), windows,
              std::exp(ours), std::exp(exact), 100 * change);
  EXPECT_LE(std::fabs(change), kPerplexityBound);
}

INSTANTIATE_TEST_SUITE_P(Isa, PerplexityTest, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return isa_name(isa.param); });

// --- KLD
// -----------------------------------------------------------------------------------------------------------

// Distances between what float32 arithmetic and what some kernels say of the same positions.
struct Divergence {
  double kld = 0;  // sum over positions
  double worst = 0;
  double squared_logits = 0;  // of differences, mean over the vocabulary, sum over positions
  int64_t same_choice = 0;
  int64_t positions = 0;

  void add(std::span<const float> exact, std::span<const float> found) {
    const double exact_sum = log_sum_exp(exact), found_sum = log_sum_exp(found);
    double kld_here = 0, squares = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      const double log_p = exact[i] - exact_sum, difference = log_p - (found[i] - found_sum);
      kld_here += std::exp(static_cast<float>(log_p)) * difference;
      squares += difference * difference;
    }
    kld += kld_here;
    worst = std::isnan(kld_here) ? kld_here : std::max(worst, kld_here);
    squared_logits += squares / static_cast<double>(exact.size());
    same_choice += argmax(exact) == argmax(found);
    ++positions;
  }

  double mean_kld() const { return kld / static_cast<double>(positions); }

  void print(const std::string& what) const {
    const auto count = static_cast<double>(positions);
    std::printf("kld %-34s %4lld positions: mean %.3e, worst %.3e, rms of log p %.4f, same choice %.2f %%\n",
                what.c_str(), static_cast<long long>(positions), mean_kld(), worst,
                std::sqrt(squared_logits / count), 100.0 * static_cast<double>(same_choice) / count);
  }
};

struct Text {
  const char* name = "";
  std::vector<int32_t> ids;
  Logits exact;  // of the reference device
};

// Each text runs on a reference device of its own, which has one thread.
std::vector<Text> run_reference() {
  std::vector<std::future<Text>> runs;
  for (const char* name : kTexts) {
    runs.push_back(std::async(std::launch::async, [name] {
      const auto engine = load_engine(default_options("reference"));
      Text text{name, ids_of(*engine, name), {}};
      EXPECT_GE(text.ids.size(), kBestTokens);
      text.ids.resize(kBestTokens);
      Sequence sequence = make_sequence(*engine);
      text.exact = feed_all(*engine, sequence, text.ids);
      return text;
    }));
  }
  std::vector<Text> texts;
  for (auto& run : runs) texts.push_back(run.get());
  return texts;
}

// How many tokens the calls feed, in turn.
Divergence compare(Engine& engine, const Text& text, size_t tokens, const std::vector<size_t>& chunks) {
  Divergence divergence;
  Sequence sequence = make_sequence(engine);
  const auto ids = std::span(text.ids).first(tokens);
  size_t at = 0;
  for (size_t call = 0; at < tokens; ++call) {
    const size_t count = std::min(chunks[call % chunks.size()], tokens - at);
    const Status status =
        engine.forward_all(sequence, ids.subspan(at, count), [&](int64_t i, std::span<const float> row) {
          divergence.add(text.exact[at + static_cast<size_t>(i)], row);
        });
    EXPECT_TRUE(status) << status.error().message();
    at += count;
  }
  return divergence;
}

class KldTest : public testing::Test {
 protected:
  void SetUp() override { skip_without_default_model(); }
};

TEST_F(KldTest, IsBelowOneThousandthOnEveryInstructionSetInDecodeAndPrefill) {
  const std::vector<Text> texts = run_reference();
  const std::vector<size_t> decode = {1, 2, 3, 4, 5, 6, 7, 8}, prefill = {kBestTokens};

  for (Isa isa : available_isas()) {
    const ScopedIsa forced(isa_name(isa));
    const auto engine = load_engine(default_options("cpu"));
    const size_t tokens = isa == available_isas().back() ? kBestTokens : kOtherTokens;
    for (const Text& text : texts) {
      for (const bool is_decode : {true, false}) {
        const std::string what =
            std::string(isa_name(isa)) + (is_decode ? " decode " : " prefill ") + text.name;
        const Divergence divergence = compare(*engine, text, tokens, is_decode ? decode : prefill);
        divergence.print(what);
        EXPECT_LT(divergence.mean_kld(), kKldBound) << what;
      }
    }
  }
}

}  // namespace
}  // namespace butter
