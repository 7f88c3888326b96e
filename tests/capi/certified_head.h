// A certified head through C, with rows of every path.
#pragma once

#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/capi/as_c.h"
#include "tests/head/certified.h"

namespace sluice::test {

inline void ExpectFailure(sluice_status status, const std::string& message,
                          sluice_status expected = SLUICE_INVALID_VALUE) {
  EXPECT_EQ(status, expected) << message;
  EXPECT_EQ(sluice_last_error(), message);
}

inline sluice_plane_options Options(sluice_certificate_kind kind = SLUICE_CERTIFICATE_DITHER4) {
  sluice_plane_options options;
  sluice_plane_options_init(&options);
  options.kind = kind;
  options.has_seed = true;
  options.seed = 5;
  return options;
}

inline void ExpectSame(const sluice_certified_row& c, const CertifiedRow& cpp) {
  EXPECT_EQ(c.path, static_cast<uint8_t>(cpp.path));
  EXPECT_EQ(c.reason, static_cast<uint8_t>(cpp.reason));
  EXPECT_EQ(c.survivors, cpp.survivors);
  EXPECT_EQ(c.margin, cpp.margin);
}

inline void ExpectSame(const sluice_certified_stats& c, const CertifiedStats& cpp) {
  EXPECT_EQ(c.rows, cpp.rows);
  EXPECT_EQ(c.dense_rows, cpp.dense_rows);
  EXPECT_EQ(c.survivors, cpp.survivors);
  EXPECT_EQ(c.bytes_read, cpp.bytes_read);
  EXPECT_EQ(c.dense_bytes, cpp.dense_bytes);
  EXPECT_EQ(c.least_margin, cpp.least_margin);
}

// A width that is no multiple of the planes' groups, a bias, and rows of every path: planes, a
// small bitmask, the dense head, and two that are not finite.
class CCertifiedHead : public ::testing::Test {
 protected:
  static constexpr int64_t kVocab = 600;
  static constexpr int64_t kDim = 130;
  static constexpr int64_t kRows = 6;
  static constexpr size_t kWords = (kVocab + 31) / 32;

  CCertifiedHead()
      : random_(3),
        rows_(MakeHead(HeadKind::kNormal, kVocab, kDim, random_)),
        weight_(rows_, DType::kBf16),
        bias_(kVocab),
        hidden_(States()),
        bitmask_(kRows * kWords, -1),
        params_(kRows),
        keys_(kRows),
        dense_{AsC<sluice_matrix_view>(Matrix(weight_)), bias_.data(), bias_.size()},
        path_(std::filesystem::temp_directory_path() /
              ("sluice_c_planes_" + std::to_string(::getpid()))) {
    for (float& b : bias_) b = 0.1f * static_cast<float>(random_.Normal());
    std::fill_n(bitmask_.begin() + kWords, kWords, 0b1010);
    for (size_t r = 0; r < kRows; ++r) keys_[r] = {r + 1, 7, 0};
    params_[0].top_k = 9;
    params_[0].top_p = 0.8f;
    params_[3].top_p = 1.5f;
    params_[5].top_k = 9;
    sluice_certified_input_init(&input_);
    input_.hidden = AsC<sluice_matrix_view>(Matrix(hidden_));
    input_.bitmask = bitmask_.data();
    input_.word_count = bitmask_.size();
    sluice_row_draws_init(&draws_);
    draws_.params = DataAsC<sluice_select_params>(params_);
    draws_.param_count = params_.size();
    draws_.keys = DataAsC<sluice_noise_key>(keys_);
    draws_.key_count = keys_.size();
  }
  ~CCertifiedHead() override {
    for (sluice_certified_head* const head : heads_) sluice_certified_head_destroy(head);
    for (sluice_head_planes* const planes : planes_) sluice_head_planes_destroy(planes);
    std::filesystem::remove(path_);
  }

  Rows States() {
    Rows states;
    for (const HiddenKind kind : {HiddenKind::kPeaked, HiddenKind::kPeaked, HiddenKind::kZero,
                                  HiddenKind::kPeaked, HiddenKind::kNormal, HiddenKind::kNormal}) {
      states.push_back(MakeHidden(kind, rows_, random_));
    }
    states[4][129] = NAN;
    states[5][0] = INFINITY;
    return states;
  }

  sluice_head_planes* Built(const sluice_plane_options& options = Options()) {
    sluice_head_planes* planes = nullptr;
    ExpectOk(sluice_head_planes_build(&dense_.weight, &options, &planes));
    return planes_.emplace_back(planes);
  }
  sluice_certified_head* Head(const sluice_head_planes* planes) {
    sluice_certified_head* head = nullptr;
    ExpectOk(sluice_certified_head_create(&dense_, planes, &head));
    return heads_.emplace_back(head);
  }
  CertifiedHead CppHead(CertificateKind kind) const {
    return {{Matrix(weight_), bias_}, HeadPlanes::Build(Matrix(weight_), {kind, 5})};
  }
  CertifiedInput CppInput() const { return {Matrix(hidden_), bitmask_}; }

  struct Drawn {
    std::array<sluice_token_result, kRows> results{};  // of ids alone: ids and statuses
    std::array<sluice_certified_row, kRows> rows{};
    sluice_certified_stats stats{};
  };
  sluice_row_draws DrawsBy(sluice_draw_method method) const {
    sluice_row_draws draws = draws_;
    draws.method = method;
    return draws;
  }
  Drawn Sampled(const sluice_certified_head* head, sluice_draw_method method) const {
    Drawn drawn;
    WithMemory(head, [&](const sluice_execution& execution) {
      const sluice_row_draws draws = DrawsBy(method);
      return sluice_sample_from_head(head, &input_, &draws, drawn.results.data(), kRows,
                                     drawn.rows.data(), kRows, &drawn.stats, &execution);
    });
    return drawn;
  }
  Drawn SampledIds(const sluice_certified_head* head, sluice_draw_method method) const {
    return WithIds(head, [&](int32_t* ids, sluice_row_status* statuses, Drawn& drawn,
                             const sluice_execution& execution) {
      const sluice_row_draws draws = DrawsBy(method);
      return sluice_sample_ids_from_head(head, &input_, &draws, ids, kRows, statuses, kRows,
                                         drawn.rows.data(), kRows, &drawn.stats, &execution);
    });
  }
  Drawn Stepped(const sluice_certified_head* head, sluice_sampler* sampler,
                const std::vector<sluice_request_handle>& requests) const {
    Drawn drawn;
    WithMemory(head, [&](const sluice_execution& execution) {
      return sluice_sampler_step_from_head(sampler, head, &input_, requests.data(), requests.size(),
                                           drawn.results.data(), kRows, drawn.rows.data(), kRows,
                                           &drawn.stats, &execution);
    });
    return drawn;
  }
  Drawn SteppedIds(const sluice_certified_head* head, sluice_sampler* sampler,
                   const std::vector<sluice_request_handle>& requests) const {
    return WithIds(head, [&](int32_t* ids, sluice_row_status* statuses, Drawn& drawn,
                             const sluice_execution& execution) {
      return sluice_sampler_step_ids_from_head(sampler, head, &input_, requests.data(),
                                               requests.size(), ids, kRows, statuses, kRows,
                                               drawn.rows.data(), kRows, &drawn.stats, &execution);
    });
  }

  Random random_;
  Rows rows_;
  Batch weight_;
  std::vector<float> bias_;
  Batch hidden_;
  std::vector<int32_t> bitmask_;
  std::vector<SelectParams> params_;
  std::vector<NoiseKey> keys_;
  sluice_dense_head dense_;
  sluice_certified_input input_;
  sluice_row_draws draws_;
  std::string path_;

 private:
  // Calls with what C asks for as a workspace, and not a byte more.
  template <typename Call>
  static void WithMemory(const sluice_certified_head* head, const Call& call) {
    sluice_execution execution = AsC(Execution{});
    size_t bytes = 0;
    ExpectOk(sluice_sample_from_head_workspace_bytes(head, kRows, &execution, &bytes));
    AlignedBytes memory(bytes);
    execution.workspace = memory.span().data();
    execution.workspace_bytes = bytes;
    ExpectOk(call(execution));
  }

  // call(ids, statuses, drawn, execution)
  template <typename Call>
  static Drawn WithIds(const sluice_certified_head* head, const Call& call) {
    Drawn drawn;
    int32_t ids[kRows] = {};
    sluice_row_status statuses[kRows] = {};
    WithMemory(head, [&](const sluice_execution& execution) {
      return call(ids, statuses, drawn, execution);
    });
    for (size_t r = 0; r < kRows; ++r) {
      drawn.results[r].id = ids[r];
      drawn.results[r].status = statuses[r];
    }
    return drawn;
  }

  std::vector<sluice_head_planes*> planes_;
  std::vector<sluice_certified_head*> heads_;
};

}  // namespace sluice::test
