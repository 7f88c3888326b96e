// The structs of the C interface that are read in place have the layout of their C++ namesakes, and
// its constants their values. A field or value that is missing here, has another type or lies
// elsewhere does not compile.
#pragma once

#include <cstddef>
#include <type_traits>

#include "sluice/sluice.h"
#include "sluice/sluice.hpp"

namespace sluice::capi {

// uint8_t stands for an enum of that type; structs are checked by a list of their own.
template <typename C, typename Cpp>
constexpr bool SameField() {
  if constexpr (std::is_enum_v<Cpp>) {
    return std::is_same_v<C, std::underlying_type_t<Cpp>>;
  } else if constexpr (std::is_class_v<C> && std::is_class_v<Cpp>) {
    return sizeof(C) == sizeof(Cpp);
  } else {
    return std::is_same_v<C, Cpp>;
  }
}

// The C++ type of a C struct. Only pairs that are listed here can be read in place.
template <typename C>
struct CppOf {};

#define SLUICE_SAME_STRUCT(c, cpp)                                                    \
  static_assert(std::is_standard_layout_v<cpp> && std::is_trivially_copyable_v<cpp>); \
  static_assert(sizeof(c) == sizeof(cpp) && alignof(c) == alignof(cpp));              \
  template <>                                                                         \
  struct CppOf<c> {                                                                   \
    using type = cpp;                                                                 \
  }
#define SLUICE_SAME_FIELD(c, cpp, field)                     \
  static_assert(offsetof(c, field) == offsetof(cpp, field)); \
  static_assert(SameField<decltype(c::field), decltype(cpp::field)>())

SLUICE_SAME_STRUCT(sluice_device, Device);
SLUICE_SAME_FIELD(sluice_device, Device, kind);
SLUICE_SAME_FIELD(sluice_device, Device, index);

#define SLUICE_SAME_VIEW(c, cpp, width) \
  SLUICE_SAME_STRUCT(c, cpp);           \
  SLUICE_SAME_FIELD(c, cpp, data);      \
  SLUICE_SAME_FIELD(c, cpp, rows);      \
  SLUICE_SAME_FIELD(c, cpp, width);     \
  SLUICE_SAME_FIELD(c, cpp, stride);    \
  SLUICE_SAME_FIELD(c, cpp, dtype);     \
  SLUICE_SAME_FIELD(c, cpp, device)
SLUICE_SAME_VIEW(sluice_matrix_view, MatrixView, columns);
SLUICE_SAME_VIEW(sluice_logits_view, LogitsView, vocab);
SLUICE_SAME_VIEW(sluice_mutable_logits_view, MutableLogitsView, vocab);
#undef SLUICE_SAME_VIEW

SLUICE_SAME_STRUCT(sluice_parallel_for, ParallelFor);
SLUICE_SAME_FIELD(sluice_parallel_for, ParallelFor, workers);
SLUICE_SAME_FIELD(sluice_parallel_for, ParallelFor, context);
SLUICE_SAME_FIELD(sluice_parallel_for, ParallelFor, run);

SLUICE_SAME_STRUCT(sluice_select_work, SelectWork);
SLUICE_SAME_FIELD(sluice_select_work, SelectWork, algorithm);
SLUICE_SAME_FIELD(sluice_select_work, SelectWork, elements_read);

SLUICE_SAME_STRUCT(sluice_profile, Profile);
SLUICE_SAME_FIELD(sluice_profile, Profile, ties);
SLUICE_SAME_FIELD(sluice_profile, Profile, top_k_top_p);
SLUICE_SAME_FIELD(sluice_profile, Profile, min_p_stage);
SLUICE_SAME_FIELD(sluice_profile, Profile, top_p_boundary);
SLUICE_SAME_FIELD(sluice_profile, Profile, penalty_scope);
SLUICE_SAME_FIELD(sluice_profile, Profile, temperature_stage);

SLUICE_SAME_STRUCT(sluice_limits, Limits);
SLUICE_SAME_FIELD(sluice_limits, Limits, max_temperature);

SLUICE_SAME_STRUCT(sluice_bias_entry, BiasEntry);
SLUICE_SAME_FIELD(sluice_bias_entry, BiasEntry, id);
SLUICE_SAME_FIELD(sluice_bias_entry, BiasEntry, bias);

SLUICE_SAME_STRUCT(sluice_select_params, SelectParams);
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  SLUICE_SAME_FIELD(sluice_select_params, SelectParams, name);
#include "sluice/params.def"
SLUICE_SAME_FIELD(sluice_select_params, SelectParams, profile);

SLUICE_SAME_STRUCT(sluice_noise_key, NoiseKey);
SLUICE_SAME_FIELD(sluice_noise_key, NoiseKey, seed);
SLUICE_SAME_FIELD(sluice_noise_key, NoiseKey, position);
SLUICE_SAME_FIELD(sluice_noise_key, NoiseKey, choice);
SLUICE_SAME_FIELD(sluice_noise_key, NoiseKey, stream);

SLUICE_SAME_STRUCT(sluice_cut, Cut);
SLUICE_SAME_FIELD(sluice_cut, Cut, upper);
SLUICE_SAME_FIELD(sluice_cut, Cut, lower);
SLUICE_SAME_FIELD(sluice_cut, Cut, ties_dropped);
SLUICE_SAME_FIELD(sluice_cut, Cut, ties_kept);
SLUICE_SAME_FIELD(sluice_cut, Cut, count);
SLUICE_SAME_FIELD(sluice_cut, Cut, status);

SLUICE_SAME_STRUCT(sluice_cut_mass, CutMass);
SLUICE_SAME_FIELD(sluice_cut_mass, CutMass, kept);
SLUICE_SAME_FIELD(sluice_cut_mass, CutMass, total);
SLUICE_SAME_FIELD(sluice_cut_mass, CutMass, margin);

SLUICE_SAME_STRUCT(sluice_token_result, TokenResult);
SLUICE_SAME_FIELD(sluice_token_result, TokenResult, id);
SLUICE_SAME_FIELD(sluice_token_result, TokenResult, status);
SLUICE_SAME_FIELD(sluice_token_result, TokenResult, logprob);
SLUICE_SAME_FIELD(sluice_token_result, TokenResult, rank);
SLUICE_SAME_FIELD(sluice_token_result, TokenResult, cut);

SLUICE_SAME_STRUCT(sluice_shard, Shard);
SLUICE_SAME_FIELD(sluice_shard, Shard, logits);
SLUICE_SAME_FIELD(sluice_shard, Shard, first_id);

SLUICE_SAME_STRUCT(sluice_certified_row, CertifiedRow);
SLUICE_SAME_FIELD(sluice_certified_row, CertifiedRow, path);
SLUICE_SAME_FIELD(sluice_certified_row, CertifiedRow, reason);
SLUICE_SAME_FIELD(sluice_certified_row, CertifiedRow, survivors);
SLUICE_SAME_FIELD(sluice_certified_row, CertifiedRow, margin);

SLUICE_SAME_STRUCT(sluice_certified_stats, CertifiedStats);
SLUICE_SAME_FIELD(sluice_certified_stats, CertifiedStats, rows);
SLUICE_SAME_FIELD(sluice_certified_stats, CertifiedStats, dense_rows);
SLUICE_SAME_FIELD(sluice_certified_stats, CertifiedStats, survivors);
SLUICE_SAME_FIELD(sluice_certified_stats, CertifiedStats, bytes_read);
SLUICE_SAME_FIELD(sluice_certified_stats, CertifiedStats, dense_bytes);
SLUICE_SAME_FIELD(sluice_certified_stats, CertifiedStats, least_margin);

SLUICE_SAME_STRUCT(sluice_request_handle, RequestHandle);
SLUICE_SAME_FIELD(sluice_request_handle, RequestHandle, slot);
SLUICE_SAME_FIELD(sluice_request_handle, RequestHandle, generation);

SLUICE_SAME_STRUCT(sluice_stage_report, StageReport);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, is_on);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, is_left);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, tokens_left);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, mass_left);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, before);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, after);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, comparison);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, quantity);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, limit);
SLUICE_SAME_FIELD(sluice_stage_report, StageReport, is_exempt);

#undef SLUICE_SAME_STRUCT
#undef SLUICE_SAME_FIELD

#define SLUICE_SAME_VALUE(c, cpp) static_assert(c == static_cast<int>(cpp))
SLUICE_SAME_VALUE(SLUICE_ROW_OK, RowStatus::kOk);
SLUICE_SAME_VALUE(SLUICE_ROW_EMPTY_SUPPORT, RowStatus::kEmptySupport);
SLUICE_SAME_VALUE(SLUICE_ROW_POS_INF_INPUT, RowStatus::kPosInfInput);
SLUICE_SAME_VALUE(SLUICE_ROW_NAN_INPUT, RowStatus::kNanInput);
SLUICE_SAME_VALUE(SLUICE_ROW_BAD_PARAM, RowStatus::kBadParam);
SLUICE_SAME_VALUE(SLUICE_F32, DType::kF32);
SLUICE_SAME_VALUE(SLUICE_BF16, DType::kBf16);
SLUICE_SAME_VALUE(SLUICE_F16, DType::kF16);
SLUICE_SAME_VALUE(SLUICE_CPU, DeviceKind::kCpu);
SLUICE_SAME_VALUE(SLUICE_CUDA, DeviceKind::kCuda);
SLUICE_SAME_VALUE(SLUICE_MAX_VOCAB, kMaxVocab);
SLUICE_SAME_VALUE(SLUICE_BACKEND_AUTO, Backend::kAuto);
SLUICE_SAME_VALUE(SLUICE_BACKEND_REF, Backend::kRef);
SLUICE_SAME_VALUE(SLUICE_BACKEND_CPU_AVX2, Backend::kCpuAvx2);
SLUICE_SAME_VALUE(SLUICE_BACKEND_CPU_AVX512, Backend::kCpuAvx512);
SLUICE_SAME_VALUE(SLUICE_ALGORITHM_AUTO, SelectAlgorithm::kAuto);
SLUICE_SAME_VALUE(SLUICE_ALGORITHM_CERTIFIED, SelectAlgorithm::kCertified);
SLUICE_SAME_VALUE(SLUICE_ALGORITHM_QUICKSELECT, SelectAlgorithm::kQuickselect);
SLUICE_SAME_VALUE(SLUICE_ALGORITHM_PIVOT, SelectAlgorithm::kPivot);
SLUICE_SAME_VALUE(SLUICE_WORKSPACE_ALIGNMENT, kWorkspaceAlignment);
SLUICE_SAME_VALUE(SLUICE_DRAW_GUMBEL, DrawMethod::kGumbel);
SLUICE_SAME_VALUE(SLUICE_DRAW_CDF, DrawMethod::kCdf);
SLUICE_SAME_VALUE(SLUICE_DRAFT_MATCH, DraftMode::kMatch);
SLUICE_SAME_VALUE(SLUICE_DRAFT_REJECT, DraftMode::kReject);
SLUICE_SAME_VALUE(SLUICE_LOGPROB_RAW_LOGPROBS, LogprobMode::kRawLogprobs);
SLUICE_SAME_VALUE(SLUICE_LOGPROB_RAW_LOGITS, LogprobMode::kRawLogits);
SLUICE_SAME_VALUE(SLUICE_LOGPROB_PROCESSED_LOGPROBS, LogprobMode::kProcessedLogprobs);
SLUICE_SAME_VALUE(SLUICE_LOGPROB_PROCESSED_LOGITS, LogprobMode::kProcessedLogits);
SLUICE_SAME_VALUE(SLUICE_TIES_LOWEST_ID, Ties::kLowestId);
SLUICE_SAME_VALUE(SLUICE_TIES_ALL, Ties::kAll);
SLUICE_SAME_VALUE(SLUICE_TOP_K_TOP_P_SEQUENTIAL, TopKTopP::kSequential);
SLUICE_SAME_VALUE(SLUICE_TOP_K_TOP_P_JOINT, TopKTopP::kJoint);
SLUICE_SAME_VALUE(SLUICE_MIN_P_BEFORE_TOP_K, MinPStage::kBeforeTopK);
SLUICE_SAME_VALUE(SLUICE_MIN_P_LAST, MinPStage::kLast);
SLUICE_SAME_VALUE(SLUICE_TOP_P_EXCLUSIVE, TopPBoundary::kExclusive);
SLUICE_SAME_VALUE(SLUICE_TOP_P_INCLUSIVE, TopPBoundary::kInclusive);
SLUICE_SAME_VALUE(SLUICE_PENALTY_OUTPUT, PenaltyScope::kOutput);
SLUICE_SAME_VALUE(SLUICE_PENALTY_PROMPT_AND_OUTPUT, PenaltyScope::kPromptAndOutput);
SLUICE_SAME_VALUE(SLUICE_TEMPERATURE_BEFORE_TRUNCATION, TemperatureStage::kBeforeTruncation);
SLUICE_SAME_VALUE(SLUICE_TEMPERATURE_LAST, TemperatureStage::kLast);
SLUICE_SAME_VALUE(SLUICE_ORDER_BY_ID, CandidateOrder::kById);
SLUICE_SAME_VALUE(SLUICE_ORDER_BY_RANK, CandidateOrder::kByRank);
SLUICE_SAME_VALUE(SLUICE_STREAM_TARGET, DrawStream::kTarget);
SLUICE_SAME_VALUE(SLUICE_STREAM_DRAFT, DrawStream::kDraft);
SLUICE_SAME_VALUE(SLUICE_CERTIFICATE_DITHER4, CertificateKind::kDither4);
SLUICE_SAME_VALUE(SLUICE_CERTIFICATE_STRICT, CertificateKind::kStrict);
SLUICE_SAME_VALUE(SLUICE_PATH_NOTHING, CertifiedPath::kNothing);
SLUICE_SAME_VALUE(SLUICE_PATH_PLANES, CertifiedPath::kPlanes);
SLUICE_SAME_VALUE(SLUICE_PATH_ALLOWED, CertifiedPath::kAllowed);
SLUICE_SAME_VALUE(SLUICE_PATH_DENSE, CertifiedPath::kDense);
SLUICE_SAME_VALUE(SLUICE_DENSE_NONE, DenseReason::kNone);
SLUICE_SAME_VALUE(SLUICE_DENSE_HIDDEN, DenseReason::kHidden);
SLUICE_SAME_VALUE(SLUICE_DENSE_SURVIVORS, DenseReason::kSurvivors);
SLUICE_SAME_VALUE(SLUICE_DENSE_PARAMETERS, DenseReason::kParameters);
SLUICE_SAME_VALUE(SLUICE_DENSE_MASS, DenseReason::kMass);
SLUICE_SAME_VALUE(SLUICE_STAGE_LOGITS, Stage::kLogits);
SLUICE_SAME_VALUE(SLUICE_STAGE_BITMASK, Stage::kBitmask);
SLUICE_SAME_VALUE(SLUICE_STAGE_ALLOWED_IDS, Stage::kAllowedIds);
SLUICE_SAME_VALUE(SLUICE_STAGE_BAD_WORDS, Stage::kBadWords);
SLUICE_SAME_VALUE(SLUICE_STAGE_MIN_TOKENS, Stage::kMinTokens);
SLUICE_SAME_VALUE(SLUICE_STAGE_LOGIT_BIAS, Stage::kLogitBias);
SLUICE_SAME_VALUE(SLUICE_STAGE_REPETITION_PENALTY, Stage::kRepetitionPenalty);
SLUICE_SAME_VALUE(SLUICE_STAGE_FREQUENCY_PENALTY, Stage::kFrequencyPenalty);
SLUICE_SAME_VALUE(SLUICE_STAGE_PRESENCE_PENALTY, Stage::kPresencePenalty);
SLUICE_SAME_VALUE(SLUICE_STAGE_DRY, Stage::kDry);
SLUICE_SAME_VALUE(SLUICE_STAGE_PROCESSORS, Stage::kProcessors);
SLUICE_SAME_VALUE(SLUICE_STAGE_FORCED, Stage::kForced);
SLUICE_SAME_VALUE(SLUICE_STAGE_GREEDY, Stage::kGreedy);
SLUICE_SAME_VALUE(SLUICE_STAGE_MIN_P, Stage::kMinP);
SLUICE_SAME_VALUE(SLUICE_STAGE_TOP_N_SIGMA, Stage::kTopNSigma);
SLUICE_SAME_VALUE(SLUICE_STAGE_TYPICAL, Stage::kTypical);
SLUICE_SAME_VALUE(SLUICE_STAGE_TOP_K, Stage::kTopK);
SLUICE_SAME_VALUE(SLUICE_STAGE_TOP_P, Stage::kTopP);
SLUICE_SAME_VALUE(SLUICE_STAGE_MIN_P_LAST, Stage::kMinPLast);
SLUICE_SAME_VALUE(SLUICE_STAGE_XTC, Stage::kXtc);
SLUICE_SAME_VALUE(SLUICE_STAGE_DRAW, Stage::kDraw);
SLUICE_SAME_VALUE(SLUICE_COMPARE_NONE, Comparison::kNone);
SLUICE_SAME_VALUE(SLUICE_COMPARE_BELOW, Comparison::kBelow);
SLUICE_SAME_VALUE(SLUICE_COMPARE_AT_MOST, Comparison::kAtMost);
SLUICE_SAME_VALUE(SLUICE_COMPARE_AT_LEAST, Comparison::kAtLeast);
SLUICE_SAME_VALUE(SLUICE_COMPARE_ABOVE, Comparison::kAbove);
#undef SLUICE_SAME_VALUE

}  // namespace sluice::capi
