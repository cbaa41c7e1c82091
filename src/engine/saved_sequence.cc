// Sequences in files: Sequence::save() and Engine::load_sequence(). cache/cache_file.h has the format.
#include "butter/engine.h"
#include "cache/cache_file.h"
#include "checkpoint/printable.h"
#include "engine/engine_state.h"
#include "engine/model_identity.h"

namespace butter {
namespace {

Result<CacheFileContext> file_context(const ModelSpec& spec, const Checkpoint& checkpoint,
                                      const Device& device) {
  CacheFileContext context;
  BUTTER_ASSIGN(context.model, model_identity(spec, checkpoint));
  context.codecs.reference = device.info().name == "reference";  // the others share one order of bytes
  context.rope_tables = spec.rope_tables;
  return context;
}

// The ids come from a file that anyone may have written.
Status check_ids(const std::vector<int32_t>& ids, int vocabulary) {
  for (int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    return fail(StatusCode::kCorrupt, "it has the token id {}; 0 to {} are expected", id, vocabulary - 1);
  }
  return {};
}

// "FILE: the sentence".
template <typename T>
Result<T> within_file(Result<T> result, const std::string& path) {
  if (!result) return fail(result.error().within(printable(path, 500)));
  return result;
}

}  // namespace

Status Sequence::save(const std::string& path, std::span<const int32_t> tokens) const {
  const Engine::State& engine = *state_->engine;
  BUTTER_ASSIGN(const CacheFileContext context,
                file_context(engine.spec, *engine.checkpoint, *engine.device));
  return within_file(save_cache(*state_->caches, tokens, context, path), path);
}

Result<Sequence> Engine::load_sequence(const std::string& path, const SequenceOptions& options,
                                       std::vector<int32_t>* tokens) {
  BUTTER_ASSIGN(Sequence sequence, make_layer_caches(options));
  BUTTER_ASSIGN(const CacheFileContext context,
                file_context(state_->spec, *state_->checkpoint, *state_->device));
  std::vector<int32_t> ids;
  BUTTER_TRY(within_file(load_cache(*sequence.state_->caches, &ids, context, path), path));
  BUTTER_TRY(within_file(check_ids(ids, state_->spec.vocabulary), path));
  if (tokens != nullptr) *tokens = std::move(ids);
  return sequence;
}

}  // namespace butter
