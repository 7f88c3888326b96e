#include "python/values/rows.h"

#include <optional>
#include <string>

#include "python/errors.h"
#include "python/values/numbers.h"
#include "python/values/objects.h"
#include "python/values/param_values.h"
#include "python/values/params.h"
#include "support/random_seed.h"

namespace sluice::python {
namespace {

constexpr int64_t kMaxChoice = (int64_t{1} << 24) - 1;

// Replaces one element for all rows by one a row.
template <typename T>
void Spread(std::span<T>& values, std::vector<T>& many, int64_t rows) {
  if (!many.empty() || rows == 0) return;
  many.assign(static_cast<size_t>(rows), values[0]);
  values = many;
}

// Sets a member of every element to a number, or to one a row. Returns whether it was one number.
template <typename Struct, typename T>
bool Set(const Arguments& arguments, Keyword keyword, int64_t rows, IntRange one_range,
         IntRange row_range, T Struct::* member, std::span<Struct>& values,
         std::vector<Struct>& many) {
  const nb::handle value = arguments[keyword];
  if (!value.is_valid()) return false;
  const std::string_view name = NameOf(keyword);
  if (IsNumber(value)) {
    const T number = GetNumber<T>(name, value, one_range);
    for (Struct& element : values) element.*member = number;
    return true;
  }
  Spread(values, many, rows);
  ForEachRowValue<T>(name, value, rows, row_range,
                     [&](size_t row, T number) { many[row].*member = number; });
  return false;
}

template <typename T>
void SetShared(const Arguments& arguments, Keyword keyword, T& value) {
  if (arguments.Has(keyword)) FromPython(NameOf(keyword), arguments[keyword], value);
}

DrawStream StreamFrom(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) {
    const auto name = nb::cast<std::string>(value);
    if (name == "target") return DrawStream::kTarget;
    if (name == "draft") return DrawStream::kDraft;
  }
  ThrowValue("stream", Describe(value), "target, draft");
}

}  // namespace

RowParams::RowParams(nb::handle params, const Arguments& arguments, int64_t rows)
    : rows_(rows), select_(&one_select_, 1), keys_(&one_key_, 1) {
  if (const nb::handle limit = arguments[Keyword::max_temperature]; limit.is_valid()) {
    limits_.max_temperature = GetNumber<float>("max_temperature", limit);
    if (!(limits_.max_temperature > 0)) ThrowValue("max_temperature", Describe(limit), "above 0");
  }
  if (!params.is_none()) ReadParams(params);
  CheckStateless(arguments);
  ReadSelect(arguments);
  SetShared(arguments, Keyword::draw_method, draw_method_);
  SetShared(arguments, Keyword::draft_mode, draft_mode_);
  SetShared(arguments, Keyword::logprob_mode, logprob_mode_);
  if (arguments.Has(Keyword::logprobs)) {
    logprobs_ = GetNumber<int32_t>("logprobs", arguments[Keyword::logprobs],
                                   {-1, static_cast<uint64_t>(kMaxVocab)});
  }
  ReadKeys(arguments);
}

void RowParams::ReadParams(nb::handle params) {
  bool is_first = true;
  const auto read = [&](nb::handle object, SelectParams& select, NoiseKey& key) {
    const auto* const one = ObjectIn<SamplingParams>(object);
    if (one == nullptr) {
      ThrowType("params", Describe(object), "SamplingParams, or a sequence of them, one a row");
    }
    Validate(*one, kMaxVocab, limits_);
    CheckStateless(*one);
    select = one->Select();
    key.seed = one->seed.value_or(0);
    const auto share = [&](const char* name, auto& shared, const auto& value) {
      if (!is_first && shared != value) {
        ThrowValue(name, "different from row to row", "one value for all rows of a call");
      }
      shared = value;
    };
    share("seed", has_seeds_, one->seed.has_value());
    share("draw_method", draw_method_, one->draw_method);
    share("draft_mode", draft_mode_, one->draft_mode);
    share("logprobs", logprobs_, one->logprobs);
    share("logprob_mode", logprob_mode_, one->logprob_mode);
    is_first = false;
  };
  if (!PyList_Check(params.ptr()) && !PyTuple_Check(params.ptr())) {
    read(params, one_select_, one_key_);
    return;
  }
  CheckOneARow("params", nb::len(params), rows_);
  Spread(select_, many_select_, rows_);
  Spread(keys_, many_keys_, rows_);
  size_t row = 0;
  for (const nb::handle object : params) {
    read(object, select_[row], keys_[row]);
    ++row;
  }
}

void RowParams::ReadSelect(const Arguments& arguments) {
  SamplingParams given;  // the numbers for all rows: these are checked here, an array's row by row
  bool any = false;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help)                  \
  if (arguments.Has(Keyword::name)) {                                                      \
    if (Set(arguments, Keyword::name, rows_, WholeRangeOf(Keyword::name), RangeOf<type>(), \
            &SelectParams::name, select_, many_select_)) {                                 \
      given.name = select_.empty() ? given.name : select_[0].name;                         \
      any = true;                                                                          \
    }                                                                                      \
  }
#include "sluice/params.def"
  if (any) Validate(given, kMaxVocab, limits_);

  const nb::handle profile = arguments[Keyword::profile];
  if (!profile.is_valid()) return;
  if (PyList_Check(profile.ptr()) || PyTuple_Check(profile.ptr())) {
    CheckOneARow("profile", nb::len(profile), rows_);
    Spread(select_, many_select_, rows_);
    size_t row = 0;
    for (const nb::handle name : profile) FromPython("profile", name, select_[row++].profile);
  } else {
    Profile shared;
    FromPython("profile", profile, shared);
    for (SelectParams& select : select_) select.profile = shared;
  }
}

void RowParams::ReadKeys(const Arguments& arguments) {
  const auto set = [&](Keyword keyword, IntRange range, auto member) {
    Set(arguments, keyword, rows_, range, range, member, keys_, many_keys_);
  };
  set(Keyword::seed, RangeOf<uint64_t>(), &NoiseKey::seed);
  set(Keyword::position, RangeOf<uint32_t>(), &NoiseKey::position);
  set(Keyword::choice, {0, kMaxChoice}, &NoiseKey::choice);
  has_seeds_ = has_seeds_ || arguments.Has(Keyword::seed);
  if (const nb::handle stream = arguments[Keyword::stream]; stream.is_valid()) {
    const DrawStream drawn_from = StreamFrom(stream);
    for (NoiseKey& key : keys_) key.stream = drawn_from;
  }
}

std::vector<uint64_t> RowParams::ChooseSeeds() {
  if (has_seeds_ || rows_ == 0) return {};
  Spread(keys_, many_keys_, rows_);
  std::vector<uint64_t> seeds;
  // Keys that differ at all give independent noise.
  uint64_t next = RandomSeed();
  for (NoiseKey& key : keys_) {
    key.seed = next++;
    seeds.push_back(key.seed);
  }
  has_seeds_ = true;
  return seeds;
}

void RowParams::CheckSeeds() const {
  if (has_seeds_) return;
  for (const SelectParams& params : select_) {
    if (params.xtc_probability != 0.0f) ThrowValue("seed", "None", "a seed when XTC is on");
  }
}

void RowParams::SpreadOver(std::span<const int64_t> first_row) {
  const int64_t rows = first_row.back();
  std::vector<SelectParams> select;
  std::vector<NoiseKey> keys;
  for (size_t r = 0; r + 1 < first_row.size(); ++r) {
    NoiseKey key = keys_.size() == 1 ? keys_[0] : keys_[r];
    for (int64_t row = first_row[r]; row < first_row[r + 1]; ++row, ++key.position) {
      keys.push_back(key);
      if (select_.size() > 1) select.push_back(select_[r]);
    }
  }
  many_keys_ = std::move(keys);
  keys_ = many_keys_;
  if (!select.empty()) {
    many_select_ = std::move(select);
    select_ = many_select_;
  }
  rows_ = rows;
}

}  // namespace sluice::python
