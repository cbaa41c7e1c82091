// The table of families, and how a checkpoint finds its row.
#include <algorithm>
#include <cstring>

#include "checkpoint/printable.h"
#include "families/falcon.h"
#include "families/family.h"
#include "families/file_notes.h"
#include "families/gemma.h"
#include "families/gpt_oss.h"
#include "families/granite.h"
#include "families/jamba.h"
#include "families/llama.h"
#include "families/mamba.h"
#include "families/muse.h"
#include "families/nemotron.h"
#include "families/phi.h"
#include "families/qwen.h"
#include "families/smollm.h"
#include "families/spark.h"

namespace butter {
namespace {

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {"llama", {"llama"}, {"LlamaForCausalLM"}, {"llama"}, llama_spec},
      {"mistral", {"mistral"}, {"MistralForCausalLM"}, {"mistral3"}, mistral_spec},
      {"qwen2", {"qwen2"}, {"Qwen2ForCausalLM"}, {"qwen2"}, qwen2_spec},
      {"qwen3", {"qwen3"}, {"Qwen3ForCausalLM"}, {"qwen3"}, qwen3_spec},
      {"smollm3", {"smollm3"}, {"SmolLM3ForCausalLM"}, {"smollm3"}, smollm3_spec},
      {"phi3", {"phi3"}, {"Phi3ForCausalLM"}, {"phi3"}, phi3_spec},
      {"gemma3",
       {"gemma3_text", "gemma3"},
       {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
       {"gemma3"},
       gemma3_spec},
      {"spark2_5", {"spark2_5"}, {"Spark2_5ForCausalLM"}, {"spark2_5"}, spark2_5_spec},
      {"muse_glimmer",
       {"muse_glimmer_text", "muse_glimmer"},
       {"MuseGlimmerForConditionalGeneration"},
       {"muse-glimmer"},
       muse_glimmer_spec},
      {"granite",
       {"granitemoehybrid"},
       {"GraniteMoeHybridForCausalLM"},
       {"granite", "granitemoe", "granitehybrid"},
       granite_spec},
      {"qwen3_moe", {"qwen3_moe"}, {"Qwen3MoeForCausalLM"}, {"qwen3moe"}, qwen3_moe_spec},
      {"qwen3_next", {"qwen3_next"}, {"Qwen3NextForCausalLM"}, {"qwen3next"}, qwen3_next_spec},
      {"qwen3_5",
       {"qwen3_5_text", "qwen3_5"},
       {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
       {"qwen35"},
       qwen3_5_spec},
      {"qwen3_5_moe",
       {"qwen3_5_moe_text", "qwen3_5_moe"},
       {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
       {"qwen35moe"},
       qwen3_5_moe_spec},
      {"gpt_oss", {"gpt_oss"}, {"GptOssForCausalLM"}, {"gpt-oss"}, gpt_oss_spec},
      {"mamba2", {"mamba2"}, {"Mamba2ForCausalLM"}, {"mamba2"}, mamba2_spec},
      {"nemotron_h",
       {"nemotron_h"},
       {"NemotronHForCausalLM"},
       {"nemotron_h", "nemotron_h_moe"},
       nemotron_h_spec},
      {"jamba", {"jamba"}, {"JambaForCausalLM"}, {"jamba"}, jamba_spec},
      {"falcon_h1", {"falcon_h1"}, {"FalconH1ForCausalLM"}, {"falcon-h1"}, falcon_h1_spec},
  };
  return table;
}

std::string family_names() {
  std::string names;
  for (const Family& family : families()) names += (names.empty() ? "" : ", ") + std::string(family.name);
  return names;
}

const Family* find_family(const std::vector<const char*> Family::*selectors, std::string_view name) {
  for (const Family& family : families()) {
    for (const char* selector : family.*selectors) {
      if (name == selector) return &family;
    }
  }
  return nullptr;
}

// config.json: model_type, then architectures[0]; the text model's object in multimodal wrappers
// (families.md 3.1).
Result<const Family*> select_from_config(FamilySource& source) {
  const Attributes outer = source.config;
  for (const char* key : {"text_config", "llm_config"}) {
    if (outer.kind(key) == AttributeKind::kObject) {
      BUTTER_ASSIGN(source.config, outer.get_object(key));
      break;
    }
  }
  BUTTER_ASSIGN(source.model_type, source.config.get_string_or("model_type", ""));
  if (const Family* family = find_family(&Family::model_types, source.model_type)) return family;
  std::string architecture;
  if (outer.kind("architectures") != AttributeKind::kAbsent) {
    BUTTER_ASSIGN(const auto architectures, outer.get_strings("architectures"));
    if (!architectures.empty()) architecture = architectures[0];
  }
  if (const Family* family = find_family(&Family::architectures, architecture)) return family;
  return fail(StatusCode::kUnsupported,
              "config.json has model_type \"{}\" and architecture \"{}\"; Butter knows {}",
              printable(source.model_type), printable(architecture), family_names());
}

Result<const Family*> select_from_gguf(FamilySource& source) {
  BUTTER_ASSIGN(const std::string_view architecture, source.config.get_string("general.architecture"));
  source.model_type = architecture;
  if (const Family* family = find_family(&Family::gguf_architectures, architecture)) return family;
  return fail(StatusCode::kUnsupported, "general.architecture is \"{}\"; Butter knows {}",
              printable(architecture), family_names());
}

Result<ModelSpec> make_spec(FamilySource source) {
  BUTTER_ASSIGN(const Family* family, source.gguf() ? select_from_gguf(source) : select_from_config(source));
  BUTTER_ASSIGN(ModelSpec spec, family->make_spec(source));
  spec.family = family->name;
  add_file_notes(source, spec);
  return spec;
}

}  // namespace

bool FamilySource::has_tensor(std::string_view name) const {
  return checkpoint != nullptr && checkpoint->has_tensor(name);
}

Result<ModelSpec> make_model_spec(const Checkpoint& checkpoint) {
  FamilySource source;
  source.format = checkpoint.format();
  source.config = checkpoint.config();
  source.checkpoint = &checkpoint;
  return make_spec(std::move(source));
}

Result<ModelSpec> make_model_spec(CheckpointFormat format, const Attributes& config) {
  FamilySource source;
  source.format = format;
  source.config = config;
  return make_spec(std::move(source));
}

}  // namespace butter
