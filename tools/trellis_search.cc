// trellis_search: finds and verifies the codebooks of the trellis code (kernels/trellis.h).
//
//   trellis_search --verify trellis_k2.txt             prints its error at d 64 and 128; fails where that is
//                                                      more than 1 % above the figures of the shipped tables
//   trellis_search --bits 2 --out trellis_k2.txt       searches, writes, and verifies what it wrote
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "codebook.h"
#include "codebook_search.h"

namespace butter {
namespace {

struct Options {
  std::string verify;
  std::string out;
  int bits = 0;
  int rows = 6000;
  double tolerance = 0.01;
  CodebookSearch search;
};

// Errors of the shipped tables, over 40,000 rows (seed 3).
struct Figure {
  int bits, dim;
  double error;
};
constexpr Figure kFigures[] = {{2, 64, 0.07855},  {2, 128, 0.07893}, {3, 64, 0.02125},
                               {3, 128, 0.02147}, {4, 64, 0.006238}, {4, 128, 0.006351}};

// "trellis_k3.txt" holds a code of 3 bits.
Result<int> bits_in_name(const std::string& path) {
  for (const int bits : {2, 3, 4}) {
    if (path.find("_k" + std::to_string(bits)) != std::string::npos) return bits;
  }
  return fail(StatusCode::kInvalidArgument, "{}: the name does not say the bits (_k2, _k3, _k4); add --bits",
              path);
}

Status verify(const std::string& path, int bits, const Options& options) {
  BUTTER_ASSIGN(const TrellisTable table, read_codebook(path));
  if (bits == 0) {
    BUTTER_ASSIGN(bits, bits_in_name(path));
  }
  bool good = true;
  for (const Figure& figure : kFigures) {
    if (figure.bits != bits) continue;
    const MeanError error = measure(bits, values_of(table), figure.dim, options.rows, options.search.seed);
    const double gap = 10 * std::log10(error.mean * std::pow(4, bits));
    std::printf(
        "k %d  d %3d  mse %.6f +- %.6f  %.3f of the figure  %.2f dB above the rate-distortion bound\n", bits,
        figure.dim, error.mean, error.deviation, error.mean / figure.error, gap);
    good = good && error.mean <= (1 + options.tolerance) * figure.error;
  }
  if (good) return {};
  return fail(StatusCode::kLimit, "{} codes worse than the shipped table of {} bits by more than {:g} %",
              path, bits, 100 * options.tolerance);
}

Status run(const Options& options) {
  if (!options.verify.empty()) return verify(options.verify, options.bits, options);
  if (options.out.empty() || options.bits == 0) {
    return fail(StatusCode::kInvalidArgument, "nothing to do: give --verify FILE, or --bits and --out FILE");
  }
  CodebookSearch search = options.search;
  search.bits = options.bits;
  BUTTER_TRY(write_codebook(quantised(search_codebook(search)), options.out));
  return verify(options.out, options.bits, options);
}

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Finds and verifies codebooks of the trellis code");
  app.add_option("--verify", options.verify, "A codebook to measure");
  app.add_option("--out", options.out, "Where a search writes what it finds");
  app.add_option("--bits", options.bits, "Bits of a value")->check(CLI::Range(2, 4));
  app.add_option("--rows", options.rows, "Rows to measure")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--tolerance", options.tolerance,
                 "Share by which the error may be above the shipped table's")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--seed", options.search.seed, "Seed of the rows and of the search")->capture_default_str();
  app.add_option("--starts", options.search.starts, "Linear maps to try")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--polish", options.search.polish_rounds, "Rounds for the best of them")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  app.add_option("--seconds", options.search.seconds, "Time after which a search stops with the best so far")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const Status status = run(options);
  if (status) return 0;
  std::fprintf(stderr, "trellis_search: %s\n", status.error().message().c_str());
  return 1;
}

}  // namespace
}  // namespace butter

int main(int argc, char** argv) {
  return butter::main(argc, argv);
}
