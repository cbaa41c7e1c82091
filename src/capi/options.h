// Structs of C as the library's own: sizes and defaults, ids, texts.
#pragma once

#include <cstring>
#include <span>
#include <string_view>

#include "butter/c.h"
#include "butter/session.h"
#include "capi/guard.h"

namespace butter::capi {

// The struct of this library that a caller's stands for, which may be shorter or longer: fields that the
// caller did not know have their defaults, and what this library does not know must be zero.
template <typename Struct>
Result<Struct> known_part(const Struct* given, size_t least_bytes, const Struct& defaults, const char* name) {
  if (given == nullptr) return defaults;
  if (given->size < least_bytes || given->size > size_t{1} << 16) {
    return fail(StatusCode::kInvalidArgument, "{}->size is {}; sizeof of the struct, {}, is expected", name,
                given->size, sizeof(Struct));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Struct); i < given->size; ++i) {
    if (bytes[i] == 0) continue;
    return fail(StatusCode::kUnsupported,
                "{} has {} bytes, and those beyond {} are not zero: it asks for what this library lacks",
                name, given->size, sizeof(Struct));
  }
  Struct known = defaults;
  std::memcpy(static_cast<void*>(&known), given, std::min(given->size, sizeof(Struct)));
  return known;
}

// Writes a result into the caller's struct, as much of it as that holds.
template <typename Struct>
Status give_part(Struct* to, size_t least_bytes, Struct from, const char* name) {
  BUTTER_TRY(require(to, name));
  if (to->size < least_bytes) {
    return fail(StatusCode::kInvalidArgument, "{}->size is {}; sizeof of the struct, {}, is expected", name,
                to->size, sizeof(Struct));
  }
  from.size = to->size;
  std::memcpy(static_cast<void*>(to), &from, std::min(to->size, sizeof(Struct)));
  return {};
}

Result<EngineOptions> engine_options(const butter_engine_options* options);
Result<SequenceOptions> sequence_options(const butter_sequence_options* options);
Result<SamplingOptions> sampling_options(const butter_sampling_options* options);
// All but on_prefill, which the caller of generate() binds.
Result<GenerateOptions> generate_options(const butter_generate_options& options);
// What only a session has: a sequence refuses it.
Status refuse_session_options(const butter_generate_options& options);
Result<butter_generate_options> known_generate_options(const butter_generate_options* options);

Result<std::span<const int32_t>> ids_of(const int32_t* ids, size_t count);
Result<std::string_view> text_of(const char* text, size_t bytes);

// The caller's own: a copy to be released with butter_free().
void give_ids(std::span<const int32_t> from, int32_t** ids, size_t* count);

}  // namespace butter::capi
