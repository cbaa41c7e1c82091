// Checkpoint: an opened model file or folder: its configuration, its tensors, the text files beside it.
//
// The weights are memory-mapped and stay untouched until someone reads them, so opening costs the header
// only. Copies share the mapping, which lives as long as any of them; views of tensors must not outlive
// it. Const methods may be called from any thread. Nothing is dequantised here: see core/dequantise.h
// for what the bytes mean.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/attributes.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/tensor_table.h"
#include "checkpoint/weight_file.h"
#include "core/status.h"

namespace butter {

enum class CheckpointFormat { kGguf, kSafetensors };

const char* checkpoint_format_name(CheckpointFormat format);  // "gguf", "safetensors"

class Checkpoint {
 public:
  // `path` is a GGUF file, the first one where a model was split; or a safetensors file, or the index of a
  // sharded one, with config.json beside it; or a folder with config.json and model.safetensors or its index
  // (Hugging Face), or with one GGUF model. A file's kind is told by its bytes, an index by its name. Call
  // install_truncation_guard() first, once in a process, if other programs may touch the files.
  static Result<Checkpoint> open(const std::string& path);

  CheckpointFormat format() const { return format_; }
  // The file with the weights; the first of a split model, the index of a sharded one.
  const std::string& weights_path() const { return weights_path_; }
  // GGUF metadata, or config.json.
  const Attributes& config() const { return config_; }

  // In file order. What a file stores in several tensors is one here (joined_tensors.h).
  std::span<const TensorEntry> tensors() const { return tensors_.entries(); }
  // Whether there is one of this name, readable or not.
  bool has_tensor(std::string_view name) const { return tensors_.find(name) != nullptr; }
  // The tensor's view, whatever its type, or null if it is missing or cannot be read: for listings and
  // questions about what a file looks like. A weight that a file may lack is an optional_tensor. Lives
  // with the Checkpoint and its copies.
  const TensorView* find_tensor(std::string_view name) const;
  // A weight that must be there, readable, of a floating-point or quantised type, and of this shape. The
  // sentence otherwise: "model.norm.weight is [576]; config.json implies [64]".
  Result<TensorView> require_tensor(std::string_view name, const Shape& expected) const;

  // The same for a weight that may be missing (a bias, a head of its own): nothing then. One that is
  // there and wrong is an error all the same.
  Result<std::optional<TensorView>> optional_tensor(std::string_view name, const Shape& expected) const;

  // The text of a file beside the weights (tokenizer.json, generation_config.json, chat_template.jinja),
  // or nothing if there is none. `name` is a plain file name. Larger than 256 MiB is an error.
  Result<std::optional<std::string>> sidecar(const std::string& name) const;

  // What is odd about the files and does not stand in the way, a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

  // Size of the files with the weights.
  uint64_t file_bytes() const;
  // For a tensor that was repacked: gives the memory of its pages back (MappedFile::drop_pages).
  void release_pages(const TensorView& tensor) const;
  // For a tensor that is read next (MappedFile::prefetch).
  void prefetch(const TensorView& tensor) const;
  // Whether a file shrank under its mapping (MappedFile::damaged): what was computed since is void.
  bool damaged() const;
  // The same and more, as a Status with its sentence (MappedFile::check_undamaged): to be asked once the
  // weights are loaded, and where any_mapping_damaged() says so.
  Status check_undamaged() const;

 private:
  Checkpoint() = default;
  static Result<Checkpoint> open_file(const std::string& path);
  static Result<Checkpoint> open_gguf(const std::shared_ptr<MappedFile>& file);
  static Result<Checkpoint> open_safetensors(const std::string& path, std::vector<WeightFile> files);
  // Makes the files' tensors the checkpoint's.
  Status take(std::vector<WeightFile> files);
  // The file that these bytes of a tensor lie in; null for those of something else.
  const MappedFile* file_of(std::span<const std::byte> part) const;

  CheckpointFormat format_ = CheckpointFormat::kGguf;
  std::string weights_path_;
  std::vector<WeightFile> files_;
  Attributes config_;
  TensorTable tensors_;
  std::vector<std::string> notes_;
};

}  // namespace butter
