#include "checkpoint/joined_tensors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "checkpoint/mlx_config.h"
#include "checkpoint/printable.h"

namespace butter {
namespace {

constexpr std::string_view kWeight = ".weight", kScales = ".scales", kBiases = ".biases";
constexpr std::string_view kBlocks = "_blocks", kBlockScales = "_scales";
constexpr int kBlockElements = 32, kBlockBytes = 16;

std::string_view without(std::string_view name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

int64_t last(const Shape& shape) {
  return shape[shape.rank() - 1];
}

Shape without_last(const Shape& shape) {
  Shape other;
  for (int i = 0; i + 1 < shape.rank(); ++i) other.append(shape[i]);
  return other;
}

// The shape with another last dimension.
Shape with_last(const Shape& shape, int64_t columns) {
  Shape other = without_last(shape);
  other.append(columns);
  return other;
}

class Joiner {
 public:
  Joiner(const TensorTable& table, const std::optional<MlxConfig>& mlx) : table_(table), mlx_(mlx) {}

  // The entries there are afterwards. Those of parts that were joined are gone.
  std::vector<TensorEntry> join() {
    std::vector<TensorEntry> entries;
    for (const TensorEntry& entry : table_.entries()) entries.push_back(joined(entry));
    std::erase_if(entries, [this](const TensorEntry& entry) { return parts_.contains(entry.name); });
    return entries;
  }

 private:
  TensorEntry joined(const TensorEntry& entry) {
    const bool is_words = entry.view.dtype == DType::kU32 && !entry.view.empty();
    if (is_words && entry.name.ends_with(kWeight)) return join_mlx(entry);
    const bool is_bytes = entry.view.dtype == DType::kU8 && !entry.view.empty();
    if (is_bytes && entry.name.ends_with(kBlocks)) return join_blocks(entry);
    return entry;
  }

  // A part that there may be; it is no tensor of its own any more.
  const TensorEntry* part(const std::string& name) {
    const TensorEntry* found = table_.find(name);
    if (found != nullptr) parts_.insert(found->name);
    return found;
  }

  TensorEntry join_mlx(const TensorEntry& words) {
    const std::string module(without(words.name, kWeight));
    const TensorEntry* scales = part(module + std::string(kScales));
    const TensorEntry* biases = part(module + std::string(kBiases));
    TensorEntry whole = words;
    whole.view = {};
    if (scales != nullptr) whole.bytes += scales->bytes;
    if (biases != nullptr) whole.bytes += biases->bytes;
    return with_view(std::move(whole), mlx_view(module, words.view, scales, biases));
  }

  static TensorEntry with_view(TensorEntry whole, const Result<TensorView>& view) {
    if (view) {
      whole.view = *view;
    } else {
      whole.unreadable = view.error().message();
    }
    return whole;
  }

  // An error is what stands behind the tensor's name.
  Result<TensorView> mlx_view(const std::string& module, const TensorView& words, const TensorEntry* scales,
                              const TensorEntry* biases) const {
    constexpr StatusCode kBad = StatusCode::kCorrupt;
    if (scales == nullptr) {
      return fail(kBad, "is stored as U32, the words of MLX's codes, and {}{} is missing", printable(module),
                  kScales);
    }
    if (!mlx_)
      return fail(kBad, "is stored as U32 with scales beside it; config.json has no quantization to say how");
    const std::optional<MlxSetting> setting = mlx_->setting(module);
    if (!setting) {
      return fail(kBad, "is stored as U32 with scales beside it; config.json says that it is not quantised");
    }
    if (setting->exponents != (biases == nullptr)) {
      return fail(kBad, "has {} beside its scales; config.json says mode {}, which has {}",
                  biases ? "biases" : "no biases", setting->exponents ? "mxfp4" : "affine",
                  setting->exponents ? "none" : "such");
    }
    for (const TensorEntry* entry : {scales, biases}) {
      if (entry != nullptr) BUTTER_TRY(check_scales(*entry, *scales, words, *setting));
    }
    return make_view(words, *setting, scales->view, biases);
  }

  static Status check_scales(const TensorEntry& entry, const TensorEntry& scales, const TensorView& words,
                             const MlxSetting& setting) {
    if (!entry.unreadable.empty())
      return fail(StatusCode::kUnsupported, "has {}, which {}", printable(entry.name), entry.unreadable);
    const DType dtype = entry.view.dtype;
    const bool fits = setting.exponents
                          ? dtype == DType::kU8
                          : dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32;
    if (!fits || dtype != scales.view.dtype) {
      return fail(StatusCode::kCorrupt, "has {} stored as {}; {} is expected", printable(entry.name),
                  dtype_name(dtype),
                  setting.exponents ? "U8"
                  : fits            ? dtype_name(scales.view.dtype)
                                    : "F16, BF16 or F32");
    }
    const Shape& shape = entry.view.shape;
    if (words.shape.rank() < 2 || shape.rank() != words.shape.rank() ||
        !(with_last(shape, 1) == with_last(words.shape, 1)) || last(shape) != last(scales.view.shape)) {
      return fail(StatusCode::kCorrupt, "has words {} and {} {}; scales and biases for each row are expected",
                  words.shape.to_string(), printable(entry.name), shape.to_string());
    }
    return {};
  }

  static Result<TensorView> make_view(const TensorView& words, const MlxSetting& setting,
                                      const TensorView& scales, const TensorEntry* biases) {
    const int64_t word_bits = 32 * last(words.shape), groups = last(scales.shape);
    const int64_t columns = groups * setting.group;
    if (word_bits != columns * setting.bits) {
      const std::string found =
          word_bits % columns == 0
              ? fmt::format("{} bits in groups of {}", word_bits / columns, setting.group)
              : fmt::format("no whole number of bits in groups of {}", setting.group);
      return fail(StatusCode::kCorrupt,
                  "has {} words and {} scales a row, which is {}; config.json says {} bits",
                  last(words.shape), groups, found, setting.bits);
    }
    TensorView view;
    view.dtype = DType::kMLX;
    view.shape = with_last(words.shape, columns);
    view.data = words.data;
    view.mlx = {setting.bits, setting.group, scales.dtype, scales.data, biases ? biases->view.data : nullptr};
    return view;
  }

  TensorEntry join_blocks(const TensorEntry& blocks) {
    const std::string_view name = without(blocks.name, kBlocks);
    if (table_.find(name) != nullptr) return blocks;
    const TensorEntry* scales = part(std::string(name) + std::string(kBlockScales));
    TensorEntry whole = blocks;
    whole.name = name;
    whole.view = {};
    if (scales != nullptr) whole.bytes += scales->bytes;
    return with_view(std::move(whole), blocks_view(blocks.view, scales));
  }

  // Low nibbles come first in the blocks, as in MLX's words. An error is what stands behind the tensor's
  // name.
  static Result<TensorView> blocks_view(const TensorView& blocks, const TensorEntry* scales) {
    const Shape& shape = blocks.shape;
    if (shape.rank() < 3 || last(shape) != kBlockBytes) {
      return fail(StatusCode::kCorrupt, "has blocks {}; [..., rows, blocks, {}] is expected",
                  shape.to_string(), kBlockBytes);
    }
    const Shape per_block = without_last(shape);
    if (scales == nullptr)
      return fail(StatusCode::kCorrupt, "is stored as blocks of FP4, and their {} are missing", kBlockScales);
    if (scales->view.empty() || scales->view.dtype != DType::kU8 || !(scales->view.shape == per_block)) {
      const std::string found = scales->view.empty() ? "which " + scales->unreadable
                                                     : fmt::format("{} {}", dtype_name(scales->view.dtype),
                                                                   scales->view.shape.to_string());
      return fail(StatusCode::kCorrupt, "has {}, {}; U8 {} is expected", printable(scales->name), found,
                  per_block.to_string());
    }
    TensorView view;
    view.dtype = DType::kMLX;
    view.shape = with_last(per_block, last(per_block) * kBlockElements);
    view.data = blocks.data;
    view.mlx = {4, kBlockElements, DType::kU8, scales->view.data, nullptr};
    return view;
  }

  const TensorTable& table_;
  const std::optional<MlxConfig>& mlx_;
  std::set<std::string_view> parts_;
};

// Modules that config.json speaks of and the files do not have.
void note_absent_modules(const MlxConfig& mlx, const TensorTable& table, std::vector<std::string>& notes) {
  std::string first;
  int absent = 0;
  for (const auto& [module, setting] : mlx.modules()) {
    if (!setting || table.find(module + std::string(kWeight)) != nullptr) continue;
    if (absent++ == 0) first = printable(module);
  }
  if (absent == 0) return;
  notes.push_back(fmt::format("config.json has a quantization for {}{}, which {} not in the files", first,
                              absent > 1 ? fmt::format(" and {} more", absent - 1) : "",
                              absent > 1 ? "are" : "is"));
}

}  // namespace

Result<TensorTable> join_tensors(const Attributes& config, const TensorTable& table,
                                 std::vector<std::string>& notes) {
  BUTTER_ASSIGN(const std::optional<MlxConfig> mlx, MlxConfig::read(config));
  BUTTER_ASSIGN(TensorTable joined, TensorTable::of(Joiner(table, mlx).join()));
  if (mlx) note_absent_modules(*mlx, joined, notes);
  return joined;
}

}  // namespace butter
