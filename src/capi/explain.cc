// Explain: its result has an optional stage, which C writes as two fields, so it is copied.
#include <algorithm>
#include <string>
#include <vector>

#include "capi/convert.h"
#include "capi/guard.h"
#include "support/check.h"

using namespace sluice;        // NOLINT(google-build-using-namespace): the functions are outside
using namespace sluice::capi;  // NOLINT(google-build-using-namespace)

namespace {

static_assert(SLUICE_STAGE_COUNT == kStages);

sluice_explanation ToC(const Explanation& e) {
  sluice_explanation c{};
  c.id = e.id;
  c.status = static_cast<sluice_row_status>(e.status);
  c.logit = e.logit;
  c.adjusted = e.adjusted;
  c.rank = e.rank;
  c.probability = e.probability;
  c.kept_probability = e.kept_probability;
  c.is_kept = e.is_kept;
  c.is_drawn = e.is_drawn;
  c.has_dropped_by = e.dropped_by.has_value();
  c.dropped_by = static_cast<sluice_stage>(e.dropped_by.value_or(Stage::kLogits));
  c.drawn_id = e.drawn_id;
  c.draw_method = static_cast<sluice_draw_method>(e.draw_method);
  c.xtc_coin_fell = e.xtc_coin_fell;
  c.cut = std::bit_cast<sluice_cut>(e.cut);
  for (size_t s = 0; s < kStages; ++s) {
    c.stages[s] = std::bit_cast<sluice_stage_report>(e.stages[s]);
  }
  return c;
}

// For the sentence, which looks at no more than this.
Explanation ToExplanation(const sluice_explanation& c) {
  if (c.has_dropped_by) CheckInRange("explanation.dropped_by", c.dropped_by, 0, kStages - 2);
  if (c.status == SLUICE_ROW_OK && !c.is_kept && !c.has_dropped_by) {
    ThrowInvalid("explanation.has_dropped_by", "0", "1 for a token that is not kept");
  }
  Explanation e;
  e.id = c.id;
  e.status = static_cast<RowStatus>(c.status);
  e.is_kept = c.is_kept;
  e.is_drawn = c.is_drawn;
  if (c.has_dropped_by) e.dropped_by = static_cast<Stage>(c.dropped_by);
  e.drawn_id = c.drawn_id;
  e.draw_method = static_cast<DrawMethod>(c.draw_method);
  e.cut = ToCpp(c.cut);
  for (size_t s = 0; s < kStages; ++s) e.stages[s] = ToCpp(c.stages[s]);
  return e;
}

}  // namespace

const char* sluice_stage_name(sluice_stage stage) {
  return Name(static_cast<Stage>(stage)).data();  // a literal: it ends with 0
}

sluice_status sluice_explain(const sluice_explain_input* input, const int32_t* ids, size_t id_count,
                             sluice_explanation* explanations, size_t explanation_count) {
  return Guarded([&] {
    const sluice_explain_input& c = Deref("input", input);
    CheckAbi("input", c.abi_version);
    if (explanations == nullptr && explanation_count > 0) {
      ThrowNull("explanations", "a pointer to the elements");
    }
    const auto id_list = Elements("ids", ids, id_count);
    CheckSize("explanations", explanation_count, std::ssize(id_list));
    CheckInRange("key.stream", c.key.stream, 0, 1);
    std::vector<sluice_logits_processor> copies;
    const std::vector<LogitsProcessor> processors =
        ToProcessors(c.processors, c.processor_count, copies);
    const std::vector<Explanation> explained =
        Explain({.logits = ToCpp(c.logits),
                 .params = ToSamplingParams(c.params),
                 .key = ToCpp(c.key),
                 .tokens = Elements("tokens", c.tokens, c.token_count),
                 .prompt_length = c.prompt_length,
                 .bitmask = Elements("bitmask", c.bitmask, c.word_count),
                 .forced = c.forced,
                 .processors = processors,
                 .limits = ToCpp(c.limits)},
                id_list);
    std::transform(explained.begin(), explained.end(), explanations, ToC);
  });
}

sluice_status sluice_explanation_sentence(const sluice_explanation* explanation, char* text,
                                          size_t capacity, size_t* length) {
  return Guarded([&] {
    size_t& result = Deref("length", length);
    const auto room = Elements("text", text, capacity);
    const std::string sentence = Sentence(ToExplanation(Deref("explanation", explanation)));
    result = sentence.size();
    if (room.empty()) return;
    const size_t fits = std::min(sentence.size(), capacity - 1);
    std::copy_n(sentence.begin(), fits, room.begin());
    room[fits] = '\0';
  });
}
