// The functions on device memory that sluice/tensor_ops.py calls. Tensors come as addresses: DLPack
// would have torch order its streams, and a graph that is being captured forbids that.
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

#include "python/device/device_params.h"
#include "python/device/device_rows.h"
#include "python/errors.h"
#include "python/values/calls.h"
#include "python/values/rows.h"
#include "sluice/cuda/rows.hpp"

namespace sluice::python {
namespace {

static_assert(std::endian::native == std::endian::little);  // numbers of fields travel as bytes

constexpr Keywords kFieldKeywords = {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) Keyword::name,
#include "sluice/params.def"
    Keyword::profile, Keyword::seed, Keyword::position, Keyword::choice, Keyword::stream};
constexpr int kFields = 5
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) +1
#include "sluice/params.def"
    ;
static_assert(kFields <= kMostFields);

FieldSource SourceFrom(std::string_view name, const std::string& dtype, bool is_real) {
  if (dtype == "int32") return FieldSource::kI32;
  if (dtype == "int64") return FieldSource::kI64;
  if (is_real && dtype == "float32") return FieldSource::kF32;
  if (is_real && dtype == "float64") return FieldSource::kF64;
  ThrowType(std::string(name).append(".dtype"), dtype,
            is_real ? "float32, float64, int32 or int64" : "int32 or int64");
}

// Adds the fields that a call gives: as numbers, which are checked here, or as columns, arrays on
// the device: name to (address, dtype, stride).
class FieldCollector {
 public:
  FieldCollector(FieldWrites& writes, nb::dict columns, nb::kwargs numbers)
      : writes_(writes),
        columns_(columns),
        arguments_(kFieldKeywords | Keywords{Keyword::max_temperature}, numbers) {
    const RowParams params(nb::none(), arguments_, 1);
    const SelectParams& select = params.select()[0];
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  Add(Keyword::name, select.name, offsetof(SelectParams, name), false);
#include "sluice/params.def"
    Add(Keyword::profile, select.profile, offsetof(SelectParams, profile), false);
    const NoiseKey& key = params.first_key();
    Add(Keyword::seed, key.seed, offsetof(NoiseKey, seed), true);
    Add(Keyword::position, key.position, offsetof(NoiseKey, position), true);
    Add(Keyword::choice, key.choice, offsetof(NoiseKey, choice), true);
    Add(Keyword::stream, key.stream, offsetof(NoiseKey, stream), true);
  }

 private:
  template <typename T>
  static constexpr FieldType TypeOf() {
    if constexpr (std::is_same_v<T, float>) return FieldType::kF32;
    if constexpr (std::is_same_v<T, int32_t>) return FieldType::kI32;
    if constexpr (std::is_same_v<T, uint32_t>) return FieldType::kU32;
    if constexpr (std::is_same_v<T, uint64_t>) return FieldType::kU64;
    return FieldType::kBytes;
  }

  template <typename T>
  void Add(Keyword keyword, const T& number, size_t offset, bool is_of_key) {
    static_assert(sizeof(T) <= sizeof(Field::number));
    const std::string_view name = NameOf(keyword);
    Field field = {.source = FieldSource::kNumber,
                   .type = TypeOf<T>(),
                   .is_of_key = is_of_key,
                   .size = sizeof(T),
                   .offset = static_cast<int32_t>(offset),
                   .number = 0,
                   .data = nullptr,
                   .stride = 0};
    if (columns_.contains(name)) {
      if (field.type == FieldType::kBytes) ThrowType(name, "a tensor", "one name for all rows");
      const auto column = nb::cast<nb::tuple>(columns_[nb::cast(name)]);
      field.data = AddressFrom<const void>(column[0]);
      field.source =
          SourceFrom(name, nb::cast<std::string>(column[1]), field.type == FieldType::kF32);
      field.stride = nb::cast<int64_t>(column[2]);
    } else if (arguments_.Has(keyword)) {
      std::memcpy(&field.number, &number, sizeof(T));
    } else {
      return;
    }
    writes_.fields[writes_.count++] = field;
  }

  FieldWrites& writes_;
  nb::dict columns_;
  Arguments arguments_;
};

void WriteFields(uintptr_t params, uintptr_t keys, int32_t rows, int device, uintptr_t stream,
                 bool resets, nb::dict columns, nb::kwargs numbers) {
  FieldWrites writes = {};
  writes.params = reinterpret_cast<SelectParams*>(params);
  writes.keys = reinterpret_cast<NoiseKey*>(keys);
  writes.rows = rows;
  writes.resets = resets;
  const FieldCollector collector(writes, columns, numbers);
  const OnDevice guard(device);
  LaunchFieldWrites(writes, reinterpret_cast<void*>(stream));
}

void Select(nb::tuple rows, nb::tuple params, uintptr_t cuts, uintptr_t masses) {
  const DeviceLogits logits(rows);
  const OnDevice guard(logits.view.device.index);
  cuda::Select(logits.view, RowParamsFrom(params), logits.OneARow<Cut>(cuts),
               logits.OneARow<CutMass>(masses), logits.stream);
}

void Mask(nb::tuple rows, nb::object params, uintptr_t cuts) {
  const DeviceLogits logits(rows);
  const OnDevice guard(logits.view.device.index);
  if (params.is_none()) {
    cuda::Mask(logits.view, logits.OneARow<const Cut>(cuts), logits.stream);
  } else {
    cuda::SelectAndMask(logits.view, RowParamsFrom(nb::cast<nb::tuple>(params)),
                        logits.OneARow<Cut>(cuts), logits.stream);
  }
}

// cuts: 0 to select them.
void Sample(nb::tuple rows, nb::tuple params, std::string_view method, uintptr_t cuts,
            uintptr_t results) {
  const DeviceLogits logits(rows);
  const OnDevice guard(logits.view.device.index);
  const auto tokens = logits.OneARow<TokenResult>(results);
  if (cuts == 0) {
    cuda::Sample(logits.view, RowParamsFrom(params), DrawMethodByName(method), tokens,
                 logits.stream);
  } else {
    cuda::Draw(logits.view, RowParamsFrom(params), DrawMethodByName(method),
               logits.OneARow<const Cut>(cuts), tokens, logits.stream);
  }
}

void SampleIds(nb::tuple rows, nb::tuple params, std::string_view method, uintptr_t ids,
               uintptr_t statuses) {
  const DeviceLogits logits(rows);
  const OnDevice guard(logits.view.device.index);
  cuda::SampleIds(logits.view, RowParamsFrom(params), DrawMethodByName(method),
                  logits.OneARow<int32_t>(ids), logits.OneARow<RowStatus>(statuses), logits.stream);
}

}  // namespace

void BindCuda(nb::module_& module) {
  module.def("cuda_write_fields", WriteFields, nb::arg("params"), nb::arg("keys"), nb::arg("rows"),
             nb::arg("device"), nb::arg("stream"), nb::arg("resets"), nb::arg("columns"),
             nb::arg("numbers"));
  module.def("cuda_select", Select, nb::arg("rows"), nb::arg("params"), nb::arg("cuts"),
             nb::arg("masses"));
  module.def("cuda_mask", Mask, nb::arg("rows"), nb::arg("params").none(), nb::arg("cuts"));
  module.def("cuda_sample", Sample, nb::arg("rows"), nb::arg("params"), nb::arg("method"),
             nb::arg("cuts"), nb::arg("results"));
  module.def("cuda_sample_ids", SampleIds, nb::arg("rows"), nb::arg("params"), nb::arg("method"),
             nb::arg("ids"), nb::arg("statuses"));
}

}  // namespace sluice::python
