#include "matrix/matrix.h"

#include "kernels/row_format.h"
#include "support/fixture.h"

namespace butter {

std::vector<std::string> matrix_schemes() {
  if (!kWholeMatrix) return scheme_kinds();
  std::vector<std::string> schemes;
  for (const RowFormat* format : row_formats()) {
    if (format->lossy) schemes.push_back(format->name);
  }
  for (const char* pair : {"raw", "aura3v2", "aura4v2", "k=affine8,v=aura2", "k=aura4,v=affine4",
                           "k=raw,v=aura3", "k=aura3,v=raw", "aura8v4", "k=affine6g128,v=affine4g16",
                           "aura4v4:plain", "affine4:plain", "k=raw,v=affine8:plain"}) {
    schemes.push_back(pair);
  }
  return schemes;
}

std::vector<std::string> scheme_kinds() {
  std::vector<std::string> kinds = {"aura3v2", "affine4", "k=affine8,v=aura4", "aura4v4:plain"};
  if (kSanitized) kinds.resize(2);
  if (kWholeMatrix) kinds.insert(kinds.end(), {"aura8v8", "k=affine6,v=raw"});
  return kinds;
}

std::vector<Window> matrix_windows() {
  std::vector<Window> windows = {{}, {100, 4}, {64, 0}};
  if (!kWholeMatrix) windows.resize(2);
  // Windows that begin in the page before, with and without kept rows; kept rows beyond a page.
  if (kWholeMatrix) windows.insert(windows.end(), {{65, 4}, {64, 4}, {130, 70}});
  return windows;
}

std::vector<std::string> matrix_models() {
  if (kWholeMatrix) return fixture_names();
  if (kSanitized) return {"qwen2", "falcon_h1"};
  // Biases of keys; a window of the model's own, and sinks; state beside the pages, and without any.
  return {"qwen2", "gpt_oss", "falcon_h1", "mamba2"};
}

std::vector<size_t> matrix_chunks() {
  if (!kWholeMatrix) return {7, 200};
  return {1, 7, 64, 200};
}

const std::vector<MatrixDevice>& matrix_devices() {
  static const std::vector<MatrixDevice> devices = [] {
    std::vector<MatrixDevice> made = {{"reference", Isa::kPortable, "reference"}};
    const std::vector<Isa> isas = available_isas();
    if (kWholeMatrix) {
      made.push_back({"cpu", choose_isa().value(), "cpu"});
      return made;
    }
    for (Isa isa : isas) {
      if (isa == isas.back() || isa == Isa::kAvx2) made.push_back({"cpu", isa, isa_name(isa)});
    }
    return made;
  }();
  return devices;
}

}  // namespace butter
