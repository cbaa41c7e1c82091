#include "text/merge_model.h"

namespace butter {

class MergeModel::Encoder final : public WordEncoder {
 public:
  explicit Encoder(const MergeModel& model) : model_(model), pairs_(model.merges_, model.symbols_) {}

  void encode(std::string_view word, std::vector<int32_t>* ids) override {
    const auto whole = model_.whole_words_.find(word);
    if (whole != model_.whole_words_.end()) return ids->push_back(whole->second);
    pairs_.encode(word, ids);
  }

 private:
  const MergeModel& model_;
  BytePairEncoder pairs_;
};

std::unique_ptr<WordEncoder> MergeModel::make_encoder() const {
  return std::make_unique<Encoder>(*this);
}

}  // namespace butter
