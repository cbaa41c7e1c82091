// What a model file holds and what its caches will take, read from the header alone: no weights are touched.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "butter/export.h"
#include "butter/options.h"
#include "butter/plan.h"
#include "butter/status.h"
#include "butter/tokenizer.h"

namespace butter {

struct TensorDescription {
  std::string name;
  std::string type;            // "Q4_1", "q4 g64 scale+bias"
  std::vector<int64_t> shape;  // (out, in)
  int64_t bytes = 0;
};

struct LayerDescription {
  int layer = 0;
  std::string mixer;  // "attention"
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t window_size = 0;  // the model's own; 0: none
  std::string ffn;          // "gated silu"
  int ffn_width = 0;
};

struct TokenizerDescription {
  bool present = false;
  int vocabulary = 0;
  std::string pre_tokenizer;
  bool adds_bos = false;
  int32_t bos_id = -1;
  std::vector<int32_t> end_ids;  // tokens that end a turn
  bool has_chat_template = false;
};

struct ModelDescription {
  std::string name;
  std::string path;
  std::string format;  // "gguf", "safetensors"
  std::string family;
  int vocabulary = 0;
  int hidden = 0;
  int64_t max_positions = 0;
  int64_t parameters = 0;
  int64_t file_bytes = 0;
  bool tied_head = false;
  std::vector<LayerDescription> layers;
  std::vector<TensorDescription> tensors;
  TokenizerDescription tokenizer;
  std::vector<std::string> notes;  // as in ModelInfo
};

BUTTER_API Result<ModelDescription> inspect_model(const std::string& model);

// The tokenizer alone; nothing where the checkpoint has none.
BUTTER_API Result<std::unique_ptr<const Tokenizer>> load_model_tokenizer(const std::string& model);

// The cache plan of a sequence, as an engine on `device` would make it. May go past the advertised length.
BUTTER_API Result<CachePlan> plan_model(const std::string& model, const SequenceOptions& options,
                                        int prefill_rows = 512, const std::string& device = "cpu");

// Names of the cache formats there are: what --kv-cache takes.
BUTTER_API std::vector<std::string> cache_format_names();

// Where the build and this machine stand.
struct BuildInfo {
  std::string version;
  std::string compiler;
  std::string isa;                // in use: BUTTER_ISA or the best there is
  std::vector<std::string> isas;  // that this CPU has
  std::string cpu;
  int usable_cpus = 1;
  std::vector<std::string> devices;
};
BUTTER_API Result<BuildInfo> build_info();

}  // namespace butter
