#include "cli/demo/demo_row.h"

#include <algorithm>

#include "semantics/draw/philox.h"

namespace sluice::cli {
namespace {

struct Word {
  std::string_view text;
  int32_t id;
  float logit;
};

// Eighths, because the logits of a model in bf16 are as coarse, and tie as often.
constexpr Word kWords[] = {
    // Words that may come next.
    {" sea", 7205, 11.25f},
    {" ocean", 17022, 10.5f},
    {" bank", kDemoBannedId, 10.25f},
    {" river", 8580, 10.125f},
    {" lake", 19704, 10.0f},
    {" harbour", 23880, 9.75f},
    {" town", 4726, 9.5f},
    {" mill", 3012, 9.5f},
    {" coast", 11510, 9.375f},
    {" valley", 15928, 9.375f},
    {" bridge", 14007, 9.25f},
    {" city", 4272, 9.0f},
    {" village", 5720, 8.75f},
    {" east", 9321, 8.75f},
    {" shore", 21461, 8.5f},
    {" south", 4301, 8.5f},
    {" bay", 23041, 8.25f},
    {" delta", 29158, 8.25f},
    {" port", 8093, 8.0f},
    {" west", 1570, 8.0f},
    {" north", 6641, 7.875f},
    {" forest", 13569, 7.75f},
    {" hills", 24763, 7.625f},
    {" plain", 8236, 7.5f},
    {" falls", 20744, 7.5f},
    {" water", 4094, 7.375f},
    {" meadow", 26437, 7.25f},
    {" field", 7224, 7.125f},
    {" edge", 7636, 7.0f},
    {" end", 1095, 7.0f},
    {" dam", 22173, 6.875f},
    {" left", 2175, 6.75f},
    {" right", 1492, 6.625f},
    {" mountains", 14378, 6.5f},
    {" garden", 16423, 6.375f},
    {" gates", 19878, 6.25f},
    {" old", 2030, 6.125f},
    {" far", 3521, 6.0f},
    {" foot", 6437, 5.875f},
    {" wall", 9596, 5.75f},
    {"</s>", kDemoEndOfTextId, 5.5f},
    // Words of the text so far that hardly come next.
    {"Tell", 24948, -4.0f},
    {" me", 592, -3.5f},
    {" about", 1048, -2.5f},
    {" the", 278, 1.5f},
    {".", 29889, 0.5f},
    {"The", 450, -3.0f},
    {" runs", 6057, -2.0f},
    {" past", 4940, 1.0f},
    {" to", 304, -1.0f},
};

constexpr int32_t kPrompt[] = {24948, 592, 1048, 278, 8580, 29889};
constexpr int32_t kOutput[] = {450, 8580, 6057, 4940, 278, 3012, 304, 278};

// Close to N(-2, 1.6): a sum of 16 uniform numbers, because integers add up to the same bits with
// every compiler and mathematical library.
float Noise(int32_t id) {
  uint32_t sum = 0;
  for (uint32_t half = 0; half < 2; ++half) {
    const semantics::Block block = semantics::Philox(0, static_cast<uint32_t>(id), half, 0, 0);
    for (const uint32_t word : block.word) sum += (word >> 16) + (word & 0xffffu);
  }
  constexpr float kMean = 16 * 32767.5f;
  constexpr float kDeviation = 75674.0f;  // sqrt(16 / 12) * 2^16
  return -2.0f + 1.6f * ((static_cast<float>(sum) - kMean) / kDeviation);
}

}  // namespace

std::vector<float> DemoLogits() {
  std::vector<float> logits(kDemoVocab);
  for (int32_t id = 0; id < kDemoVocab; ++id) logits[static_cast<size_t>(id)] = Noise(id);
  for (const Word& word : kWords) logits[static_cast<size_t>(word.id)] = word.logit;
  return logits;
}

std::string_view DemoWord(int32_t id) {
  const auto* word = std::find_if(std::begin(kWords), std::end(kWords),
                                  [id](const Word& w) { return w.id == id; });
  return word == std::end(kWords) ? "" : word->text;
}

std::span<const int32_t> DemoPrompt() { return kPrompt; }
std::span<const int32_t> DemoOutput() { return kOutput; }

std::string DemoText(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += DemoWord(id);
  return text;
}

}  // namespace sluice::cli
