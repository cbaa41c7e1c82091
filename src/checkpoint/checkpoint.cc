#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_split.h"
#include "checkpoint/joined_tensors.h"
#include "checkpoint/printable.h"
#include "checkpoint/regular_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_index.h"
#include "checkpoint/unused_tensors.h"

namespace butter {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxSidecarBytes = uint64_t{256} << 20;
constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kShardIndex = "model.safetensors.index.json";

std::string beside(const std::string& file, const std::string& name) {
  return (fs::path(file).parent_path() / name).string();
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The files of a folder that end in .gguf, sorted.
Result<std::vector<std::string>> gguf_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error))
    if (at->path().extension() == ".gguf") found.push_back(at->path().string());
  if (error) return fail(StatusCode::kIo, "{} cannot be listed: {}", printable(folder, 500), error.message());
  std::sort(found.begin(), found.end());
  return found;
}

// Whether the files, sorted, are parts of one split model.
bool are_one_split(const std::vector<std::string>& ggufs) {
  const auto first = ggufs.empty() ? std::nullopt : parse_split_name(ggufs[0]);
  return first && std::all_of(ggufs.begin(), ggufs.end(), [&](const std::string& path) {
           const auto name = parse_split_name(path);
           return name && name->stem == first->stem && name->parts == first->parts;
         });
}

// The one file in a folder that holds the weights, or by which they are found.
Result<std::string> weights_in(const std::string& folder) {
  BUTTER_ASSIGN(const std::vector<std::string> ggufs, gguf_files(folder));
  for (const char* name : {kWeights, kShardIndex}) {
    const fs::path weights = fs::path(folder) / name;
    if (!is_there(weights)) continue;
    if (ggufs.empty()) return weights.string();
    return fail(StatusCode::kInvalidArgument, "{} holds both {} and {}; name one of the files",
                printable(folder, 500), name, printable(fs::path(ggufs[0]).filename().string()));
  }
  if (ggufs.size() == 1 || are_one_split(ggufs)) return ggufs[0];
  if (ggufs.size() > 1) {
    return fail(StatusCode::kInvalidArgument, "{} holds {} GGUF files ({}, {}{}); name one of them",
                printable(folder, 500), ggufs.size(), printable(fs::path(ggufs[0]).filename().string()),
                printable(fs::path(ggufs[1]).filename().string()), ggufs.size() > 2 ? ", ..." : "");
  }
  return fail(StatusCode::kNotFound, "the folder {} holds neither {} nor {} nor a GGUF file",
              printable(folder, 500), kWeights, kShardIndex);
}

// A safetensors file begins with the length of its header and an opening brace.
bool looks_like_safetensors(std::span<const std::byte> file) {
  return file.size() > 8 && file[8] == std::byte{'{'};
}

Result<Attributes> read_config(const std::string& weights_path) {
  const std::string path = beside(weights_path, kConfig);
  auto text = read_text_file(path, Attributes::JsonLimits().max_bytes);
  if (!text && text.error().code() == StatusCode::kNotFound) {
    return fail(StatusCode::kNotFound, "{} is missing; a safetensors file is read with the {} beside it",
                printable(path, 500), kConfig);
  }
  if (!text) return fail(text.error());
  auto config = Attributes::parse_json(*text, kConfig);
  if (!config) return fail(config.error().within(printable(beside(weights_path, ""), 500)));
  return config;
}

}  // namespace

const char* checkpoint_format_name(CheckpointFormat format) {
  return format == CheckpointFormat::kGguf ? "gguf" : "safetensors";
}

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  std::error_code ignored;
  // A path with a NUL would name another file; open_regular_file refuses it with its sentence.
  const bool folder = path.find('\0') == std::string::npos && fs::is_directory(path, ignored);
  const Result<std::string> weights = folder ? weights_in(path) : path;
  if (!weights) return fail(weights.error());
  BUTTER_ASSIGN(Checkpoint checkpoint, open_file(*weights));
  BUTTER_TRY(checkpoint.check_undamaged());
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open_file(const std::string& path) {
  if (is_safetensors_index(path)) {
    BUTTER_ASSIGN(std::vector<WeightFile> shards, open_safetensors_shards(path));
    return open_safetensors(path, std::move(shards));
  }
  BUTTER_ASSIGN(const std::shared_ptr<MappedFile> file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file->bytes();
  const std::string shown = printable(path, 500);
  if (Gguf::recognises(bytes)) {
    auto checkpoint = open_gguf(file);
    if (!checkpoint) return fail(checkpoint.error().within(shown));
    return checkpoint;
  }
  if (looks_like_safetensors(bytes) || fs::path(path).extension() == ".safetensors") {
    auto parsed = SafetensorsFile::parse(bytes, file);
    if (!parsed) return fail(parsed.error().within(shown));
    const auto kept = std::make_shared<const SafetensorsFile>(*std::move(parsed));
    return open_safetensors(path, {{file, kept->tensors(), kept}});
  }
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 8));
  return fail(StatusCode::kCorrupt, "{} begins with \"{}\"; a GGUF or safetensors file is expected", shown,
              printable(start));
}

Result<Checkpoint> Checkpoint::open_gguf(const std::shared_ptr<MappedFile>& file) {
  BUTTER_ASSIGN(const Gguf gguf, Gguf::parse(file->bytes(), file));
  BUTTER_ASSIGN(std::vector<WeightFile> parts, open_gguf_parts(file, gguf));
  Checkpoint checkpoint;
  checkpoint.format_ = CheckpointFormat::kGguf;
  checkpoint.weights_path_ = file->path();
  checkpoint.config_ = gguf.metadata();
  BUTTER_TRY(checkpoint.take(std::move(parts)));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open_safetensors(const std::string& path, std::vector<WeightFile> files) {
  Checkpoint checkpoint;
  checkpoint.format_ = CheckpointFormat::kSafetensors;
  checkpoint.weights_path_ = path;
  BUTTER_ASSIGN(checkpoint.config_, read_config(path));
  const auto read = [&]() -> Status {
    BUTTER_TRY(checkpoint.take(std::move(files)));
    BUTTER_ASSIGN(checkpoint.tensors_,
                  join_tensors(checkpoint.config_, checkpoint.tensors_, checkpoint.notes_));
    if (auto unused = describe_unused(checkpoint.tensors_)) checkpoint.notes_.push_back(*std::move(unused));
    return {};
  };
  if (auto done = read(); !done) return fail(done.error().within(printable(path, 500)));
  return checkpoint;
}

Status Checkpoint::take(std::vector<WeightFile> files) {
  files_ = std::move(files);
  std::vector<TensorTable::Part> parts;
  for (const WeightFile& file : files_)
    parts.push_back({fs::path(file.file->path()).filename().string(), &file.tensors});
  BUTTER_ASSIGN(tensors_, TensorTable::join(parts));
  for (WeightFile& file : files_) file.tensors = TensorTable();
  return {};
}

const TensorView* Checkpoint::find_tensor(std::string_view name) const {
  const TensorEntry* entry = tensors_.find(name);
  return entry && !entry->view.empty() ? &entry->view : nullptr;
}

Result<TensorView> Checkpoint::require_tensor(std::string_view name, const Shape& expected) const {
  BUTTER_ASSIGN(const TensorView view, readable_tensor(tensors_, name, weights_path()));
  if (!(view.shape == expected)) {
    return fail(StatusCode::kCorrupt, "{} is {}; {} implies {}", printable(name), view.shape.to_string(),
                config_.source(), expected.to_string());
  }
  const DType dtype = view.dtype;
  if (dtype == DType::kI32 || dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kU32) {
    return fail(StatusCode::kUnsupported, "{} is stored as {}; F32, F16 or BF16 is expected", printable(name),
                dtype_name(view.dtype));
  }
  return view;
}

Result<std::optional<TensorView>> Checkpoint::optional_tensor(std::string_view name,
                                                              const Shape& expected) const {
  if (!tensors_.find(name)) return std::optional<TensorView>();
  BUTTER_ASSIGN(const TensorView view, require_tensor(name, expected));
  return std::optional<TensorView>(view);
}

Result<std::optional<std::string>> Checkpoint::sidecar(const std::string& name) const {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    return fail(StatusCode::kInvalidArgument, "\"{}\" is no plain file name", printable(name));
  auto text = read_text_file(beside(weights_path(), name), kMaxSidecarBytes);
  if (text) return std::optional<std::string>(*std::move(text));
  if (text.error().code() == StatusCode::kNotFound) return std::optional<std::string>();
  return fail(text.error());
}

uint64_t Checkpoint::file_bytes() const {
  uint64_t bytes = 0;
  for (const WeightFile& file : files_) bytes += file.file->bytes().size();
  return bytes;
}

const MappedFile* Checkpoint::file_of(std::span<const std::byte> part) const {
  for (const WeightFile& file : files_) {
    const std::span<const std::byte> bytes = file.file->bytes();
    if (part.data() >= bytes.data() && part.data() < bytes.data() + bytes.size()) return file.file.get();
  }
  return nullptr;
}

void Checkpoint::release_pages(const TensorView& tensor) const {
  for (const std::span<const std::byte> part : tensor.parts()) {
    if (const MappedFile* file = file_of(part)) file->drop_pages(part);
  }
}

void Checkpoint::prefetch(const TensorView& tensor) const {
  for (const std::span<const std::byte> part : tensor.parts()) {
    if (const MappedFile* file = file_of(part)) file->prefetch(part);
  }
}

bool Checkpoint::damaged() const {
  return std::any_of(files_.begin(), files_.end(),
                     [](const WeightFile& file) { return file.file->damaged(); });
}

Status Checkpoint::check_undamaged() const {
  for (const WeightFile& file : files_) BUTTER_TRY(file.file->check_undamaged());
  return {};
}

}  // namespace butter
