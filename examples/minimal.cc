// The shortest program: loads a model, asks it one question, streams the answer.
//
//   example_minimal smollm2 "What is the capital of France?"
#include <cstdio>

#include "butter/session.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL QUESTION\n", argv[0]);
    return 2;
  }
  butter::EngineOptions options;
  options.model = argv[1];
  auto engine = butter::Engine::load(options);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message().c_str());
    return 1;
  }
  auto session = butter::Session::create(**engine);
  if (!session) {
    std::fprintf(stderr, "%s\n", session.error().message().c_str());
    return 1;
  }
  const auto show = [](std::string_view piece) {
    return std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size() && std::fflush(stdout) == 0;
  };
  const auto answer = session->chat({{"user", argv[2]}}, {}, show);
  if (!answer) {
    std::fprintf(stderr, "%s\n", answer.error().message().c_str());
    return 1;
  }
  std::printf("\n");
  return 0;
}
