// A certified call on the device: the progress of a row, and where everything lies in the
// workspace.
//
//   encode     a hidden state as integers, and what its row requires, where nothing need be read
//   score      intervals of all rows of the head, and of each tile of 16 the ends that matter
//   narrow     of strict planes: what the likeliest tokens reach by both planes
//   refine     of strict planes: the intervals by both planes of the tokens that may matter then
//   survivors  what the required tokens reach for certain; of several, the logits of the tokens
//              that do, which give a nearer bound; and those of the other tokens that may matter
//   answer     from the exact logits, by the caller: the first k tokens, or a draw
//   dense      all logits of the rows that this leaves without an answer
//
// Kernels follow each other on one stream. Each but the first may start while the one before it
// ends (programmatic dependent launch) and waits for it where it first reads what that one wrote.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "head/certified/certified_tokens.h"
#include "head/certified/cuda/survivor_budget.h"
#include "head/certified/planes.h"
#include "head/cuda/project_launch.h"
#include "semantics/filters/filter_class.h"
#include "semantics/host_device.h"
#include "sluice/cuda/head.hpp"

namespace sluice::cuda {

using semantics::FilterClass;

inline constexpr int kStatesOfQuad = 4;  // hidden states that one matrix product takes

// What a row of a call is after, and how far it has come. In device memory.
struct RowProgress {
  enum class Way : uint8_t { kAnswered, kPlanes, kAllowed, kDense };

  StepBound bound;
  Way way;
  FilterClass filter_class;
  RowStatus status;
  DenseReason reason;
  int32_t k;
  int32_t first_id;  // of the head's first row: noise is by the ids of the whole vocabulary
  bool takes_first;  // the first token is the answer, whatever the noise
  float filter_scale;
  float draw_scale;
  float min_p;
  bool is_nucleus;  // the first k are a bet on where top-p ends
  NoiseKey key;

  int32_t first;  // tokens that are computed first
  uint32_t
      least_first;  // an order key: of the first k none is below it, and what is not is computed
  int32_t listed;   // tokens that are to be computed; above the budget not all of them are
  // Of a nucleus: weights are 2^(x filter_scale + mass_offset), of which these are the sums over
  // the lower and over the upper ends of all tokens; a token that was computed is at both ends.
  // NaN: there are no sums.
  float mass_offset;
  double least_mass;
  double most_mass;
  uint32_t has_finite;
  uint32_t has_nan;
  uint32_t has_pos_inf;
};

// Order keys of what a row's tokens reach for certain; 0 while nothing is certain. For rows that
// need one token.
struct SureEnds {
  uint32_t least;  // the largest lower end
  uint32_t best;   // the largest lower end of the scores of a draw from the whole softmax
};

// What the likeliest tokens of a row reach for certain by both planes, as order keys: of at least
// as many tokens as the row needs. 0: nothing is certain of the row.
struct ProbedEnds {
  uint32_t least;
  uint32_t best;    // of one token: a score of a draw from the whole softmax
  int32_t refined;  // rows of the second plane that were read
};

// Of the call.
struct CallCounters {
  int32_t dense;  // rows
};

// A group of the hidden states of a quad. A matrix product takes 32 elements of 16 rows of the head
// and 8 columns: the high and the low bytes of four hidden states. Sixteen elements of all columns
// lie together, as warps and the tensor cores themselves read them.
struct alignas(16) QuadGroup {
  struct Constants {
    float scale;  // a sixteenth of it: codes come as 16 q
    float dither;
    float square;  // n_g^2
    float padding;
  };
  uint32_t elements[kPlaneGroup / 16][2 * kStatesOfQuad][4];
  Constants constants[kStatesOfQuad];
};
static_assert(sizeof(QuadGroup) == 1088);

// Quads that lie together in each group, and are taken together.
inline constexpr int kQuadsTogether = 8;
SLUICE_HD inline int64_t PlaceOfQuad(int quad, int group, int groups) {
  return (int64_t{quad / kQuadsTogether} * groups + group) * kQuadsTogether + quad % kQuadsTogether;
}

// The planes as kernels take them.
struct PlanesArgument {
  const float* dither;         // [groups][128]
  const uint32_t* scales;      // [tiles][groups][8]: rows g and g + 8 of a tile, bf16
  const uint4* codes;          // [tiles][groups][2][32]: device_planes.cu
  const float* errors;         // [tiles][16]: ||E||; null, as all below: of dithered planes
  const uint4* low_codes;      // [tiles * 16][groups][4], as in planes.h
  const uint16_t* low_scales;  // [tiles * 16][groups]: the scales again, those of a row together
  const float* low_errors;     // [tiles][16]: of both planes
  int32_t vocab;
  int32_t dim;
  int32_t tiles;
  int32_t groups;
};

struct DevicePlaneLayout {
  DevicePlaneLayout(CertificateKind kind, int64_t vocab, int64_t dim);

  int64_t tiles;
  int64_t groups;
  size_t dither;
  size_t scales;
  size_t codes;
  size_t errors;
  size_t low_codes;
  size_t low_scales;
  size_t low_errors;
  size_t end;
};

PlanesArgument ArgumentOf(const DevicePlanes& planes);

// Of wider heads no second plane is read: a block keeps a hidden state.
inline constexpr int64_t kMostRefinedGroups = 256;

// Of fewer tokens of a row that may matter the logits are computed at once.
inline constexpr int32_t kFewToRefine = 256;

// The workspace, by value.
struct CertifiedWorkspace {
  RowProgress* progress;
  CallCounters* counters;
  int32_t* dense_rows;
  float* hidden;     // [rows][dim]
  QuadGroup* quads;  // PlaceOfQuad
  SureEnds* sure;
  ProbedEnds* probed;        // null, as the next: there is no second plane to read
  float* tile_middles;       // [rows][tiles]
  float* tile_least;         // [rows][tiles]: the largest lower end
  float* tile_most;          //                the largest upper end
  float* tile_least_scores;  //                these of the scores of a draw from the whole softmax
  float* tile_most_scores;
  semantics::Token* survivors;  // [rows][budget], as they were computed; some may be -inf
  float* scores;                // [rows][tiles * 16]; of dense rows the logits
  float* widths;                // likewise
  int32_t rows;
  int32_t budget;
};

// null: for the size alone.
CertifiedWorkspace LayOut(const DevicePlanes& planes, int64_t rows, std::byte* workspace,
                          size_t* bytes);

// One question for all rows: the first k tokens, or what parameters say. Of some rows of a head's
// vocabulary, both: the first k, and of rows that are drawn from everything the tokens that may
// win.
struct QuestionArgument {
  int32_t k;  // 0: parameters
  DrawMethod method;
  const SelectParams* params;
  const NoiseKey* keys;
  bool has_params_per_row;
  bool has_keys_per_row;
  Limits limits;
  int32_t first_id = 0;  // of the head's first row
  int32_t vocab = 0;     // that the head's rows are some of; 0: they are all of it
};

struct CertifiedArgs {
  PlanesArgument planes;
  WeightsArgument head;
  DType dtype;  // of the weights
  const void* hidden;
  int64_t hidden_stride;
  DType hidden_dtype;
  const int32_t* bitmask;  // null: none
  double kappa;            // 0: strict planes
  QuestionArgument question;
  CertifiedWorkspace memory;
  HeadRow* rows;     // null: not reported
  int32_t* refined;  // likewise
  int32_t few_to_refine;
};

// Checks the call; throws Error.
CertifiedArgs ArgumentOf(const CertifiedCall& call, const QuestionArgument& question);

// All up to the exact logits of the survivors.
void LaunchCertifiedPrefix(const CertifiedArgs& call, void* stream);
void LaunchEncode(const CertifiedArgs& call, void* stream);
void LaunchScore(const CertifiedArgs& call, void* stream);
// That of more than eight hidden states; where the device has the code for it.
bool CanScoreMany();
void LaunchScoreMany(const CertifiedArgs& call, void* stream);
// These two are for calls with a memory.probed. LaunchRefine uses the ends that it holds.
void LaunchProbe(const CertifiedArgs& call, void* stream);
void LaunchRefine(const CertifiedArgs& call, void* stream);
// Where the first k tokens of each row go.
struct TopPlaces {
  int32_t* ids;
  float* logits;
  RowStatus* status;
};
// The first k tokens of the rows that need them: after LaunchCertifiedPrefix and after LaunchDense.
void LaunchTopOfSurvivors(const CertifiedArgs& call, const TopPlaces& places, void* stream);
void LaunchTopOfDense(const CertifiedArgs& call, const TopPlaces& places, void* stream);
// The logits of the rows of memory.dense_rows.
void LaunchDense(const CertifiedArgs& call, void* stream);

struct LaunchShape {
  unsigned blocks = 1;
  unsigned blocks_y = 1;
  unsigned threads = 1;
  size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks; before Hopper each is one
};

// As <<<>>>, but that the kernel may start while the one before it ends.
void LaunchDependent(const void* kernel, const LaunchShape& shape, void* argument, void* stream);

}  // namespace sluice::cuda
