// Rows of one width with parameters and keys of their own, here and in device memory.
#pragma once

#include <iterator>
#include <utility>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"

namespace sluice::test {

struct RequestRows {
  std::vector<std::vector<float>> values;
  std::vector<SelectParams> params;
  std::vector<NoiseKey> keys;

  size_t size() const { return values.size(); }

  void Add(std::vector<float> row, const SelectParams& row_params, Random& random) {
    values.push_back(std::move(row));
    params.push_back(row_params);
    keys.push_back(RandomKey(random));
  }
};

// Of every kind, with any parameters.
inline RequestRows RandomRequestRows(int64_t count, int64_t vocab, Random& random) {
  RequestRows rows;
  for (int64_t r = 0; r < count; ++r) {
    const RowKind kind = kAllRowKinds[random.Below(std::size(kAllRowKinds))];
    rows.Add(MakeRow(kind, vocab, random), RandomSwitchedParams(vocab, random), random);
  }
  return rows;
}

// One hostile row at every extreme of the parameters, in every profile.
inline RequestRows ExtremeRequestRows(const HostileRow& hostile, Random& random) {
  RequestRows rows;
  for (SelectParams params : ExtremeSelectParams()) {
    for (const NamedProfile& named : kProfiles) {
      params.profile = named.profile;
      rows.Add(hostile.values, params, random);
    }
  }
  return rows;
}

class RequestRowsOnDevice {
 public:
  RequestRowsOnDevice(const RequestRows& rows, DType dtype)
      : batch_(rows.values, dtype), device_(batch_), params_(rows.params), keys_(rows.keys) {}

  const Batch& batch() const { return batch_; }
  LogitsView view() const { return device_.view(); }
  cuda::RowParams params() const { return {params_, keys_}; }

 private:
  Batch batch_;
  DeviceBatch device_;
  OnDevice<SelectParams> params_;
  OnDevice<NoiseKey> keys_;
};

}  // namespace sluice::test
