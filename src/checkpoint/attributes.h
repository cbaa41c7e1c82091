// Attributes: a typed, read-only key/value object: config.json, or the metadata of a GGUF file.
//
// Values are booleans, whole numbers, floating-point numbers, strings, arrays, and objects (JSON only:
// GGUF keys are flat, "llama.block_count"). Copies are cheap and share one parsed document, which keeps
// the mapped file alive where strings are views of it. Const methods may be called from any thread.
//
// A getter's error is one sentence that names the key, the value found and what is expected:
//   llama.block_count is "x"; an integer is expected
// A key whose value is null counts as absent, for every getter; has() and is_null() tell them apart.
// Strings from JSON are UTF-8; those of a GGUF file may hold any bytes (its keys are UTF-8).
// Whole numbers pass as floats, and floats without a fraction as whole numbers (4096.0).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace butter {

struct AttributeDocument;
struct AttributeObject;
struct AttributeValue;

enum class AttributeKind { kAbsent, kBool, kInt, kFloat, kString, kArray, kObject };

class Attributes {
 public:
  struct JsonLimits {
    size_t max_bytes = size_t{16} << 20;
    int max_depth = 32;
    int64_t max_values = int64_t{1} << 20;
  };

  // An object without keys.
  Attributes();
  // For the readers of src/checkpoint.
  explicit Attributes(std::shared_ptr<const AttributeDocument> document);

  // Parses a JSON object. Bare Infinity, -Infinity and NaN are numbers, and so is an object
  // {"__float__": "Infinity"}. A key met twice in one object is an error. `source` names the document
  // in messages: "config.json".
  static Result<Attributes> parse_json(std::string_view text, const std::string& source,
                                       const JsonLimits& limits);
  static Result<Attributes> parse_json(std::string_view text, const std::string& source) {
    return parse_json(text, source, JsonLimits());
  }

  // Where the keys come from: "config.json", "the GGUF metadata".
  const std::string& source() const;
  // How messages name a key: with the objects it lies in, "rope_parameters.rope_theta".
  std::string full_name(std::string_view key) const;

  bool has(std::string_view key) const;  // there, null or not
  bool is_null(std::string_view key) const;
  AttributeKind kind(std::string_view key) const;  // kAbsent for a null
  std::vector<std::string_view> keys() const;      // in file order; valid while any copy lives

  // What is found under a key, as a message or a listing shows it: 7, "llama", an array of 3, nothing.
  std::string describe(std::string_view key) const;

  Result<bool> get_bool(std::string_view key) const;
  Result<bool> get_bool_or(std::string_view key, bool otherwise) const;

  Result<int64_t> get_int(std::string_view key) const;
  Result<int64_t> get_int_or(std::string_view key, int64_t otherwise) const;
  // As get_int; a value outside [min, max] is an error too. `otherwise` is not held to the bounds.
  Result<int64_t> require_int(std::string_view key, int64_t min, int64_t max) const;
  Result<int64_t> require_int_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const;

  Result<double> get_float(std::string_view key) const;
  Result<double> get_float_or(std::string_view key, double otherwise) const;
  // As get_float; NaN, and a value outside [min, max], is an error too.
  Result<double> require_float(std::string_view key, double min, double max) const;
  Result<double> require_float_or(std::string_view key, double otherwise, double min, double max) const;

  // Views are valid while any copy of these Attributes lives.
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::string> get_string_or(std::string_view key, std::string_view otherwise) const;

  // Arrays. The strings of a GGUF file are not copied: the views look into the mapping.
  Result<std::span<const std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<int64_t>> get_ints(std::string_view key) const;
  Result<std::vector<double>> get_floats(std::string_view key) const;
  Result<std::vector<bool>> get_bools(std::string_view key) const;
  // An array of integers, or one integer as an array of one (eos_token_id, head_count_kv).
  Result<std::vector<int64_t>> get_int_or_ints(std::string_view key) const;

  Result<Attributes> get_object(std::string_view key) const;
  // Without the key, an object without keys.
  Result<Attributes> get_object_or_empty(std::string_view key) const;

 private:
  const AttributeValue* find(std::string_view key) const;  // null if absent or JSON null
  tl::unexpected<Error> wrong(std::string_view key, std::string_view expected) const;
  Attributes nested(std::string_view key, const AttributeObject& object) const;

  std::shared_ptr<const AttributeDocument> document_;
  const AttributeObject* object_;
  std::string prefix_;  // "" or "rope_parameters."
};

}  // namespace butter
