// Configurations, right and wrong: what each family makes of them, and the sentence where it cannot.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numbers>

#include "checkpoint/gguf.h"
#include "checkpoint/mlx_config.h"
#include "families/family.h"
#include "families/tensor_names.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace butter {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A small right configuration, as key and JSON value; each test changes some.
using Config = std::map<std::string, std::string>;

Config small_config(const std::string& model_type = "llama") {
  return {{"model_type", '"' + model_type + '"'},
          {"hidden_size", "64"},
          {"num_hidden_layers", "4"},
          {"num_attention_heads", "4"},
          {"num_key_value_heads", "2"},
          {"head_dim", "16"},
          {"intermediate_size", "128"},
          {"vocab_size", "256"},
          {"max_position_embeddings", "512"},
          {"rms_norm_eps", "1e-5"}};
}

Result<ModelSpec> spec_of(const Config& config) {
  std::string text;
  for (const auto& [key, value] : config)
    text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ",\n", key, value);
  const auto attributes = Attributes::parse_json("{" + text + "}", "config.json");
  EXPECT_TRUE(attributes) << attributes.error().message();
  return make_model_spec(CheckpointFormat::kSafetensors, *attributes);
}

Result<ModelSpec> spec_with(const std::string& key, const std::string& value,
                            Config config = small_config()) {
  if (value.empty()) {
    config.erase(key);
  } else {
    config[key] = value;
  }
  return spec_of(config);
}

std::string refusal(const Result<ModelSpec>& spec) {
  return spec ? "accepted" : spec.error().message();
}

const AttentionSpec& attention(const ModelSpec& spec, size_t layer) {
  return std::get<AttentionSpec>(spec.layers[layer].mixers[0].kind);
}

GgufWriter small_gguf(const std::string& architecture = "llama") {
  GgufWriter writer;
  writer.string("general.architecture", architecture).value<uint32_t>(architecture + ".vocab_size", 256);
  writer.value<uint32_t>(architecture + ".context_length", 512)
      .value<float>(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  return writer;
}

// GGUF metadata of these numbers (and of small_gguf's), in the order in which they are given.
Result<ModelSpec> gguf_spec(const std::map<std::string, int64_t>& changes,
                            const std::function<void(GgufWriter&)>& more = {},
                            const std::string& architecture = "llama") {
  std::map<std::string, int64_t> numbers = {{architecture + ".block_count", 4},
                                            {architecture + ".embedding_length", 64},
                                            {architecture + ".feed_forward_length", 128},
                                            {architecture + ".attention.head_count", 4},
                                            {architecture + ".attention.head_count_kv", 2},
                                            {architecture + ".attention.key_length", 16},
                                            {architecture + ".rope.dimension_count", 16}};
  for (const auto& [key, value] : changes) numbers[key] = value;
  GgufWriter writer = small_gguf(architecture);
  for (const auto& [key, value] : numbers) writer.value<int64_t>(key, value);
  if (more) more(writer);
  const std::string bytes = writer.bytes();
  const auto gguf = Gguf::parse(as_bytes(bytes));
  EXPECT_TRUE(gguf) << gguf.error().message();
  return make_model_spec(CheckpointFormat::kGguf, gguf->metadata());
}

TEST(Families, SmallConfigurationBecomesASpec) {
  const auto spec = spec_of(small_config());
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->family, "llama");
  EXPECT_EQ(spec->vocabulary, 256);
  EXPECT_EQ(spec->hidden, 64);
  EXPECT_EQ(spec->max_positions, 512);
  ASSERT_EQ(spec->layers.size(), 4u);
  EXPECT_EQ(attention(*spec, 3).kv_heads, 2);
  EXPECT_EQ(attention(*spec, 3).head_dim, 16);
  EXPECT_FLOAT_EQ(attention(*spec, 0).scale, 0.25f);
  EXPECT_EQ(attention(*spec, 2).k.weight.name, "model.layers.2.self_attn.k_proj.weight");
  EXPECT_EQ(attention(*spec, 2).k.weight.shape, (Shape{32, 64}));
  EXPECT_FALSE(attention(*spec, 2).k.bias);
  EXPECT_EQ(kv_layers(*spec).size(), 4u);
  EXPECT_EQ(window_classes(*spec), std::vector<Window>{Window{}});
}

TEST(Families, GgufMetadataBecomesASpecWithPermutedRows) {
  const auto spec = gguf_spec({});
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(attention(*spec, 1).q.weight.name, "blk.1.attn_q.weight");
  EXPECT_EQ(attention(*spec, 1).q.weight.permuted_heads, 4);
  EXPECT_EQ(attention(*spec, 1).k.weight.permuted_heads, 2);
  EXPECT_EQ(attention(*spec, 1).v.weight.permuted_heads, 0);
  EXPECT_EQ(spec->embedding.name, "token_embd.weight");
}

TEST(Families, EachTraitIsDataInTheSpec) {
  const auto qwen2 = spec_of(small_config("qwen2"));
  ASSERT_TRUE(qwen2);
  EXPECT_TRUE(attention(*qwen2, 0).q.bias && attention(*qwen2, 0).k.bias && attention(*qwen2, 0).v.bias);
  EXPECT_FALSE(attention(*qwen2, 0).o.bias);
  const auto qwen3 = spec_of(small_config("qwen3"));
  ASSERT_TRUE(qwen3);
  EXPECT_TRUE(attention(*qwen3, 0).q_norm && attention(*qwen3, 0).k_norm);
  EXPECT_FALSE(attention(*qwen3, 0).q.bias);
  Config mistral = small_config("mistral");
  mistral["sliding_window"] = "48";
  const auto windowed = spec_of(mistral);
  ASSERT_TRUE(windowed);
  EXPECT_EQ(attention(*windowed, 3).window, (Window{48, 0}));
  mistral["sliding_window"] = "null";
  EXPECT_TRUE(attention(*spec_of(mistral), 3).window.none());
}

TEST(Families, QwenWindowsHoldOnlyWhereTheConfigurationUsesThem) {
  Config config = small_config("qwen2");
  config["sliding_window"] = "64";
  config["max_window_layers"] = "2";
  EXPECT_EQ(window_classes(*spec_of(config)), std::vector<Window>{Window{}})
      << "use_sliding_window is absent";
  config["use_sliding_window"] = "true";
  const auto late = spec_of(config);
  ASSERT_TRUE(late);
  EXPECT_TRUE(attention(*late, 1).window.none());
  EXPECT_EQ(attention(*late, 2).window, (Window{64, 0}));
  EXPECT_EQ(window_classes(*late).size(), 2u);
  EXPECT_EQ(kv_layers(*late)[3].window_class, 1);
  config["layer_types"] = R"(["sliding_attention", "full_attention", "sliding_attention", "full_attention"])";
  const auto stated = spec_of(config);
  ASSERT_TRUE(stated);
  EXPECT_EQ(attention(*stated, 0).window, (Window{64, 0}));
  EXPECT_TRUE(attention(*stated, 3).window.none());
  config["layer_types"] = R"(["sliding_attention"])";
  EXPECT_THAT(refusal(spec_of(config)), AllOf(HasSubstr("layer_types has 1"), HasSubstr("4")));
  config["layer_types"] = R"(["sliding_attention", "chunked_attention", "full_attention", "full_attention"])";
  EXPECT_THAT(refusal(spec_of(config)), AllOf(HasSubstr("layer_types[1]"), HasSubstr("chunked_attention")));
}

Config family_config(const char* type) {
  Config config = small_config();
  config["model_type"] = std::string("\"") + type + "\"";
  return config;
}

TEST(Families, SmolLm3TurnsTheLayersThatTheConfigSays) {
  Config config = family_config("smollm3");
  const auto by_interval = spec_of(config);
  ASSERT_TRUE(by_interval) << by_interval.error().message();
  EXPECT_TRUE(attention(*by_interval, 0).rope_table.has_value());
  EXPECT_FALSE(attention(*by_interval, 3).rope_table.has_value());
  config["no_rope_layer_interval"] = "2";
  EXPECT_FALSE(attention(*spec_of(config), 1).rope_table.has_value());
  config["no_rope_layers"] = "[0, 1, 1, 1]";
  EXPECT_FALSE(attention(*spec_of(config), 0).rope_table.has_value());
  EXPECT_TRUE(attention(*spec_of(config), 3).rope_table.has_value());
  config["no_rope_layers"] = "[0, 1]";
  EXPECT_THAT(refusal(spec_of(config)), AllOf(HasSubstr("no_rope_layers has 2"), HasSubstr("4")));
  config["no_rope_layers"] = "[1, 1, 1, 0]";
  config["sliding_window"] = "64";
  EXPECT_EQ(window_classes(*spec_of(config)).size(), 1u) << "only with use_sliding_window";
  config["use_sliding_window"] = "true";
  EXPECT_EQ(attention(*spec_of(config), 3).window, (Window{64, 0}));
  EXPECT_TRUE(attention(*spec_of(config), 0).window.none());
}

TEST(Families, Phi3TakesItsMatricesOutOfFusedOnes) {
  Config config = family_config("phi3");
  const auto spec = spec_of(config);
  ASSERT_TRUE(spec) << spec.error().message();
  const AttentionSpec& first = attention(*spec, 0);
  EXPECT_EQ(first.q.weight.name, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(first.k.weight.name, first.q.weight.name);
  EXPECT_EQ(first.q.weight.first_row, 0);
  EXPECT_EQ(first.k.weight.first_row, first.q.weight.shape[0]);
  EXPECT_EQ(first.v.weight.first_row, first.q.weight.shape[0] + first.k.weight.shape[0]);
  EXPECT_EQ(first.v.weight.first_row + first.v.weight.shape[0], first.v.weight.stored[0]);
  EXPECT_TRUE(first.window.none());
  config["max_position_embeddings"] = "4096";
  config["sliding_window"] = "2047";
  EXPECT_EQ(attention(*spec_of(config), 3).window, (Window{2047, 0}));
  config["sliding_window"] = "262144";  // Phi-3-mini-128k: more than its positions
  EXPECT_TRUE(attention(*spec_of(config), 3).window.none());
}

TEST(Families, YarnTakesNullAndZeroMscaleAsAbsent) {
  Config config = small_config();
  const auto amplitude = [&](const std::string& more) {
    config["rope_scaling"] =
        R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 128)" + more + "}";
    const auto spec = spec_of(config);
    EXPECT_TRUE(spec) << spec.error().message();
    return spec->rope_tables[0].amplitude;
  };
  const float usual = amplitude("");
  EXPECT_NEAR(usual, 0.1 * std::log(4.0) + 1, 1e-6);
  EXPECT_EQ(amplitude(R"(, "mscale": null, "mscale_all_dim": null)"), usual);
  EXPECT_EQ(amplitude(R"(, "mscale": 0, "mscale_all_dim": 0)"), usual);
  EXPECT_EQ(amplitude(R"(, "mscale": 1, "mscale_all_dim": null)"), usual);
  EXPECT_EQ(amplitude(R"(, "mscale": 1, "mscale_all_dim": 1)"), 1);
  config["rope_theta"] = "1";
  EXPECT_THAT(refusal(spec_of(config)),
              HasSubstr("the base of RoPE is 1; more than 1 is expected with YaRN"));
}

TEST(Families, TextOfAConfigurationIsShownWithoutItsControlCharacters) {
  const std::string hostile = R"("x\nbutter: all is well\u001b[2J)" + std::string(100000, 'y') + '"';
  for (const char* key : {"hidden_act", "rope_scaling"}) {
    Config config = small_config();
    config[key] = std::string(key) == "rope_scaling" ? R"({"rope_type": )" + hostile + "}" : hostile;
    const std::string sentence = refusal(spec_of(config));
    EXPECT_THAT(sentence, HasSubstr("x\\x0abutter"));
    EXPECT_EQ(sentence.find('\n'), std::string::npos);
    EXPECT_LT(sentence.size(), 400u);
  }
}

TEST(Families, LongropeHasFrequenciesForTwoLimitsAndSharpensByItsStretch) {
  Config config = family_config("phi3");
  const auto pairs = static_cast<size_t>(attention(*spec_of(config), 0).head_dim / 2);
  const auto factors = [&](double factor) {
    std::string text = "[";
    for (size_t i = 0; i < pairs; ++i) text += (i > 0 ? ", " : "") + std::to_string(factor);
    return text + "]";
  };
  const auto scaling = [&](const std::string& shorter, const std::string& longer, const char* type) {
    return R"({"type": ")" + std::string(type) + R"(", "short_factor": )" + shorter + R"(, "long_factor": )" +
           longer + "}";
  };
  config["max_position_embeddings"] = "131072";
  config["original_max_position_embeddings"] = "4096";
  const std::vector<double> plain = spec_of(config)->rope_tables[0].inv_freq;
  for (const char* type : {"longrope", "su"}) {
    config["rope_scaling"] = scaling(factors(1.25), factors(4), type);
    const auto spec = spec_of(config);
    ASSERT_TRUE(spec) << spec.error().message();
    const RopeTable& table = spec->rope_tables[0];
    EXPECT_NEAR(table.amplitude, std::sqrt(1 + std::log(32.0) / std::log(4096.0)), 1e-6);
    EXPECT_EQ(table.reach, 4096);
    for (size_t i = 0; i < pairs; ++i) {
      EXPECT_DOUBLE_EQ(table.frequencies(4096)[i], plain[i] / 1.25);
      EXPECT_DOUBLE_EQ(table.frequencies(4097)[i], plain[i] / 4);
    }
  }
  config["rope_scaling"] = scaling("[1]", factors(1), "longrope");
  EXPECT_THAT(refusal(spec_of(config)),
              AllOf(HasSubstr("short_factor has 1 numbers"), HasSubstr(std::to_string(pairs))));
  config["rope_scaling"] = scaling(factors(1), factors(0), "longrope");
  EXPECT_THAT(refusal(spec_of(config)), HasSubstr("long_factor has 0"));
  config["rope_scaling"] = R"({"type": "dynamic", "factor": 2})";
  EXPECT_THAT(refusal(spec_of(config)), HasSubstr("dynamic"));
}

TEST(Families, Gemma3HasTwoRotationsAndCentredNorms) {
  Config config = family_config("gemma3_text");
  config["rope_theta"] = "1000000";
  config["rope_scaling"] = R"({"rope_type": "linear", "factor": 8})";
  config["sliding_window"] = "64";
  config["sliding_window_pattern"] = "4";
  config["query_pre_attn_scalar"] = "16";
  const auto spec = spec_of(config);
  ASSERT_TRUE(spec) << spec.error().message();
  ASSERT_EQ(spec->rope_tables.size(), 2u);
  EXPECT_DOUBLE_EQ(spec->rope_tables[0].inv_freq[0], 1.0 / 8) << "scaling is of the full layers";
  EXPECT_DOUBLE_EQ(spec->rope_tables[1].inv_freq[0], 1.0);
  EXPECT_EQ(attention(*spec, 3).rope_table, 0);
  EXPECT_EQ(attention(*spec, 0).rope_table, 1);
  EXPECT_TRUE(attention(*spec, 3).window.none());
  EXPECT_EQ(attention(*spec, 0).window, (Window{64, 0}));
  EXPECT_FLOAT_EQ(attention(*spec, 0).scale, 0.25f);
  EXPECT_FLOAT_EQ(spec->embedding_scale, std::sqrt(static_cast<float>(spec->hidden)));
  EXPECT_TRUE(spec->final_norm.centred && spec->layers[0].ffn_post_norm->centred);
  config["attn_logit_softcapping"] = "50";
  EXPECT_THAT(refusal(spec_of(config)), AllOf(HasSubstr("attn_logit_softcapping is 50"), HasSubstr("null")));
  config.erase("attn_logit_softcapping");
  config["use_bidirectional_attention"] = "true";
  EXPECT_THAT(refusal(spec_of(config)), HasSubstr("use_bidirectional_attention"));
}

TEST(Families, GraniteLayersAreOfTheKindsThatItsConfigurationLists) {
  Config config = family_config("granitemoehybrid");
  config["shared_intermediate_size"] = "32";
  config["logits_scaling"] = "8";
  config["layer_types"] = R"(["attention", "attention", "attention", "attention"])";
  const auto spec = spec_of(config);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_FLOAT_EQ(spec->logit_multiplier, 0.125f);
  EXPECT_FLOAT_EQ(attention(*spec, 0).scale, 1.0f) << "the multiplier is the scale itself";
  EXPECT_FALSE(attention(*spec, 0).rope_table.has_value());
  EXPECT_TRUE(std::holds_alternative<GatedFfnSpec>(*spec->layers[0].ffn));
  config["num_local_experts"] = "8";
  config["num_experts_per_tok"] = "9";
  EXPECT_THAT(refusal(spec_of(config)), AllOf(HasSubstr("9"), HasSubstr("8 experts")));
  config["num_experts_per_tok"] = "2";
  const auto with_experts = spec_of(config);
  ASSERT_TRUE(with_experts) << with_experts.error().message();
  const auto& experts = std::get<ExpertsSpec>(*with_experts->layers[0].ffn);
  EXPECT_EQ(experts.experts.size(), 8u);
  EXPECT_TRUE(std::holds_alternative<GatedFfnSpec>(experts.shared));
  config.erase("num_local_experts");
  config["layer_types"] = R"(["mamba", "attention", "attention", "sliding"])";
  EXPECT_THAT(refusal(spec_of(config)), AllOf(HasSubstr("layer_types[3]"), HasSubstr("sliding")));
  config["layer_types"] = R"(["mamba", "attention", "attention", "attention"])";
  config["mamba_n_heads"] = "7";
  EXPECT_THAT(refusal(spec_of(config)), HasSubstr("7 Mamba2 heads"));
  config["mamba_n_heads"] = "4";
  const auto hybrid = spec_of(config);
  ASSERT_TRUE(hybrid) << hybrid.error().message();
  EXPECT_TRUE(std::holds_alternative<Mamba2Spec>(hybrid->layers[0].mixers[0].kind));
  config.erase("layer_types");
  EXPECT_EQ(state_layers(*spec_of(config)).size(), 4u) << "without a list, all are recurrent";
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "logits_scaling"}) {
    Config odd = config;
    odd["layer_types"] = R"(["attention", "attention", "attention", "attention"])";
    odd[key] = "0";
    EXPECT_THAT(refusal(spec_of(odd)), HasSubstr(key));
  }
}

TEST(Families, GptOssWithoutExpertsIsRefused) {
  Config config = family_config("gpt_oss");
  config["num_local_experts"] = "0";
  EXPECT_THAT(refusal(spec_of(config)), HasSubstr("num_local_experts is 0"));
}

TEST(Families, MoreExpertsThanAnyModelHasAreRefusedBeforeTheyAreNamed) {
  Config config = family_config("qwen3_moe");
  config["num_hidden_layers"] = "4096";
  config["num_experts"] = "4096";
  EXPECT_THAT(refusal(spec_of(config)), HasSubstr("4096 experts in 4096 layers"));
}

TEST(Families, SparkOfGgufHasItsWindowsAndRotationsByLayer) {
  const auto spec_of_pattern = [](const std::vector<bool>& pattern) {
    return gguf_spec(
        {{"spark2_5.attention.sliding_window", 64},
         {"spark2_5.rope.dimension_count", 4},
         {"spark2_5.rope.dimension_count_swa", 16}},
        [&](GgufWriter& writer) {
          if (!pattern.empty()) writer.numbers("spark2_5.attention.sliding_window_pattern", pattern);
          writer.value<float>("spark2_5.rope.freq_base_swa", 1e4f);
        },
        "spark2_5");
  };
  const auto spec = spec_of_pattern({true, false, true, false});
  ASSERT_TRUE(spec) << spec.error().message();
  for (const size_t layer : {0u, 1u, 2u, 3u}) {
    const bool slides = layer % 2 == 0;
    EXPECT_EQ(attention(*spec, layer).window, slides ? (Window{64, 0}) : Window{});
    const auto table = static_cast<size_t>(*attention(*spec, layer).rope_table);
    EXPECT_EQ(spec->rope_tables[table].inv_freq.size(), slides ? 8u : 2u);
  }
  EXPECT_THAT(refusal(spec_of_pattern({true})),
              HasSubstr("sliding_window_pattern has 1 entries; 4, one a layer, are expected"));
  EXPECT_THAT(refusal(spec_of_pattern({})), HasSubstr("sliding_window_pattern is absent"));
}

TEST(Families, SlidingLayersOfGgufRotateAsManyChannelsAsItStates) {
  constexpr size_t kLocal = 1;  // the second table
  const auto spec_of_width = [](const std::string& architecture, int64_t width) {
    return gguf_spec(
        {{architecture + ".attention.sliding_window", 64},
         {architecture + ".attention.key_length", 96},
         {architecture + ".rope.dimension_count", 96},
         {architecture + ".rope.dimension_count_swa", width}},
        [&](GgufWriter& writer) {
          if (architecture != "spark2_5") return;
          writer.numbers("spark2_5.attention.sliding_window_pattern",
                         std::vector<bool>{true, false, true, false});
        },
        architecture);
  };
  for (const std::string architecture : {"spark2_5", "gemma3"}) {
    for (int64_t width = 2; width <= 96; width += 2) {
      const auto spec = spec_of_width(architecture, width);
      ASSERT_TRUE(spec) << spec.error().message();
      EXPECT_EQ(spec->rope_tables[kLocal].inv_freq.size(), static_cast<size_t>(width / 2));
    }
    for (const int64_t width : {0, 7, 98}) {
      EXPECT_THAT(
          refusal(spec_of_width(architecture, width)),
          HasSubstr(fmt::format("rope.dimension_count_swa: the rotary width is {}; an even number from "
                                "2 to the head width 96 is expected",
                                width)));
    }
  }
}

TEST(Families, MuseCountsItsFullLayersFromTheLast) {
  Config config = family_config("muse_glimmer_text");
  config["num_hidden_layers"] = "6";
  config["max_position_embeddings"] = "4096";
  const auto spec = spec_of(config);
  ASSERT_TRUE(spec) << spec.error().message();
  for (const int layer : {1, 5}) {
    EXPECT_TRUE(attention(*spec, layer).window.none()) << layer;
    EXPECT_FALSE(attention(*spec, layer).rope_table.has_value()) << layer;
  }
  EXPECT_EQ(attention(*spec, 0).window, (Window{2048, 0}));
  EXPECT_FALSE(spec->final_norm.centred);
  EXPECT_FLOAT_EQ(spec->layers[0].ffn_post_norm->eps, 1e-8f);
  config["layer_rope_theta"] = "[0, 1]";
  EXPECT_THAT(refusal(spec_of(config)), AllOf(HasSubstr("layer_rope_theta has 2"), HasSubstr("6")));
}

TEST(Families, SparkNeedsWhatItsFormSays) {
  Config config = family_config("spark2_5");
  config["rope_parameters"] =
      R"({"full_attention": {"rope_theta": 5000000, "partial_rotary_factor": 0.5}, "sliding_attention": {}})";
  config["sliding_window"] = "16";
  EXPECT_THAT(refusal(spec_of(config)), HasSubstr("layer_types is absent"));
  config["layer_types"] =
      R"(["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"])";
  const auto spec = spec_of(config);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(attention(*spec, 0).gate->weight.shape[0], attention(*spec, 0).heads);
  EXPECT_EQ(2 * spec->rope_tables[0].inv_freq.size(), spec->rope_tables[1].inv_freq.size());
  config["gate_attn_act_mode"] = "\"silu\"";
  EXPECT_THAT(refusal(spec_of(config)), AllOf(HasSubstr("gate_attn_act_mode"), HasSubstr("silu")));
}

TEST(Families, LayersOutOfAllReasonAreRefused) {
  for (const char* layers :
       {"0", "-1", "1000000000", "9223372036854775807", "1e30", "\"four\"", "4.5", "[4]", "true"}) {
    const auto spec = spec_with("num_hidden_layers", layers);
    ASSERT_FALSE(spec) << layers;
    EXPECT_THAT(spec.error().message(), AllOf(HasSubstr("num_hidden_layers"), HasSubstr("expected")));
  }
  for (int64_t layers : {int64_t{0}, int64_t{-1}, int64_t{1000000000}}) {
    EXPECT_THAT(refusal(gguf_spec({{"llama.block_count", layers}})),
                AllOf(HasSubstr("llama.block_count"), HasSubstr(std::to_string(layers))));
  }
}

TEST(Families, WidthsAreBoundedBeforeTheyAreMultiplied) {
  for (const char* key : {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                          "intermediate_size", "vocab_size", "max_position_embeddings"}) {
    for (const char* value : {"0", "-4", "2147483648000", "9223372036854775807"}) {
      EXPECT_THAT(refusal(spec_with(key, value)), AllOf(HasSubstr(key), HasSubstr(value))) << key;
    }
  }
  EXPECT_THAT(refusal(spec_with("head_dim", "1025")), HasSubstr("1025"));
  Config wide = small_config();
  wide["num_attention_heads"] = "1048576";
  wide["head_dim"] = "1024";
  EXPECT_THAT(refusal(spec_of(wide)), AllOf(HasSubstr("1048576"), HasSubstr("1024")));
  Config deep = small_config();
  deep["num_hidden_layers"] = "4096";
  deep["num_attention_heads"] = deep["num_key_value_heads"] = "1024";
  deep["head_dim"] = "1024";
  EXPECT_THAT(refusal(spec_of(deep)), AllOf(HasSubstr("4096 layers"), HasSubstr("1024 KV heads")));
}

TEST(Families, QueryHeadsMustBeAMultipleOfKvHeads) {
  EXPECT_THAT(refusal(spec_with("num_key_value_heads", "3")),
              AllOf(HasSubstr("4 query heads"), HasSubstr("3 KV heads")));
  EXPECT_THAT(refusal(spec_with("num_key_value_heads", "8")),
              AllOf(HasSubstr("4 query heads"), HasSubstr("8 KV heads")));
  EXPECT_THAT(refusal(gguf_spec({{"llama.attention.head_count_kv", 3}})), HasSubstr("3 KV heads"));
}

TEST(Families, HiddenSizeThatHeadsDoNotDivideIsRefusedWhereNoHeadWidthIsGiven) {
  Config config = small_config();
  config.erase("head_dim");
  config["hidden_size"] = "66";
  EXPECT_THAT(refusal(spec_of(config)), AllOf(HasSubstr("66"), HasSubstr("4 heads")));
}

TEST(Families, OddRotaryWidthIsRefused) {
  EXPECT_THAT(refusal(spec_with("head_dim", "15")), AllOf(HasSubstr("15"), HasSubstr("even")));
  Config partial = small_config();
  partial["partial_rotary_factor"] = "0.45";  // 7 of 16
  EXPECT_THAT(refusal(spec_of(partial)), AllOf(HasSubstr("7"), HasSubstr("even")));
  partial["partial_rotary_factor"] = "0";
  EXPECT_THAT(refusal(spec_of(partial)), HasSubstr("rotary width is 0"));
  partial["partial_rotary_factor"] = "0.5";
  EXPECT_EQ(spec_of(partial)->rope_tables[0].inv_freq.size(), 4u);
  for (int64_t rotary : {7, 0, 18, -2}) {
    EXPECT_THAT(refusal(gguf_spec({{"llama.rope.dimension_count", rotary}})),
                AllOf(HasSubstr("llama.rope.dimension_count"), HasSubstr(std::to_string(rotary))));
  }
}

TEST(Families, ThetaMustBePositive) {
  for (const char* theta : {"0", "-10000", "NaN", "1e300", "Infinity", "\"many\""}) {
    EXPECT_THAT(refusal(spec_with("rope_theta", theta)), HasSubstr("rope_theta")) << theta;
    EXPECT_THAT(refusal(spec_with("rope_parameters", fmt::format(R"({{"rope_theta": {}}})", theta))),
                HasSubstr("rope_parameters.rope_theta"));
  }
  EXPECT_THAT(
      refusal(gguf_spec({}, [](GgufWriter& writer) { writer.value<float>("llama.rope.freq_base", 0.0f); })),
      HasSubstr("llama.rope.freq_base"));
}

TEST(Families, RopeScalingIsFoldedIntoTheFrequencies) {
  const auto plain = spec_with("rope_theta", "10000");
  ASSERT_TRUE(plain);
  const std::vector<double>& inv_freq = plain->rope_tables[0].inv_freq;
  ASSERT_EQ(inv_freq.size(), 8u);
  for (size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(inv_freq[i], std::pow(10000.0, -static_cast<double>(i) / 8), 1e-12);
  const auto linear = spec_with("rope_scaling", R"({"type": "linear", "factor": 4.0})");
  ASSERT_TRUE(linear) << linear.error().message();
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(linear->rope_tables[0].inv_freq[i], inv_freq[i] / 4, 1e-12);
  const auto llama3 = spec_with("rope_scaling", R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
      "high_freq_factor": 4, "original_max_position_embeddings": 64})");
  ASSERT_TRUE(llama3) << llama3.error().message();
  for (size_t i = 0; i < 8; ++i) {
    const double turns = 64 * inv_freq[i] / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - 1) / 3, 0.0, 1.0);
    EXPECT_NEAR(llama3->rope_tables[0].inv_freq[i], inv_freq[i] * (kept + (1 - kept) / 8), 1e-12) << i;
  }
}

TEST(Families, UnknownRopeTypeAndBrokenScalingAreNamed) {
  EXPECT_THAT(refusal(spec_with("rope_scaling", R"({"rope_type": "spiral", "factor": 2})")),
              AllOf(HasSubstr("rope_type"), HasSubstr("spiral"), HasSubstr("llama3")));
  EXPECT_THAT(refusal(spec_with("rope_scaling", R"({"type": "linear"})")), HasSubstr("factor"));
  EXPECT_THAT(refusal(spec_with("rope_scaling", R"({"type": "linear", "factor": 0})")), HasSubstr("factor"));
  EXPECT_THAT(refusal(spec_with("rope_scaling", R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
      "high_freq_factor": 4})")),
              AllOf(HasSubstr("high_freq_factor"), HasSubstr("low_freq_factor")));
  EXPECT_THAT(refusal(spec_with("rope_scaling", "7")), HasSubstr("rope_scaling"));
  EXPECT_THAT(refusal(gguf_spec({}, [](GgufWriter& w) { w.string("llama.rope.scaling.type", "spiral"); })),
              HasSubstr("spiral"));
}

TEST(Families, MissingKeysAreNamed) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"}) {
    EXPECT_THAT(refusal(spec_with(key, "")), AllOf(HasSubstr(key), HasSubstr("expected")));
    EXPECT_THAT(refusal(spec_with(key, "null")), HasSubstr(key));
  }
  const std::string bytes = small_gguf().bytes();
  const auto gguf = Gguf::parse(as_bytes(bytes));
  EXPECT_THAT(refusal(make_model_spec(CheckpointFormat::kGguf, gguf->metadata())),
              HasSubstr("llama.embedding_length"));
}

TEST(Families, UnknownModelTypeListsThoseThereAre) {
  EXPECT_THAT(refusal(spec_with("model_type", "\"parrot\"")),
              AllOf(HasSubstr("\"parrot\""), HasSubstr("llama, mistral, qwen2, qwen3")));
  EXPECT_THAT(refusal(spec_with("model_type", "")), HasSubstr("llama"));
  EXPECT_THAT(refusal(spec_with("model_type", "7")), HasSubstr("model_type"));
  Config by_architecture = small_config("smol");
  by_architecture["architectures"] = R"(["LlamaForCausalLM"])";
  EXPECT_EQ(refusal(spec_of(by_architecture)), "accepted");
  by_architecture["architectures"] = "[]";
  EXPECT_THAT(refusal(spec_of(by_architecture)), HasSubstr("smol"));
  by_architecture["architectures"] = "3";
  EXPECT_THAT(refusal(spec_of(by_architecture)), HasSubstr("architectures"));
  GgufWriter writer;
  writer.string("general.architecture", "parrot");
  const std::string bytes = writer.bytes();
  EXPECT_THAT(refusal(make_model_spec(CheckpointFormat::kGguf, Gguf::parse(as_bytes(bytes))->metadata())),
              HasSubstr("parrot"));
  EXPECT_THAT(refusal(make_model_spec(CheckpointFormat::kGguf, Attributes())),
              HasSubstr("general.architecture"));
}

TEST(Families, UnknownActivationIsNamed) {
  EXPECT_THAT(refusal(spec_with("hidden_act", "\"relu6\"")),
              AllOf(HasSubstr("hidden_act"), HasSubstr("relu6"), HasSubstr("silu")));
  EXPECT_EQ(refusal(spec_with("hidden_act", "\"gelu_pytorch_tanh\"")), "accepted");
}

TEST(Families, NormEpsilonThatIsNoNumberIsRefused) {
  for (const char* eps : {"NaN", "-1", "2", "\"small\""})
    EXPECT_THAT(refusal(spec_with("rms_norm_eps", eps)), HasSubstr("rms_norm_eps"));
}

// A folder with this configuration and an embedding of `rows`.
std::string embedding_folder(const TempDir& folder, int64_t rows) {
  std::filesystem::copy_file(test_data("fixtures/llama/config.json"), folder.file("config.json"),
                             std::filesystem::copy_options::overwrite_existing);
  SafetensorsWriter writer;
  const std::vector<float> values(static_cast<size_t>(rows * 64), 0.5f);
  writer.floats("model.embed_tokens.weight", DType::kF16, {rows, 64}, values);
  writer.write(folder.file("model.safetensors"));
  return folder.path();
}

TEST(Families, VocabularyThatContradictsTheEmbeddingNamesBothSides) {
  TempDir folder;
  const auto checkpoint = Checkpoint::open(embedding_folder(folder, 250));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  const auto spec = make_model_spec(*checkpoint);
  ASSERT_TRUE(spec) << spec.error().message();
  const auto tensor = checkpoint->require_tensor(spec->embedding.name, spec->embedding.shape);
  ASSERT_FALSE(tensor);
  EXPECT_THAT(tensor.error().message(),
              AllOf(HasSubstr("[250, 64]"), HasSubstr("[256, 64]"), HasSubstr("config.json")));
}

TEST(Families, HeadThatIsNotThereIsTiedWhateverTheFlagSays) {
  TempDir folder;
  const auto checkpoint = Checkpoint::open(embedding_folder(folder, 256));
  const auto spec = make_model_spec(*checkpoint);
  ASSERT_TRUE(spec);
  EXPECT_FALSE(spec->head) << "tie_word_embeddings is false, and there is no lm_head";
  EXPECT_EQ(spec->kv_dtype, DType::kF16);
}

TEST(Families, FixturesKeepTheirOwn16BitType) {
  for (const char* name : {"llama", "llama3_scaled", "mistral_swa", "qwen2", "qwen3"}) {
    const auto checkpoint = Checkpoint::open(test_data(std::string("fixtures/") + name));
    ASSERT_TRUE(checkpoint);
    const auto spec = make_model_spec(*checkpoint);
    ASSERT_TRUE(spec) << name << ": " << spec.error().message();
    EXPECT_EQ(spec->kv_dtype, DType::kBF16);
    for (const LayerSpec& layer : spec->layers) {
      const TensorRef& q = std::get<AttentionSpec>(layer.mixers[0].kind).q.weight;
      EXPECT_TRUE(checkpoint->require_tensor(q.name, q.shape)) << name;
    }
  }
}

TEST(TensorNames, AreThoseOfTheFormat) {
  EXPECT_EQ(tensor_name(CheckpointFormat::kSafetensors, TensorRole::kDown, 12),
            "model.layers.12.mlp.down_proj");
  EXPECT_EQ(tensor_name(CheckpointFormat::kGguf, TensorRole::kDown, 12), "blk.12.ffn_down");
  EXPECT_EQ(tensor_name(CheckpointFormat::kGguf, TensorRole::kFinalNorm), "output_norm");
}

// A configuration that the family takes, with four layers.
Config right_config(const std::string& family) {
  Config config = small_config(family);
  if (family == "spark2_5") {
    config["rope_parameters"] = R"({"full_attention": {}, "sliding_attention": {}})";
    config["sliding_window"] = "16";
    config["layer_types"] =
        R"(["sliding_attention", "full_attention", "sliding_attention", "full_attention"])";
  }
  if (family == "granitemoehybrid") {
    config["shared_intermediate_size"] = "32";
    config["mamba_n_heads"] = "4";
    config["layer_types"] = R"(["mamba", "attention", "attention", "attention"])";
  }
  if (family == "nemotron_h") config["hybrid_override_pattern"] = "\"M*-M\"";
  return config;
}

struct KeyCase {
  const char* family;
  const char* key;
  const char* value;
  const char* why = nullptr;  // none: accepted
};

void expect_cases(const std::vector<KeyCase>& cases) {
  for (const auto& [family, key, value, why] : cases) {
    EXPECT_EQ(refusal(spec_of(right_config(family))), "accepted") << family;
    EXPECT_EQ(refusal(spec_with(key, value, right_config(family))), why ? why : "accepted")
        << family << ": " << key << ": " << value;
  }
}

TEST(Families, KeysThatWouldBeIgnoredAreRefused) {
  const char* silu = "hidden_act is \"gelu\"; silu, which recurrent layers have, is expected";
  const char* attention_bias = "attention_bias is true; false is expected";
  expect_cases({
      {"nemotron_h", "mlp_hidden_act", "\"silu\"", "mlp_hidden_act is \"silu\"; relu2 is expected"},
      {"nemotron_h", "mlp_hidden_act", "\"relu2\""},
      {"nemotron_h", "mamba_hidden_act", "\"gelu\"",
       "mamba_hidden_act is \"gelu\"; silu, which recurrent layers have, is expected"},
      {"nemotron_h", "mamba_hidden_act", "\"silu\""},
      {"mamba2", "hidden_act", "\"gelu\"", silu},
      {"mamba2", "hidden_act", "\"swish\""},
      {"jamba", "hidden_act", "\"gelu\"", silu},
      {"falcon_h1", "hidden_act", "\"gelu\"", silu},
      {"granitemoehybrid", "hidden_act", "\"gelu\"", silu},
      {"qwen3_next", "hidden_act", "\"gelu\"", silu},
      {"qwen3_5", "hidden_act", "\"gelu\"", silu},
      {"granitemoehybrid", "position_embedding_type", "\"alibi\"",
       "position_embedding_type is \"alibi\"; rope or nope is expected"},
      {"granitemoehybrid", "position_embedding_type", "\"rope\""},
      {"granitemoehybrid", "position_embedding_type", "\"nope\""},
      {"granitemoehybrid", "position_embedding_type", "null"},
      {"gemma3_text", "attention_bias", "true", attention_bias},
      {"gemma3_text", "attention_bias", "false"},
      {"spark2_5", "attention_bias", "true", attention_bias},
      {"spark2_5", "mlp_bias", "true", "mlp_bias is true; false is expected"},
      {"spark2_5", "mlp_bias", "false"},
      {"muse_glimmer_text", "attention_bias", "true", attention_bias},
      {"muse_glimmer_text", "layer_rope_theta", "[500000, 500000, 500000.0, 0]"},
      {"muse_glimmer_text", "layer_rope_theta", "[500000, 10000, 500000, 0]",
       "layer_rope_theta[1] is 10000; 0 or rope_theta, 500000, is expected"},
      {"muse_glimmer_text", "layer_rope_theta", "[500000, 500000, 500000, -1]",
       "layer_rope_theta[3] is -1; 0 or rope_theta, 500000, is expected"},
      {"jamba", "mamba_dt_rank", "\"auto\""},
      {"jamba", "mamba_dt_rank", "\"many\"",
       "mamba_dt_rank is \"many\"; an integer from 1 to 1048576 is expected"},
  });
  Config granite = right_config("granitemoehybrid");
  granite["layer_types"] = R"(["attention", "attention", "attention", "attention"])";
  EXPECT_EQ(refusal(spec_with("hidden_act", "\"gelu\"", granite)), "accepted") << "no layer is recurrent";
  Config muse = right_config("muse_glimmer_text");
  muse["rope_parameters"] = R"({"rope_theta": 20000})";
  muse["layer_rope_theta"] = "[0, 20000, 20000, 20000]";
  const auto spec = spec_of(muse);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_FALSE(attention(*spec, 0).rope_table.has_value());
  EXPECT_TRUE(attention(*spec, 3).rope_table.has_value());
}

TEST(Families, NumbersOfNemotronAreNoListsInItsConfiguration) {
  for (const char* key : {"hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads",
                          "head_dim", "intermediate_size"}) {
    EXPECT_EQ(refusal(spec_with(key, "[64, 64, 64, 64]", right_config("nemotron_h"))),
              fmt::format("{} is an array of 4; an integer from 1 to 1048576 is expected", key));
  }
}

TEST(Families, BlocksOfNemotronAreAsManyAsItsConfigurationStates) {
  expect_cases({
      {"nemotron_h", "hybrid_override_pattern", "\"M*\"",
       "hybrid_override_pattern has 2 blocks, and num_hidden_layers is 4; as many are expected"},
      {"nemotron_h", "layers_block_type", R"(["mamba", "mlp"])",
       "layers_block_type has 2 blocks, and num_hidden_layers is 4; as many are expected"},
      {"nemotron_h", "layers_block_type", R"(["linear_attention", "mlp", "full_attention", "mlp"])"},
      {"nemotron_h", "num_hidden_layers", ""},
      {"nemotron_h", "num_hidden_layers", "null"},
      {"nemotron_h", "num_hidden_layers", "52",
       "hybrid_override_pattern has 4 blocks, and num_hidden_layers is 52; as many are expected"},
  });
}

// Metadata of four blocks with `list` under a key.
Result<ModelSpec> gguf_with_list(const std::string& architecture, const std::string& key,
                                 const std::vector<uint32_t>& list) {
  const std::map<std::string, uint32_t> numbers = {
      {"block_count", 4},          {"embedding_length", 64},       {"feed_forward_length", 128},
      {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"attention.key_length", 16}};
  GgufWriter writer = small_gguf(architecture);
  for (const auto& [name, value] : numbers)
    if (name != key) writer.value<uint32_t>(architecture + "." + name, value);
  writer.numbers<uint32_t>(architecture + "." + key, list);
  const std::string bytes = writer.bytes();
  const auto gguf = Gguf::parse(as_bytes(bytes));
  EXPECT_TRUE(gguf) << gguf.error().message();
  return make_model_spec(CheckpointFormat::kGguf, gguf->metadata());
}

TEST(Families, ListsByLayerOfGgufAreAsLongAsTheModelIsDeep) {
  const std::pair<const char*, const char*> lists[] = {
      {"nemotron_h", "attention.head_count"}, {"nemotron_h", "attention.head_count_kv"},
      {"nemotron_h", "feed_forward_length"},  {"granite", "attention.head_count_kv"},
      {"llama", "attention.head_count_kv"},   {"llama", "feed_forward_length"}};
  for (const auto& [architecture, key] : lists) {
    EXPECT_EQ(refusal(gguf_with_list(architecture, key, {4, 4, 4, 4})), "accepted") << architecture << key;
    for (const size_t length : {0u, 3u, 8u}) {
      EXPECT_EQ(refusal(gguf_with_list(architecture, key, std::vector<uint32_t>(length, 4))),
                fmt::format("{}.{} has {} entries; 4, one a layer, are expected", architecture, key, length));
    }
  }
  EXPECT_EQ(refusal(gguf_with_list("nemotron_h", "attention.head_count", {4, 1u << 21, 4, 4})),
            "nemotron_h.attention.head_count has 2097152; 0 to 1048576 is expected");
}

// Metadata of experts that are routed by the function of this number, and the tensor that shows a block of
// them.
std::string gating_refusal(const std::string& architecture, int64_t function) {
  const std::map<std::string, uint32_t> numbers = {
      {"block_count", 4},          {"embedding_length", 64},       {"feed_forward_length", 128},
      {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"attention.key_length", 16},
      {"expert_count", 4},         {"expert_used_count", 2},       {"expert_feed_forward_length", 32},
      {"ssm.inner_size", 128}};
  GgufWriter writer = small_gguf(architecture);
  for (const auto& [name, value] : numbers) writer.value<uint32_t>(architecture + "." + name, value);
  if (function >= 0)
    writer.value<uint32_t>(architecture + ".expert_gating_func", static_cast<uint32_t>(function));
  writer.floats("blk.0.ffn_gate_inp.weight", DType::kF32, {4, 64}, std::vector<float>(256));
  const TempDir folder;
  writer.write(folder.file("model.gguf"));
  const auto checkpoint = Checkpoint::open(folder.file("model.gguf"));
  return checkpoint ? refusal(make_model_spec(*checkpoint)) : checkpoint.error().message();
}

TEST(Families, ExpertsOfGgufAreRoutedByTheFunctionThatTheFileStates) {
  const std::string softmax = "1 (softmax)", sigmoid = "2 (sigmoid)", chosen = "3 (softmax of the chosen)";
  const struct {
    const char* architecture;
    std::vector<int64_t> known;
    std::string expected;
  } cases[] = {{"qwen3moe", {1, 3}, softmax + " or " + chosen},
               {"granitemoe", {1, 3}, softmax + " or " + chosen},
               {"jamba", {1}, softmax},
               {"gpt-oss", {3}, chosen},
               {"nemotron_h_moe", {2}, sigmoid}};
  const std::vector<std::string> names = {"0", softmax, sigmoid, chosen, "4"};
  for (const auto& [architecture, known, expected] : cases) {
    EXPECT_EQ(gating_refusal(architecture, -1), "accepted") << architecture;
    for (size_t i = 0; i < names.size(); ++i) {
      const bool is_known = std::find(known.begin(), known.end(), static_cast<int64_t>(i)) != known.end();
      const std::string why =
          fmt::format("{}.expert_gating_func is {}; {} is expected", architecture, names[i], expected);
      EXPECT_EQ(gating_refusal(architecture, static_cast<int64_t>(i)), is_known ? "accepted" : why);
    }
  }
}

TEST(Families, TextOfAConfigurationIsPrintableInItsRefusal) {
  const struct {
    KeyCase in;
    const char* shown;
  } cases[] = {
      {{"llama", "model_type", R"("a\u0007b")"}, R"(model_type "a\x07b")"},
      {{"granitemoehybrid", "position_embedding_type", R"("\u001b[2J")"}, R"(is "\x1b[2J")"},
      {{"granitemoehybrid", "layer_types", R"(["mamba", "\n", "mamba", "mamba"])"}, R"([1] is "\x0a")"},
      {{"qwen3_next", "layer_types", R"(["\t", "", "", ""])"}, R"([0] is "\x09")"},
      {{"spark2_5", "gate_attn_act_mode", R"("\r")"}, R"(is "\x0d")"},
      {{"nemotron_h", "layers_block_type", R"(["mamba", "m\u0000p", "mlp", "mlp"])"},
       R"(block 1 is "m\x00p")"},
      {{"nemotron_h", "hybrid_override_pattern", R"("M\u0007*-")"}, R"(block 1 is "\x07")"},
      {{"nemotron_h", "hybrid_override_pattern", "\"M*\xc3\xa9-\""}, "block 2 is \"\xc3\xa9\""},
      {{"nemotron_h", "hybrid_override_pattern", "\"M*-\xf0\x9f\xa7\x88\""},
       "block 3 is \"\xf0\x9f\xa7\x88\""},
  };
  for (const auto& [in, shown] : cases)
    EXPECT_THAT(refusal(spec_with(in.key, in.value, right_config(in.family))), HasSubstr(shown));
  Config parrot = small_config("parrot");
  parrot["architectures"] = R"(["Parrot\u0008"])";
  EXPECT_THAT(refusal(spec_of(parrot)), HasSubstr(R"(architecture "Parrot\x08")"));
  const std::string bytes = GgufWriter().string("general.architecture", "par\xffrot\n").bytes();
  EXPECT_THAT(refusal(make_model_spec(CheckpointFormat::kGguf, Gguf::parse(as_bytes(bytes))->metadata())),
              HasSubstr(R"("par\xffrot\x0a")"));
}

TEST(MlxConfig, WhatStandsThereIsAQuantisationOrRefused) {
  const auto reading = [](const std::string& config) -> std::string {
    const auto attributes = Attributes::parse_json(config, "config.json");
    EXPECT_TRUE(attributes) << config;
    const auto mlx = MlxConfig::read(*attributes);
    if (!mlx) return mlx.error().message();
    return *mlx ? fmt::format("{} modules", (*mlx)->modules().size()) : "nothing";
  };
  const std::pair<const char*, const char*> modules[] = {
      {"false", "1 modules"},
      {"true", "1 modules"},
      {"{}", "1 modules"},
      {"null", "0 modules"},
      {"0", "quantization.X is 0; an object, true or false is expected"},
      {"\"x\"", "quantization.X is \"x\"; an object, true or false is expected"},
      {"[]", "quantization.X is an array of 0; an object, true or false is expected"}};
  for (const auto& [value, result] : modules) {
    EXPECT_EQ(reading(fmt::format(R"({{"quantization": {{"bits": 4, "group_size": 32, "X": {}}}}})", value)),
              result);
  }
  const std::string no_bits = "quantization.bits is missing from config.json; an integer is expected";
  const std::string no_group = "quantization.group_size is missing from config.json; an integer is expected";
  EXPECT_EQ(reading(R"({"quantization": {"group_size": 32}})"), no_bits);
  EXPECT_EQ(reading(R"({"quantization": {}})"), no_bits);
  EXPECT_EQ(reading(R"({"quantization": {"bits": 4}})"), no_group);
  EXPECT_EQ(reading(R"({"quantization": {"bits": null, "group_size": 32}})"),
            "quantization.bits is null; an integer is expected");
  EXPECT_EQ(reading(R"({"quantization_config": {"bits": 4}})"),
            "quantization_config.group_size is missing from config.json; an integer is expected");
  EXPECT_EQ(reading(R"({"quantization_config": {"load_in_8bit": true}})"), "nothing");
  EXPECT_EQ(reading(R"({"quantization": {"quant_method": "awq", "bits": 4}})"), "nothing");
}

}  // namespace
}  // namespace butter
