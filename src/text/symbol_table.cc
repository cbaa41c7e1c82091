#include "text/symbol_table.h"

#include <algorithm>

#include "text/utf8.h"

namespace butter {
namespace {

// Appends ids and the unknown ones between them, as PyPI `tokenizers` orders them: an unknown id waits for
// the next symbol that has an id, or for the end.
class SymbolWriter {
 public:
  SymbolWriter(const SymbolTable& table, std::vector<int32_t>* ids) : table_(table), ids_(*ids) {}
  ~SymbolWriter() { put_unknown(); }
  SymbolWriter(const SymbolWriter&) = delete;
  SymbolWriter& operator=(const SymbolWriter&) = delete;

  void add(int32_t id) {
    if (id < 0) return add_unknown();
    put_unknown();
    ids_.push_back(id);
  }

  // False where a byte has no id.
  bool add_as_bytes(std::string_view bytes) {
    const auto id_of = [&](char byte) { return table_.byte_ids[static_cast<uint8_t>(byte)]; };
    if (std::ranges::any_of(bytes, [&](char byte) { return id_of(byte) < 0; })) return false;
    for (const char byte : bytes) ids_.push_back(id_of(byte));
    return true;
  }

 private:
  void add_unknown() {
    if (table_.unknown_id < 0) return;
    if (!table_.fuse_unknown) put_unknown();
    unknown_waits_ = true;
  }
  void put_unknown() {
    if (unknown_waits_) ids_.push_back(table_.unknown_id);
    unknown_waits_ = false;
  }

  const SymbolTable& table_;
  std::vector<int32_t>& ids_;
  bool unknown_waits_ = false;
};

}  // namespace

void SymbolTable::append(std::string_view word, std::vector<int32_t>* ids) const {
  SymbolWriter writer(*this, ids);
  if (of_bytes) {
    for (const char byte : word) writer.add(byte_ids[static_cast<uint8_t>(byte)]);
    return;
  }
  while (!word.empty()) {
    const Utf8Unit unit = first_utf8_unit(word);
    const std::string_view bytes = word.substr(0, unit.bytes);
    word.remove_prefix(unit.bytes);
    const auto found =
        unit.state == Utf8State::kWellFormed ? character_ids.find(decode_utf8(bytes)) : character_ids.end();
    if (found != character_ids.end()) {
      writer.add(found->second);
    } else if (!writer.add_as_bytes(bytes)) {
      writer.add(-1);
    }
  }
}

}  // namespace butter
