#include "checkpoint/gguf_split.h"

#include <algorithm>

#include "checkpoint/printable.h"

namespace butter {
namespace {

constexpr std::string_view kExtension = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr size_t kDigits = 5;

// Five decimal digits, or -1.
int five_digits(std::string_view text) {
  int value = 0;
  for (char digit : text) {
    if (digit < '0' || digit > '9') return -1;
    value = value * 10 + (digit - '0');
  }
  return value;
}

// What every part of one model agrees on.
struct SplitModel {
  SplitName name;
  int64_t tensors = 0;
  std::string architecture;
};

// A part's keys against what the first part and the part's place imply.
Status check_part(const Attributes& metadata, const SplitModel& model, int part) {
  const auto expect = [&](const char* key, int64_t expected) -> Status {
    BUTTER_ASSIGN(const int64_t found, metadata.get_int(key));
    if (found == expected) return {};
    return fail(StatusCode::kCorrupt, "{} is {}; {} is expected in part {} of {}", key, found, expected, part,
                model.name.parts);
  };
  BUTTER_TRY(expect("split.count", model.name.parts));
  BUTTER_TRY(expect("split.no", part - 1));
  BUTTER_TRY(expect("split.tensors.count", model.tensors));
  BUTTER_ASSIGN(const std::string architecture,
                metadata.get_string_or("general.architecture", model.architecture));
  if (architecture == model.architecture) return {};
  return fail(StatusCode::kCorrupt,
              "general.architecture is \"{}\"; \"{}\", as in the first part, is expected",
              printable(architecture), printable(model.architecture));
}

Result<WeightFile> open_part(const SplitModel& model, int part) {
  SplitName name = model.name;
  name.part = part;
  auto file = MappedFile::open(split_name(name));
  if (!file) {
    return fail(
        file.error().within(fmt::format("part {} of the {} that split.count promises", part, name.parts)));
  }
  const std::string shown = printable((*file)->path(), 500);
  auto gguf = Gguf::parse((*file)->bytes(), *file);
  if (!gguf) return fail(gguf.error().within(shown));
  if (auto fits = check_part(gguf->metadata(), model, part); !fits) return fail(fits.error().within(shown));
  return WeightFile{*std::move(file), gguf->tensors(), nullptr};
}

// The first part's word on the whole.
Result<SplitModel> read_first(const std::string& path, const Attributes& metadata, int parts) {
  SplitModel model;
  BUTTER_ASSIGN(const int64_t number, metadata.get_int("split.no"));
  if (number != 0) {
    return fail(
        StatusCode::kInvalidArgument,
        "the file is number {} of {} parts, counted from 0 (split.no); a split model is opened by number 0",
        number, parts);
  }
  const auto name = parse_split_name(path);
  if (!name || name->part != 1 || name->parts != parts) {
    return fail(StatusCode::kCorrupt,
                "split.count is {}; a file name that ends in -00001-of-{:05}.gguf is expected, for the other "
                "parts to "
                "be found by",
                parts, parts);
  }
  model.name = *name;
  BUTTER_ASSIGN(model.tensors, metadata.get_int("split.tensors.count"));
  BUTTER_ASSIGN(model.architecture, metadata.get_string_or("general.architecture", ""));
  return model;
}

Status check_total(const std::vector<WeightFile>& parts, int64_t expected) {
  size_t found = 0;
  for (const WeightFile& part : parts) found += part.tensors.entries().size();
  if (static_cast<int64_t>(found) == expected) return {};
  return fail(StatusCode::kCorrupt, "the {} parts hold {} tensors; split.tensors.count is {}", parts.size(),
              found, expected);
}

}  // namespace

std::optional<SplitName> parse_split_name(const std::string& path) {
  // "-00001-of-00003.gguf"
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits + kExtension.size();
  if (path.size() <= kTail) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf || !tail.ends_with(kExtension))
    return std::nullopt;
  SplitName name;
  name.stem = path.substr(0, path.size() - kTail);
  name.part = five_digits(tail.substr(1, kDigits));
  name.parts = five_digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (name.part < 1 || name.part > name.parts) return std::nullopt;
  return name;
}

std::string split_name(const SplitName& name) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name.stem, name.part, name.parts);
}

Result<std::vector<WeightFile>> open_gguf_parts(std::shared_ptr<MappedFile> first, const Gguf& gguf) {
  // Tools that join parts again leave a count of 0.
  BUTTER_ASSIGN(const int64_t count, gguf.metadata().require_int_or("split.count", 1, 0, kMaxWeightFiles));
  const std::string path = first->path();
  std::vector<WeightFile> parts;
  parts.push_back({std::move(first), gguf.tensors(), nullptr});
  if (count <= 1) return parts;
  BUTTER_ASSIGN(const SplitModel model, read_first(path, gguf.metadata(), static_cast<int>(count)));
  for (int part = 2; part <= model.name.parts; ++part) {
    BUTTER_ASSIGN(WeightFile opened, open_part(model, part));
    parts.push_back(std::move(opened));
  }
  BUTTER_TRY(check_total(parts, model.tensors));
  return parts;
}

}  // namespace butter
