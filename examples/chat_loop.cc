// A conversation of several turns, with the cache in the caller's hands.
//
// make_layer_caches() gives a Sequence: what the model has read, with its position. Each turn feeds only its
// new tokens; everything before them is in the cache. Session (butter/session.h) does this and more; here is
// how.
//
//   example_chat_loop MODEL TURN...             turns of text
//   example_chat_loop MODEL --ids 1,2,3 4,5     turns of token ids: for a model without a tokenizer
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "butter/engine.h"

namespace {

constexpr int kAnswerTokens = 24;

[[noreturn]] void stop(const butter::Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  std::exit(1);
}

template <typename T>
T value_of(butter::Result<T> result) {
  if (!result) stop(result.error());
  return std::move(*result);
}

std::vector<int32_t> parse_ids(const char* text) {
  std::vector<int32_t> ids;
  for (char* end = nullptr; *text != '\0'; text = *end == ',' ? end + 1 : end) {
    ids.push_back(static_cast<int32_t>(std::strtol(text, &end, 10)));
    if (end == text) break;
  }
  return ids;
}

// The tokens that a turn adds: plain text here, so that the example needs no chat template.
std::vector<int32_t> tokens_of(const butter::Engine& engine, const char* turn, bool are_ids) {
  if (are_ids) return parse_ids(turn);
  const butter::Tokenizer* tokenizer = engine.tokenizer();
  if (tokenizer == nullptr)
    stop(butter::Error(butter::StatusCode::kUnsupported, "the model has no tokenizer; use --ids"));
  return value_of(tokenizer->encode(turn));
}

void show(const butter::Engine& engine, int32_t token) {
  if (const butter::Tokenizer* tokenizer = engine.tokenizer()) {
    const std::string_view piece = tokenizer->piece(token);
    std::fwrite(piece.data(), 1, piece.size(), stdout);
  } else {
    std::printf("%d ", token);
  }
}

// Feeds a turn and answers it. The answer's last token is returned unfed: the next turn begins with it.
int32_t run_turn(butter::Engine& engine, butter::Sequence& sequence, butter::Sampler& sampler,
                 const std::vector<int32_t>& fed) {
  sampler.observe(fed);
  int32_t next = value_of(engine.forward_sample(sequence, fed, sampler));
  for (int i = 1; i < kAnswerTokens; ++i) {
    show(engine, next);
    next = value_of(engine.forward_sample(sequence, std::vector<int32_t>{next}, sampler));
  }
  show(engine, next);
  std::printf("\n");
  return next;
}

}  // namespace

int main(int argc, char** argv) {
  const bool are_ids = argc > 2 && std::string_view(argv[2]) == "--ids";
  const int first_turn = are_ids ? 3 : 2;
  if (argc <= first_turn) {
    std::fprintf(stderr, "usage: %s MODEL [--ids] TURN...\n", argv[0]);
    return 2;
  }
  butter::EngineOptions options;
  options.model = argv[1];
  const auto engine = value_of(butter::Engine::load(options));
  auto sequence = value_of(engine->make_layer_caches());
  butter::Sampler sampler({});

  std::vector<int32_t> unfed;  // the last token of the answer before
  for (int turn = first_turn; turn < argc; ++turn) {
    std::vector<int32_t> fed = unfed;
    const std::vector<int32_t> added = tokens_of(*engine, argv[turn], are_ids);
    fed.insert(fed.end(), added.begin(), added.end());
    unfed = {run_turn(*engine, sequence, sampler, fed)};
    std::fprintf(stderr, "position %lld, %lld bytes of cache\n", static_cast<long long>(sequence.position()),
                 static_cast<long long>(sequence.held_bytes()));
  }
  return 0;
}
