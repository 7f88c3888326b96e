// The certified head through C gives what the C++ one gives, bit for bit, and says which file of
// planes is not its own and why.
#include "tests/capi/certified_head.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace sluice::test {
namespace {

TEST_F(CCertifiedHead, SamplesWhatTheCppHeadAndTheDenseHeadSample) {
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead cpp = CppHead(kind);
    const sluice_certified_head* const head =
        Head(Built(Options(static_cast<sluice_certificate_kind>(kind))));
    for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
      const Drawn drawn = Sampled(head, static_cast<sluice_draw_method>(method));
      std::vector<TokenResult> expected(kRows);
      std::vector<CertifiedRow> rows(kRows);
      AlignedBytes memory(SampleFromHeadWorkspaceBytes(cpp, kRows, {}));
      const CertifiedStats stats = SampleFromHead(cpp, CppInput(), params_, keys_, {}, method,
                                                  expected, rows, {.workspace = memory.span()});
      ExpectSame(drawn.stats, stats);
      const auto logits = DenseLogits(cpp.head(), CppInput());
      const Batch all(logits);
      std::vector<TokenResult> dense(kRows);
      AlignedBytes select_memory(SelectWorkspaceBytes(all.view(), {}));
      Sample({all.view(), params_, keys_}, method, dense, {.workspace = select_memory.span()});
      for (size_t r = 0; r < kRows; ++r) {
        SCOPED_TRACE(r);
        const auto result = AsC<TokenResult>(drawn.results[r]);
        EXPECT_TRUE(SameBits(result, expected[r]));
        EXPECT_TRUE(SameBits(result, dense[r]));
        ExpectSame(drawn.rows[r], rows[r]);
      }
      EXPECT_EQ(drawn.rows[0].path, SLUICE_PATH_PLANES);
      EXPECT_EQ(drawn.rows[1].path, SLUICE_PATH_ALLOWED);
      EXPECT_EQ(drawn.rows[3].path, SLUICE_PATH_NOTHING);
      EXPECT_EQ(drawn.rows[5].reason, SLUICE_DENSE_HIDDEN);
      EXPECT_EQ(drawn.results[3].status, SLUICE_ROW_BAD_PARAM);
      EXPECT_EQ(drawn.results[4].status, SLUICE_ROW_NAN_INPUT);
      EXPECT_NE(drawn.results[5].status, SLUICE_ROW_OK);
    }
  }
}

TEST_F(CCertifiedHead, GivesIdsAloneAsTheCppHeadDoes) {
  params_[0] = params_[2] = {.top_p = 0.5f};
  bitmask_.assign(bitmask_.size(), -1);
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead cpp = CppHead(kind);
    const sluice_certified_head* const head =
        Head(Built(Options(static_cast<sluice_certificate_kind>(kind))));
    for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
      const Drawn ids = SampledIds(head, static_cast<sluice_draw_method>(method));
      const Drawn all = Sampled(head, static_cast<sluice_draw_method>(method));
      std::vector<int32_t> expected(kRows);
      std::vector<RowStatus> statuses(kRows);
      std::vector<CertifiedRow> rows(kRows);
      AlignedBytes memory(SampleFromHeadWorkspaceBytes(cpp, kRows, {}));
      const CertifiedStats stats =
          SampleIdsFromHead(cpp, CppInput(), params_, keys_, {}, method, expected, statuses, rows,
                            {.workspace = memory.span()});
      ExpectSame(ids.stats, stats);
      for (size_t r = 0; r < kRows; ++r) {
        SCOPED_TRACE(r);
        EXPECT_EQ(ids.results[r].id, expected[r]);
        EXPECT_EQ(ids.results[r].id, all.results[r].id);
        EXPECT_EQ(ids.results[r].status, static_cast<uint8_t>(statuses[r]));
        EXPECT_EQ(ids.results[r].status, all.results[r].status);
        ExpectSame(ids.rows[r], rows[r]);
      }
    }
  }
}

TEST_F(CCertifiedHead, FindsTheFirstTokensThatTheCppHeadFinds) {
  const CertifiedHead cpp = CppHead(CertificateKind::kDither4);
  const sluice_certified_head* const head = Head(Built());
  for (const int32_t k : {1, 7, 600}) {
    const TopResult expected = RunTopK(cpp, CppInput(), k, {});
    const auto size = static_cast<size_t>(kRows * k);
    std::vector<int32_t> ids(size);
    std::vector<float> logits(size);
    std::vector<RowStatus> status(kRows);
    std::array<sluice_certified_row, kRows> rows{};
    sluice_certified_stats stats{};
    sluice_execution execution = AsC(Execution{});
    size_t bytes = 0;
    ExpectOk(sluice_certified_topk_workspace_bytes(head, kRows, &execution, &bytes));
    AlignedBytes memory(bytes);
    execution.workspace = memory.span().data();
    execution.workspace_bytes = bytes;
    const sluice_certified_top top = {
        k, ids.data(), size, logits.data(), size, DataAsC<sluice_row_status>(status), kRows};
    ExpectOk(sluice_certified_topk(head, &input_, &top, rows.data(), kRows, &stats, &execution));
    EXPECT_EQ(ids, expected.ids);
    EXPECT_TRUE(SameSequence(logits, expected.logits));
    EXPECT_EQ(status, expected.status);
    ExpectSame(stats, expected.stats);
    for (size_t r = 0; r < kRows; ++r) ExpectSame(rows[r], expected.rows[r]);
  }
}

TEST_F(CCertifiedHead, OutlivesItsPlanesWhichComeBackFromAFile) {
  std::vector<int64_t> done;
  sluice_plane_options options = Options(SLUICE_CERTIFICATE_STRICT);
  options.progress_context = &done;
  options.progress = [](void* context, int64_t rows, int64_t vocab) {
    EXPECT_EQ(vocab, kVocab);
    static_cast<std::vector<int64_t>*>(context)->push_back(rows);
  };
  sluice_head_planes* built = nullptr;
  ExpectOk(sluice_head_planes_build(&dense_.weight, &options, &built));
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), kVocab);
  ExpectOk(sluice_head_planes_save(built, path_.c_str()));
  sluice_plane_info info = {};
  ExpectOk(sluice_head_planes_info(built, &info));
  EXPECT_EQ(info.kind, SLUICE_CERTIFICATE_STRICT);
  EXPECT_EQ(info.vocab, kVocab);
  EXPECT_EQ(info.dim, kDim);
  EXPECT_EQ(info.bytes, std::filesystem::file_size(path_));
  const Drawn expected = Sampled(Head(built), SLUICE_DRAW_GUMBEL);
  sluice_head_planes_destroy(built);

  sluice_head_planes* loaded = nullptr;
  ExpectOk(sluice_head_planes_load(path_.c_str(), &dense_.weight, &options, &loaded));
  ExpectOk(sluice_head_planes_info(loaded, &info));
  EXPECT_EQ(info.kind, SLUICE_CERTIFICATE_STRICT);
  const sluice_certified_head* const head = Head(loaded);
  sluice_head_planes_destroy(loaded);
  const Drawn drawn = Sampled(head, SLUICE_DRAW_GUMBEL);
  for (size_t r = 0; r < kRows; ++r) {
    EXPECT_TRUE(SameBits(AsC<TokenResult>(drawn.results[r]), AsC<TokenResult>(expected.results[r])))
        << r;
  }
}

TEST_F(CCertifiedHead, RefusesAFileOfPlanesThatIsNotItsOwnAndSaysWhichAndWhy) {
  ExpectOk(sluice_head_planes_save(Built(), path_.c_str()));
  std::string good;
  {
    std::ifstream in(path_, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(in), {});
  }
  const sluice_plane_options options = Options();
  const auto expect_refused = [&](const std::string& bytes, const std::string& found) {
    std::ofstream(path_, std::ios::binary) << bytes;
    auto* planes = reinterpret_cast<sluice_head_planes*>(&good);
    EXPECT_EQ(sluice_head_planes_load(path_.c_str(), &dense_.weight, &options, &planes),
              SLUICE_INVALID_VALUE)
        << found;
    EXPECT_EQ(planes, nullptr);
    EXPECT_STREQ(sluice_last_error_parameter(), "planes");
    EXPECT_EQ(sluice_last_error_value(), "\"" + path_ + "\" (" + found + ")");
  };
  const auto flipped = [&](size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    return bytes;
  };
  const std::string size = std::to_string(good.size() - 1);
  expect_refused("", "truncated: 0 bytes");
  expect_refused(std::string(100, 'x'), "does not begin with SLUICEHP");
  expect_refused(good.substr(0, good.size() - 1), "truncated: " + size + " bytes");
  expect_refused(good + "x", "too long: " + std::to_string(good.size() + 1) + " bytes");
  expect_refused(flipped(30), "its header is damaged");
  expect_refused(flipped(good.size() - 1), "its planes are damaged");
  weight_.Set(599, 129, 3.0f);
  expect_refused(good, "of other weights");

  sluice_plane_options unchecked = options;
  unchecked.check_weights = unchecked.check_planes = false;
  sluice_head_planes* planes = nullptr;
  ExpectOk(sluice_head_planes_load(path_.c_str(), &dense_.weight, &unchecked, &planes));
  sluice_head_planes_destroy(planes);

  ExpectFailure(sluice_head_planes_load("/nowhere/planes", &dense_.weight, &options, &planes),
                "planes = \"/nowhere/planes\" (No such file or directory) is not allowed: a file "
                "of planes that can be read");
  ExpectFailure(sluice_head_planes_save(Built(), "/nowhere/planes"),
                "path = \"/nowhere/planes\" (No such file or directory) is not allowed: a file "
                "that can be written");
}

}  // namespace
}  // namespace sluice::test
