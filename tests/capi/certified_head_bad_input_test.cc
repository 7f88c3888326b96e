// What is wrong with the arguments of the certified head in C: each is an error that names it, and
// no output has changed.
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/capi/certified_head.h"

namespace sluice::test {
namespace {

TEST_F(CCertifiedHead, RefusesNullPointers) {
  sluice_head_planes* const planes = Built();
  const sluice_certified_head* const head = Head(planes);
  const sluice_plane_options options = Options();
  const sluice_execution execution = AsC(Execution{});
  const sluice_certified_top top = {};
  auto* made_planes = reinterpret_cast<sluice_head_planes*>(&random_);
  auto* made_head = reinterpret_cast<sluice_certified_head*>(&random_);
  sluice_certificate_kind kind = 9;
  size_t bytes = 0;
  const auto expect_null = [](sluice_status status, const std::string& name) {
    ExpectFailure(status, name + " = null is not allowed: a pointer");
  };
  expect_null(sluice_certificate_kind_by_name(nullptr, &kind), "name");
  expect_null(sluice_certificate_kind_by_name("strict", nullptr), "kind");
  expect_null(sluice_head_planes_build(nullptr, &options, &made_planes), "weight");
  EXPECT_EQ(made_planes, nullptr);
  expect_null(sluice_head_planes_build(&dense_.weight, nullptr, &made_planes), "options");
  expect_null(sluice_head_planes_build(&dense_.weight, &options, nullptr), "planes");
  expect_null(sluice_head_planes_load(nullptr, &dense_.weight, &options, &made_planes), "path");
  expect_null(sluice_head_planes_load("p", nullptr, &options, &made_planes), "weight");
  expect_null(sluice_head_planes_load("p", &dense_.weight, nullptr, &made_planes), "options");
  expect_null(sluice_head_planes_load("p", &dense_.weight, &options, nullptr), "planes");
  expect_null(sluice_head_planes_save(nullptr, "p"), "planes");
  expect_null(sluice_head_planes_save(planes, nullptr), "path");
  sluice_plane_info info;
  expect_null(sluice_head_planes_info(nullptr, &info), "planes");
  expect_null(sluice_head_planes_info(planes, nullptr), "info");
  sluice_head_planes_destroy(nullptr);

  expect_null(sluice_certified_head_create(nullptr, planes, &made_head), "head");
  EXPECT_EQ(made_head, nullptr);
  expect_null(sluice_certified_head_create(&dense_, nullptr, &made_head), "planes");
  expect_null(sluice_certified_head_create(&dense_, planes, nullptr), "certified");
  sluice_certified_head_destroy(nullptr);

  for (const auto workspace_bytes :
       {sluice_sample_from_head_workspace_bytes, sluice_certified_topk_workspace_bytes}) {
    expect_null(workspace_bytes(nullptr, 1, &execution, &bytes), "certified");
    expect_null(workspace_bytes(head, 1, nullptr, &bytes), "execution");
    expect_null(workspace_bytes(head, 1, &execution, nullptr), "bytes");
  }
  const auto sample = [&](const sluice_certified_head* of, const sluice_certified_input* input,
                          const sluice_row_draws* draws, const sluice_execution* with) {
    return sluice_sample_from_head(of, input, draws, nullptr, 0, nullptr, 0, nullptr, with);
  };
  expect_null(sample(nullptr, &input_, &draws_, &execution), "certified");
  expect_null(sample(head, nullptr, &draws_, &execution), "input");
  expect_null(sample(head, &input_, nullptr, &execution), "draws");
  expect_null(sample(head, &input_, &draws_, nullptr), "execution");
  const auto topk = [&](const sluice_certified_head* of, const sluice_certified_input* input,
                        const sluice_certified_top* to, const sluice_execution* with) {
    return sluice_certified_topk(of, input, to, nullptr, 0, nullptr, with);
  };
  expect_null(topk(nullptr, &input_, &top, &execution), "certified");
  expect_null(topk(head, nullptr, &top, &execution), "input");
  expect_null(topk(head, &input_, nullptr, &execution), "top");
  expect_null(topk(head, &input_, &top, nullptr), "execution");
}

// Good arguments for both calls, to spoil one; its outputs hold what no call writes.
struct Call {
  Call(const sluice_certified_head* of, const sluice_certified_input& from,
       const sluice_row_draws& by, std::span<std::byte> memory)
      : head(of), input(from), draws(by), execution(AsC(Execution{.workspace = memory})) {
    std::memset(results, 0x5a, sizeof results);
    std::memset(rows, 0x5a, sizeof rows);
    std::memset(&stats, 0x5a, sizeof stats);
    std::memset(ids, 0x5a, sizeof ids);
    std::memset(status, 0x5a, sizeof status);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  sluice_status Sample() {
    return sluice_sample_from_head(head, &input, &draws, results, result_count, rows, row_count,
                                   &stats, &execution);
  }
  sluice_status SampleIds() {
    return sluice_sample_ids_from_head(head, &input, &draws, ids, id_count, status, status_count,
                                       rows, row_count, &stats, &execution);
  }
  sluice_status TopK() {
    return sluice_certified_topk(head, &input, &top, rows, row_count, &stats, &execution);
  }
  bool IsAs(const Call& other) const {
    return std::memcmp(results, other.results, sizeof results) == 0 &&
           std::memcmp(rows, other.rows, sizeof rows) == 0 &&
           std::memcmp(&stats, &other.stats, sizeof stats) == 0 &&
           std::memcmp(ids, other.ids, sizeof ids) == 0 &&
           std::memcmp(status, other.status, sizeof status) == 0;
  }

  const sluice_certified_head* head;
  sluice_certified_input input;
  sluice_row_draws draws;
  sluice_execution execution;
  sluice_token_result results[6];
  size_t result_count = 6;
  sluice_certified_row rows[6];
  size_t row_count = 6;
  sluice_certified_stats stats;
  int32_t ids[12];
  size_t id_count = 6;  // of SampleIds
  size_t status_count = 6;
  float logits[12];
  sluice_row_status status[6];
  sluice_certified_top top = {2, ids, 12, logits, 12, status, 6};
};

struct BadCall {
  std::function<void(Call&)> spoil;
  std::string message;
  sluice_status status = SLUICE_INVALID_VALUE;
};

TEST_F(CCertifiedHead, RefusesWhatDoesNotFitBeforeItWrites) {
  const sluice_certified_head* const head = Head(Built());
  AlignedBytes memory(1 << 20);
  const std::string elements = " = null is not allowed: a pointer to the elements";
  const std::vector<BadCall> of_both = {
      {[](Call& c) { c.input.hidden.columns = 128; }, "hidden.dim = 128 is not allowed: 130"},
      {[](Call& c) { c.input.hidden.stride = 129; },
       "hidden.stride = 129 is not allowed: at least the row's 130 elements"},
      {[](Call& c) { c.input.hidden.rows = -1; },
       "hidden.rows = -1 is not allowed: [0, 2147483647]"},
      {[](Call& c) { c.input.hidden.data = nullptr; },
       "hidden.data = null is not allowed: a pointer to the rows"},
      {[](Call& c) { c.input.hidden.dtype = 9; },
       "hidden.dtype = 9 is not allowed: float32, bfloat16 or float16", SLUICE_INVALID_TYPE},
      {[](Call& c) { c.input.hidden.device.kind = SLUICE_CUDA; },
       "hidden.device = cuda is not allowed: cpu with this backend", SLUICE_INVALID_TYPE},
      {[](Call& c) { c.input.bitmask = nullptr; }, "bitmask" + elements},
      {[](Call& c) { c.input.word_count -= 1; }, "bitmask.size() = 113 is not allowed: 114"},
      {[](Call& c) { c.row_count = 5; }, "rows.size() = 5 is not allowed: 6"},
      {[](Call& c) { c.execution.workspace = nullptr; }, "execution.workspace" + elements},
      {[](Call& c) { c.execution.parallel.workers = 0; },
       "execution.parallel.workers = 0 is not allowed: [1, 65536]"},
      {[](Call& c) { c.execution.abi_version = 0; },
       "execution.abi_version = 0 is not allowed: 1, that of the library; the struct's _init "
       "function stores the header's",
       SLUICE_UNAVAILABLE},
  };
  const std::vector<BadCall> of_draws = {
      {[](Call& c) { c.draws.params = nullptr; }, "params" + elements},
      {[](Call& c) { c.draws.param_count = 2; },
       "params.size() = 2 is not allowed: 1 or the number of rows, 6"},
      {[](Call& c) { c.draws.keys = nullptr; }, "keys" + elements},
      {[](Call& c) { c.draws.key_count = 0; },
       "keys.size() = 0 is not allowed: 1 or the number of rows, 6"},
      {[](Call& c) { c.draws.method = 9; }, "draw_method = 9 is not allowed: gumbel or cdf"},
  };
  const std::vector<BadCall> of_sample = {
      {[](Call& c) { c.result_count = 5; }, "results.size() = 5 is not allowed: 6"},
  };
  const std::vector<BadCall> of_ids = {
      {[](Call& c) { c.id_count = 5; }, "ids.size() = 5 is not allowed: 6"},
      {[](Call& c) { c.status_count = 7; }, "statuses.size() = 7 is not allowed: 6"},
  };
  const std::vector<BadCall> of_topk = {
      {[](Call& c) { c.top.k = 0; }, "k = 0 is not allowed: [1, 600]"},
      {[](Call& c) { c.top.k = 601; }, "k = 601 is not allowed: [1, 600]"},
      {[](Call& c) { c.top.ids = nullptr; }, "ids" + elements},
      {[](Call& c) { c.top.id_count = 6; }, "ids.size() = 6 is not allowed: 12"},
      {[](Call& c) { c.top.logits = nullptr; }, "logits" + elements},
      {[](Call& c) { c.top.logit_count = 0; }, "logits.size() = 0 is not allowed: 12"},
      {[](Call& c) { c.top.status = nullptr; }, "status" + elements},
      {[](Call& c) { c.top.status_count = 7; }, "status.size() = 7 is not allowed: 6"},
  };
  const Call untouched(head, input_, draws_, memory.span());
  const auto expect_refused = [&](const std::vector<BadCall>& cases, auto run) {
    for (const BadCall& bad : cases) {
      Call call(head, input_, draws_, memory.span());
      bad.spoil(call);
      ExpectFailure((call.*run)(), bad.message, bad.status);
      EXPECT_TRUE(call.IsAs(untouched)) << bad.message;
    }
  };
  expect_refused(of_both, &Call::Sample);
  expect_refused(of_draws, &Call::Sample);
  expect_refused(of_sample, &Call::Sample);
  expect_refused(of_both, &Call::SampleIds);
  expect_refused(of_draws, &Call::SampleIds);
  expect_refused(of_ids, &Call::SampleIds);
  expect_refused(of_both, &Call::TopK);
  expect_refused(of_topk, &Call::TopK);

  // A byte less than it asks for, and a value that no enum has.
  Call call(head, input_, draws_, memory.span());
  ExpectOk(sluice_sample_from_head_workspace_bytes(head, 6, &call.execution,
                                                   &call.execution.workspace_bytes));
  ExpectOk(call.Sample());
  EXPECT_FALSE(call.IsAs(untouched));
  call.execution.workspace_bytes -= 1;
  EXPECT_EQ(call.Sample(), SLUICE_INVALID_VALUE);
  EXPECT_STREQ(sluice_last_error_parameter(), "execution.workspace.size()");
  call.execution.workspace_bytes += 1;
  call.execution.backend = 77;
  EXPECT_EQ(call.Sample(), SLUICE_INVALID_VALUE);
  size_t bytes = 0;
  ExpectFailure(sluice_certified_topk_workspace_bytes(head, -1, &call.execution, &bytes),
                "rows = -1 is not allowed: [0, 2147483647]");
}

TEST_F(CCertifiedHead, AsksForNoMoreThanItNeeds) {
  AlignedBytes memory(1 << 20);
  Call call(Head(Built()), input_, draws_, memory.span());
  ExpectOk(sluice_sample_from_head(call.head, &call.input, &call.draws, call.results, 6, nullptr, 0,
                                   nullptr, &call.execution));
  ExpectOk(sluice_sample_ids_from_head(call.head, &call.input, &call.draws, call.ids, 6, nullptr, 0,
                                       nullptr, 0, nullptr, &call.execution));
  call.input = {};  // no bitmask
  call.input.hidden = input_.hidden;
  ExpectOk(sluice_certified_topk(call.head, &call.input, &call.top, nullptr, 0, nullptr,
                                 &call.execution));
  call.input.hidden.rows = 0;
  call.input.hidden.data = nullptr;
  call.top = {2, nullptr, 0, nullptr, 0, nullptr, 0};
  ExpectOk(sluice_certified_topk(call.head, &call.input, &call.top, nullptr, 0, &call.stats,
                                 &call.execution));
  EXPECT_EQ(call.stats.rows, 0);
}

TEST_F(CCertifiedHead, RefusesToBuildWhatCannotBeRight) {
  sluice_head_planes* planes = nullptr;
  sluice_plane_options options = Options();
  const auto build = [&] { return sluice_head_planes_build(&dense_.weight, &options, &planes); };
  options.kind = 7;
  ExpectFailure(build(), "kind = 7 is not allowed: dither4 or strict");
  options = Options();
  options.abi_version = 0;
  ExpectFailure(build(),
                "options.abi_version = 0 is not allowed: 1, that of the library; the struct's "
                "_init function stores the header's",
                SLUICE_UNAVAILABLE);
  EXPECT_EQ(sluice_head_planes_load("p", &dense_.weight, &options, &planes), SLUICE_UNAVAILABLE);
  options = Options();
  options.progress = [](void*, int64_t, int64_t) { throw std::runtime_error("no more"); };
  ExpectFailure(build(), "a callback threw: no more", SLUICE_CALLBACK_FAILED);
  options = Options();
  const sluice_dense_head good = dense_;
  dense_.weight.rows = 0;
  ExpectFailure(build(), "weight.rows = 0 is not allowed: [1, 8388608]");
  dense_ = good;
  dense_.weight.data = nullptr;
  ExpectFailure(build(), "weight.data = null is not allowed: a pointer to the rows");
  dense_ = good;
  const float before = weight_.Get(3, 129);
  weight_.Set(3, 129, NAN);
  ExpectFailure(build(), "weight[3][129] = nan is not allowed: a finite number");
  EXPECT_EQ(planes, nullptr);
  weight_.Set(3, 129, before);

  const sluice_head_planes* const built = Built();
  sluice_certified_head* head = nullptr;
  const auto create = [&](const std::function<void(sluice_dense_head&)>& spoil) {
    sluice_dense_head bad = dense_;
    spoil(bad);
    return sluice_certified_head_create(&bad, built, &head);
  };
  ExpectFailure(create([](sluice_dense_head& d) { d.weight.columns = 128; }),
                "head.weight.dim = 128 is not allowed: 130");
  ExpectFailure(create([](sluice_dense_head& d) { d.weight.rows = 599; }),
                "head.weight.rows = 599 is not allowed: 600");
  ExpectFailure(create([](sluice_dense_head& d) { d.weight.dtype = SLUICE_F16; }),
                "head.weight.dtype = float16 is not allowed: bfloat16", SLUICE_INVALID_TYPE);
  ExpectFailure(create([](sluice_dense_head& d) { d.bias_count = 7; }),
                "head.bias.size() = 7 is not allowed: 600");
  ExpectFailure(create([](sluice_dense_head& d) { d.bias = nullptr; }),
                "head.bias = null is not allowed: a pointer to the elements");
  bias_[2] = -INFINITY;
  ExpectFailure(create([](sluice_dense_head&) {}),
                "head.bias[2] = -inf is not allowed: a finite number");
  EXPECT_EQ(head, nullptr);
}

TEST(CCertifiedHeadNames, AreTextForEveryValue) {
  EXPECT_STREQ(sluice_certificate_kind_name(SLUICE_CERTIFICATE_STRICT), "strict");
  EXPECT_STREQ(sluice_certified_path_name(SLUICE_PATH_ALLOWED), "allowed");
  EXPECT_STREQ(sluice_dense_reason_name(SLUICE_DENSE_MASS), Name(DenseReason::kMass).data());
  EXPECT_THROW(Name(static_cast<DenseReason>(SLUICE_DENSE_MASS + 1)), Error) << "C++ has one more";
  for (const auto name :
       {sluice_certificate_kind_name, sluice_certified_path_name, sluice_dense_reason_name}) {
    EXPECT_STREQ(name(200), "unknown");
  }
  sluice_certificate_kind kind = 9;
  ExpectOk(sluice_certificate_kind_by_name("dither4", &kind));
  EXPECT_EQ(kind, SLUICE_CERTIFICATE_DITHER4);
  ExpectFailure(sluice_certificate_kind_by_name("fp3", &kind),
                "kind = \"fp3\" is not allowed: dither4 or strict");
}

}  // namespace
}  // namespace sluice::test
