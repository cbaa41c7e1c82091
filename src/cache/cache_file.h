// Cache files: a sequence's cache on disk, to go on with later on any machine that has the model.
//
//   "butterkv" | layout version, u32 | bytes of the header, u32 | bytes of the file, u64 | XXH3-64, u64, of
//   the 24 bytes before it and the header | header, JSON | rows | XXH3-128 of everything before it
//
//   header = model, kv_cache, raw, window [size, keep], position, tokens, pages [[kept end, recent begin,
//   end]
//            for each window class]
//   rows   = the token ids, int32, if `tokens` is not 0; the recurrent state, where the model has some
//            (kernels/state_layout.h); then for each window class that has layers
//              the pinned rows of each layer and head, K then V          in schemes that pin
//              b of the centre of each layer and head, fp16              in schemes that centre, from page 0
//              on the sealed pages, those kept first, each layer's block in the exchange form
//                (docs/kv-cache-internals.md)
//              the rows of the open page of each layer and head, K then V
//
// Little-endian. All numbers are untrusted: a file is read only if its length is the one that its position
// implies for this model, scheme and window, and nothing is leased before length, checksums, model, scheme,
// window and context have been found right. Neither the file nor a page is ever held whole in memory twice.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/cache_set.h"
#include "core/status.h"
#include "kernels/cache_ops.h"

namespace butter {

// What the rows of a cache depend on beside the tokens.
struct CacheFileContext {
  std::string model;   // names it so that no other model has this name; printable
  SealOptions codecs;  // whose order of bytes the rows in memory have
  std::span<const RopeTable> rope_tables;
};

// Writes `caches` to `path`, all or nothing; what was there stays until then. `tokens`: those that the cache
// holds, or none. Between steps only. Messages do not name the file.
Status save_cache(const CacheSet& caches, std::span<const int32_t> tokens, const CacheFileContext& context,
                  const std::string& path);

// Fills `caches`, which is empty, with what `path` holds; `tokens` gets those that were saved, if it is not
// null. A file of another model, scheme, window or layout version, one that goes beyond the context, or one
// that is not byte for byte as it was written, is refused with a sentence that names both sides. Whatever
// goes wrong, both stay as they were.
Status load_cache(CacheSet& caches, std::vector<int32_t>* tokens, const CacheFileContext& context,
                  const std::string& path);

}  // namespace butter
