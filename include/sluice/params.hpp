// Sampling parameters, expanded from params.def.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sluice/profile.hpp"

namespace sluice {

enum class DrawMethod : uint8_t { kGumbel, kCdf };
enum class DraftMode : uint8_t { kMatch, kReject };
enum class LogprobMode : uint8_t { kRawLogprobs, kRawLogits, kProcessedLogprobs, kProcessedLogits };

// "gumbel", "raw_logits", ...; and back: an unknown name throws Error with the known ones.
std::string_view Name(DrawMethod method);
std::string_view Name(DraftMode mode);
std::string_view Name(LogprobMode mode);
DrawMethod DrawMethodByName(std::string_view name);
DraftMode DraftModeByName(std::string_view name);
LogprobMode LogprobModeByName(std::string_view name);

struct BiasEntry {
  int32_t id = 0;
  float bias = 0.0f;
  friend bool operator==(const BiasEntry&, const BiasEntry&) = default;
};

using TokenIds = std::vector<int32_t>;
using OptionalTokenIds = std::optional<TokenIds>;  // an empty list differs from none
using TokenSequences = std::vector<TokenIds>;
using BiasEntries = std::vector<BiasEntry>;

// The parameters that decide the kept set of one row: plain data, so that it can live on a device.
struct SelectParams {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) type name = default_value;
#include "sluice/params.def"
  Profile profile = {};

  friend bool operator==(const SelectParams&, const SelectParams&) = default;
};

// All sampling parameters of a request.
struct SamplingParams {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) type name = default_value;
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  type name = default_value;
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) std::optional<type> name = {};
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) type name = default_value;
#define SLUICE_LIST_PARAM(type, name, json, help) type name = {};
#include "sluice/params.def"

  SelectParams Select() const {
    SelectParams select;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) select.name = name;
#include "sluice/params.def"
    select.profile = profile;
    return select;
  }

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

// Limits that the operator of a service may change.
struct Limits {
  float max_temperature = 2.0f;

  friend bool operator==(const Limits&, const Limits&) = default;
};

// Throws Error on the first parameter out of range, the first token id outside [0, vocab), or an
// empty allowed_token_ids or bad word.
void Validate(const SamplingParams& params, int64_t vocab, const Limits& limits = {});

// The noise of a draw. A draft model draws with kTarget to propose what `match` will accept,
// and with kDraft for `reject`, which needs independent noise.
enum class DrawStream : uint8_t { kTarget = 0, kDraft = 1 };

// The key of a row's noise. A draw is a pure function of it: the same key gives the same token
// alone or in any batch, row order or shard count.
struct NoiseKey {
  uint64_t seed = 0;
  uint32_t position = 0;  // number of tokens before this one, prompt and output
  uint32_t choice = 0;    // index among the n completions of one request; below 2^24
  DrawStream stream = DrawStream::kTarget;
};

}  // namespace sluice
