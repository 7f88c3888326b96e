// sluice.CertifiedHead, for its calls and for what puts its planes elsewhere.
#pragma once

#include <nanobind/nanobind.h>

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "python/values/arrays.h"
#include "python/values/keywords.h"
#include "python/values/results.h"
#include "python/values/rows.h"
#include "sluice/certified_sample.hpp"

namespace sluice::python {

namespace nb = nanobind;

// The C++ head with the arrays that it reads.
class PythonCertifiedHead {
 public:
  PythonCertifiedHead(nb::handle weight, nb::handle bias, std::optional<std::string_view> kind,
                      nb::handle seed, nb::handle planes, bool check, nb::handle threads,
                      nb::handle progress);

  nb::object TopK(nb::handle hidden, nb::handle k, nb::kwargs kwargs);
  nb::object Sample(nb::handle hidden, nb::handle params, nb::kwargs kwargs);
  nb::dict Stats() const;

  const CertifiedHead& head() const { return *head_; }
  const HeadPlanes& planes() const { return head_->planes(); }

  // For calls that use the head.
  struct Bitmask {
    std::optional<Elements<const int32_t>> elements;
    std::span<const int32_t> words() const {
      return elements.has_value() ? elements->values : std::span<const int32_t>{};
    }
  };
  Bitmask BitmaskFrom(const Arguments& arguments, const MatrixArgument& hidden) const;
  void Count(const CertifiedStats& stats);  // under the GIL

 private:
  MatrixArgument weight_;
  std::optional<Elements<const float>> bias_;
  std::optional<CertifiedHead> head_;
  CertifiedStats total_ = {.least_margin = std::numeric_limits<float>::infinity()};
};

// run(ids, statuses), and the rows have what it wrote, without Cuts.
template <typename Run>
CertifiedStats IdsInto(std::vector<TokenResult>& rows, Run run) {
  std::vector<int32_t> ids(rows.size());
  std::vector<RowStatus> statuses(rows.size());
  const CertifiedStats stats = run(std::span(ids), std::span(statuses));
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = {.id = ids[r], .status = statuses[r]};
  return stats;
}

const CertifiedHead& CertifiedHeadOf(nb::handle head);

}  // namespace sluice::python
