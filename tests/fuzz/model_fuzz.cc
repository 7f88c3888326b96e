// Any bytes as the files of a model: an Error, or a model that can be run.
//
// Two bytes with the length of config.json, low byte first, config.json, and then the safetensors
// file.
#include <algorithm>
#include <cmath>
#include <vector>

#include "sluice/decoder.hpp"
#include "sluice/error.hpp"
#include "sluice/head.hpp"
#include "sluice/model.hpp"
#include "tests/fuzz/bytes.h"

namespace sluice::fuzz {
namespace {

// NaN is not told from NaN: which of two operands it comes from is the compiler's choice.
bool IsSame(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return SameBits(x, y) || (std::isnan(x) && std::isnan(y));
  });
}

// The same tokens at once and one by one on two backends, from weights of any kind.
void Decode(const Model& model) {
  const ModelInfo& info = model.info();
  DecoderOptions options{.cache_tokens = 32, .max_batch_tokens = 4};
  if (info.parameters > 100'000 || Decoder::Bytes(model, options) > size_t{1} << 26) return;
  std::vector<int32_t> tokens = {0, static_cast<int32_t>(info.vocab - 1), 0};
  tokens.resize(static_cast<size_t>(std::min(info.context, std::ssize(tokens))));
  const size_t dim = static_cast<size_t>(info.dim);
  std::vector<float> at_once(tokens.size() * dim);
  std::vector<float> one_by_one(at_once.size());
  std::vector<float> expected;
  for (const Backend backend : {Backend::kAuto, Backend::kRef}) {
    options.backend = backend;
    Decoder decoder(model, options);
    const SequenceHandle first = decoder.Add();
    const DecodeChunk all{first, tokens, std::ssize(tokens)};
    decoder.Forward({&all, 1}, at_once);
    decoder.Truncate(first, 0);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const DecodeChunk one{first, std::span(tokens).subspan(i, 1)};
      decoder.Forward({&one, 1}, std::span(one_by_one).subspan(i * dim, dim));
    }
    Check(decoder.Length(first) == std::ssize(tokens));
    Check(IsSame(at_once, one_by_one));
    if (!expected.empty()) Check(IsSame(at_once, expected));
    expected = at_once;
  }
}

void Run(std::span<const uint8_t> data) {
  if (data.size() < 2) return;
  const size_t wanted = data[0] + size_t{256} * data[1];
  data = data.subspan(2);
  const size_t size = std::min(wanted, data.size());
  const std::string_view config(reinterpret_cast<const char*>(data.data()), size);
  const std::span<const std::byte> weights = std::as_bytes(data.subspan(size));
  for (const WeightFormat format : {WeightFormat::kAsStored, WeightFormat::kInt8}) {
    try {
      Decode(Model::FromFiles({config, {&weights, 1}}, {.weights = format}));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::Run({data, size});
  return 0;
}
