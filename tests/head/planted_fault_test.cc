// That equality with the dense head is more than luck: one wrong nibble, or a bound a tenth
// smaller, and the token is another.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/head/certified.h"
#include "tests/head/planted.h"

namespace sluice::test {
namespace {

class PlantedFault : public ::testing::Test {
 protected:
  static int32_t FirstToken(const PlantedHead& planted, const HeadPlanes& planes) {
    const Batch weight(planted.rows, DType::kF32);
    const Batch hidden({planted.hidden}, DType::kF32);
    const CertifiedHead head({Matrix(weight), {}}, planes);
    Execution execution;
    AlignedBytes memory(head.TopKWorkspaceBytes(1, execution));
    execution.workspace = memory.span();
    int32_t id = -1;
    float logit = 0.0f;
    RowStatus status;
    CertifiedRow how;
    head.TopK({Matrix(hidden), {}}, {1, {&id, 1}, {&logit, 1}, {&status, 1}}, {&how, 1}, execution);
    EXPECT_EQ(how.path, CertifiedPath::kPlanes);
    return id;
  }
  static HeadPlanes Planes(const PlantedHead& planted, CertificateKind kind) {
    const Batch weight(planted.rows, DType::kF32);
    return HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 3});
  }

  Random random_{41};
};

TEST_F(PlantedFault, OneFlippedNibbleGivesAnotherToken) {
  const PlantedHead planted = DecidedByANibble(random_);
  const HeadPlanes planes = Planes(planted, CertificateKind::kDither4);
  EXPECT_EQ(FirstToken(planted, planes), planted.first);
  const auto changed = std::make_shared<ChangedPlanes>(planes);
  changed->FlipNibble(planted.first, kDecidingElement);
  EXPECT_NE(FirstToken(planted, PlaneAccess::Make(changed)), planted.first);
}

TEST_F(PlantedFault, ABoundATenthSmallerGivesAnotherToken) {
  const PlantedHead planted = DecidedByATenthOfABound(random_);
  const HeadPlanes planes = Planes(planted, CertificateKind::kStrict);
  EXPECT_EQ(FirstToken(planted, planes), planted.first);
  const auto changed = std::make_shared<ChangedPlanes>(planes);
  changed->ShrinkBounds(0.9f);
  EXPECT_NE(FirstToken(planted, PlaneAccess::Make(changed)), planted.first);
}

}  // namespace
}  // namespace sluice::test
