// What only C can get wrong: null pointers, structs of another header, values that no enum has.
#include <functional>
#include <string>
#include <vector>

#include "tests/capi/as_c.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

void ExpectFailure(sluice_status status, const std::string& message,
                   sluice_status expected = SLUICE_INVALID_VALUE) {
  EXPECT_EQ(status, expected) << message;
  EXPECT_EQ(sluice_last_error(), message);
}

// Good arguments for every function: one row of four tokens.
struct Call {
  std::vector<float> values = {0, 1, 2, 3};
  std::vector<SelectParams> params = std::vector<SelectParams>(1);
  std::vector<NoiseKey> keys = std::vector<NoiseKey>(1);
  Workspace memory{4096};
  SelectInput cpp{{values.data(), 1, 4, 4}, params, keys};
  sluice_select_input input = AsC(cpp);
  sluice_logits_view logits = input.logits;
  sluice_mutable_logits_view mutable_logits{values.data(), 1, 4, 4, SLUICE_F32, {SLUICE_CPU, 0}};
  sluice_matrix_view matrix{values.data(), 1, 4, 4, SLUICE_F32, {SLUICE_CPU, 0}};
  sluice_execution execution = AsC(Execution{.backend = Backend::kRef, .workspace = memory.span()});
  sluice_cut cut = AsC<sluice_cut>(Cut{.lower = 0.0f, .ties_kept = 1, .count = 4});
  sluice_cut_mass mass{};
  sluice_token_result result{};
  int32_t bitmask = 0;
  int64_t offsets[2] = {0, 4};
  int32_t ids[4] = {};
  float floats[8] = {};
  uint64_t weights[4] = {};
  sluice_candidates candidates{offsets, 2, ids, 4, floats, 4, weights, 4};
  sluice_logprob_input logprob_input{input.logits, 0, input.params, 1};
  sluice_logprob_lists lists{2, ids, 2, floats, 2};
  int64_t first_row[2] = {0, 1};
  sluice_drafts drafts = AsC(Drafts{});
  int32_t emitted = 0;
  sluice_topk_input topk = AsC(TopkInput{.scores = cpp.logits, .k = 2});
  sluice_row_status row_status = 0;
  sluice_dense_head head{{values.data(), 1, 4, 4, SLUICE_F32, {SLUICE_CPU, 0}}, floats, 1};
  sluice_mutable_logits_view one_token{floats, 1, 1, 1, SLUICE_F32, {SLUICE_CPU, 0}};
  sluice_shard shard{input.logits, 0};
  sluice_shard_input shards{&shard, 1, input.params, 1, input.keys, 1, {2.0f}};
  size_t bytes = 0;

  Call() {
    drafts.first_row = first_row;
    drafts.first_row_count = 2;
    drafts.ids = ids;
    drafts.id_count = 1;
  }
};

struct Case {
  std::function<sluice_status(Call&)> run;
  std::string parameter;  // that is null in run
  std::string allowed = "a pointer to the elements";
};

std::string Message(const Case& c) { return c.parameter + " = null is not allowed: " + c.allowed; }

TEST(CNull, StructsAndResults) {
  const std::string pointer = "a pointer";
  const std::vector<Case> cases = {
      {[](Call& c) { return sluice_select_workspace_bytes(nullptr, &c.execution, &c.bytes); },
       "logits", pointer},
      {[](Call& c) { return sluice_select_workspace_bytes(&c.logits, nullptr, &c.bytes); },
       "execution", pointer},
      {[](Call& c) { return sluice_select_workspace_bytes(&c.logits, &c.execution, nullptr); },
       "bytes", pointer},
      {[](Call& c) { return sluice_select(nullptr, &c.cut, 1, &c.mass, 1, &c.execution); }, "input",
       pointer},
      {[](Call& c) { return sluice_select(&c.input, &c.cut, 1, &c.mass, 1, nullptr); }, "execution",
       pointer},
      {[](Call& c) { return sluice_mask(nullptr, &c.cut, 1, &c.execution); }, "logits", pointer},
      {[](Call& c) { return sluice_mask(&c.mutable_logits, &c.cut, 1, nullptr); }, "execution",
       pointer},
      {[](Call& c) { return sluice_kept_bitmask(nullptr, &c.cut, 1, &c.bitmask, 1, &c.execution); },
       "logits", pointer},
      {[](Call& c) { return sluice_kept_bitmask(&c.logits, &c.cut, 1, &c.bitmask, 1, nullptr); },
       "execution", pointer},
      {[](Call& c) { return sluice_collect(nullptr, &c.cut, 1, 0, &c.candidates, &c.execution); },
       "input", pointer},
      {[](Call& c) { return sluice_collect(&c.input, &c.cut, 1, 0, nullptr, &c.execution); },
       "candidates", pointer},
      {[](Call& c) { return sluice_collect(&c.input, &c.cut, 1, 0, &c.candidates, nullptr); },
       "execution", pointer},
      {[](Call& c) { return sluice_draw(nullptr, 0, &c.cut, 1, &c.result, 1, &c.execution); },
       "input", pointer},
      {[](Call& c) { return sluice_draw(&c.input, 0, &c.cut, 1, &c.result, 1, nullptr); },
       "execution", pointer},
      {[](Call& c) { return sluice_sample(nullptr, 0, &c.result, 1, &c.execution); }, "input",
       pointer},
      {[](Call& c) { return sluice_sample(&c.input, 0, &c.result, 1, nullptr); }, "execution",
       pointer},
      {[](Call& c) { return sluice_logprobs(nullptr, &c.result, 1, &c.lists, &c.execution); },
       "input", pointer},
      {[](Call& c) { return sluice_logprobs(&c.logprob_input, &c.result, 1, &c.lists, nullptr); },
       "execution", pointer},
      {[](Call& c) { return sluice_verify_workspace_bytes(nullptr, &c.execution, &c.bytes); },
       "logits", pointer},
      {[](Call& c) { return sluice_verify_workspace_bytes(&c.logits, &c.execution, nullptr); },
       "bytes", pointer},
      {[](Call& c) {
         return sluice_verify(nullptr, &c.drafts, 0, 0, &c.result, 1, &c.emitted, 1, &c.execution);
       },
       "target", pointer},
      {[](Call& c) {
         return sluice_verify(&c.input, nullptr, 0, 0, &c.result, 1, &c.emitted, 1, &c.execution);
       },
       "drafts", pointer},
      {[](Call& c) {
         return sluice_verify(&c.input, &c.drafts, 0, 0, &c.result, 1, &c.emitted, 1, nullptr);
       },
       "execution", pointer},
      {[](Call& c) { return sluice_topk_workspace_bytes(nullptr, &c.execution, &c.bytes); },
       "input", pointer},
      {[](Call& c) { return sluice_topk_workspace_bytes(&c.topk, &c.execution, nullptr); }, "bytes",
       pointer},
      {[](Call& c) {
         return sluice_topk(nullptr, c.ids, 2, c.floats, 2, &c.row_status, 1, &c.execution);
       },
       "input", pointer},
      {[](Call& c) {
         return sluice_topk(&c.topk, c.ids, 2, c.floats, 2, &c.row_status, 1, nullptr);
       },
       "execution", pointer},
      {[](Call& c) {
         return sluice_project_workspace_bytes(nullptr, &c.matrix, &c.execution, &c.bytes);
       },
       "head", pointer},
      {[](Call& c) {
         return sluice_project_workspace_bytes(&c.head, nullptr, &c.execution, &c.bytes);
       },
       "hidden", pointer},
      {[](Call& c) {
         return sluice_project_workspace_bytes(&c.head, &c.matrix, &c.execution, nullptr);
       },
       "bytes", pointer},
      {[](Call& c) {
         return sluice_project(nullptr, &c.matrix, nullptr, 0, &c.one_token, &c.execution);
       },
       "head", pointer},
      {[](Call& c) {
         return sluice_project(&c.head, nullptr, nullptr, 0, &c.one_token, &c.execution);
       },
       "hidden", pointer},
      {[](Call& c) {
         return sluice_project(&c.head, &c.matrix, nullptr, 0, nullptr, &c.execution);
       },
       "logits", pointer},
      {[](Call& c) { return sluice_shards_workspace_bytes(nullptr, &c.execution, &c.bytes); },
       "input", pointer},
      {[](Call& c) { return sluice_shards_workspace_bytes(&c.shards, &c.execution, nullptr); },
       "bytes", pointer},
      {[](Call& c) { return sluice_select_shards(nullptr, &c.cut, 1, &c.execution); }, "input",
       pointer},
      {[](Call& c) { return sluice_sample_shards(nullptr, 0, &c.result, 1, &c.execution); },
       "input", pointer},
      {[](Call& c) { return sluice_shard_cut(nullptr, 0, 0, &c.cut); }, "cut", pointer},
      {[](Call& c) { return sluice_shard_cut(&c.cut, 0, 0, nullptr); }, "part", pointer},
      {[](Call&) { return sluice_validate(nullptr, 4, nullptr); }, "params", pointer},
      {[](Call&) { return sluice_backend_at(0, nullptr); }, "info", pointer},
      {[](Call&) { return sluice_algorithm_at(0, nullptr); }, "info", pointer},
      {[](Call&) { return sluice_profile_name_at(0, nullptr); }, "name", pointer},
      {[](Call&) { return sluice_backend_by_name("ref", nullptr); }, "backend", pointer},
      {[](Call&) { return sluice_algorithm_by_name("pivot", nullptr); }, "algorithm", pointer},
      {[](Call&) { return sluice_profile_by_name("hf", nullptr); }, "profile", pointer},
      {[](Call& c) { return sluice_backend_by_name(nullptr, &c.execution.backend); }, "name",
       pointer},
      {[](Call& c) { return sluice_algorithm_by_name(nullptr, &c.execution.algorithm); }, "name",
       pointer},
      {[](Call&) {
         sluice_profile profile;
         return sluice_profile_by_name(nullptr, &profile);
       },
       "name", pointer},
  };
  for (const Case& c : cases) {
    Call call;
    ExpectFailure(c.run(call), Message(c));
  }
}

// An array of some elements at null.
TEST(CNull, Arrays) {
  auto select = [](Call& c) {
    return sluice_select(&c.input, &c.cut, 1, &c.mass, 1, &c.execution);
  };
  auto collect = [](Call& c) {
    return sluice_collect(&c.input, &c.cut, 1, 0, &c.candidates, &c.execution);
  };
  auto logprobs = [](Call& c) {
    return sluice_logprobs(&c.logprob_input, &c.result, 1, &c.lists, &c.execution);
  };
  auto verify = [](Call& c) {
    return sluice_verify(&c.input, &c.drafts, 0, 0, &c.result, 1, &c.emitted, 1, &c.execution);
  };
  auto topk = [](Call& c) {
    return sluice_topk(&c.topk, c.ids, 2, c.floats, 2, &c.row_status, 1, &c.execution);
  };
  auto project = [](Call& c) {
    return sluice_project(&c.head, &c.matrix, nullptr, 0, &c.one_token, &c.execution);
  };
  auto shards = [](Call& c) { return sluice_select_shards(&c.shards, &c.cut, 1, &c.execution); };
  for (const auto& good : std::vector<std::function<sluice_status(Call&)>>{
           select, collect, logprobs, verify, topk, project, shards}) {
    Call call;
    ExpectOk(good(call));
  }
  // `spoil` sets one pointer to null, then the call is made.
  auto with = [](auto run, auto spoil) {
    return [run, spoil](Call& c) {
      spoil(c);
      return run(c);
    };
  };
  const std::vector<Case> cases = {
      {with(select, [](Call& c) { c.input.params = nullptr; }), "params"},
      {with(select, [](Call& c) { c.input.keys = nullptr; }), "keys"},
      {with(select, [](Call& c) { c.execution.workspace = nullptr; }), "execution.workspace"},
      {with(select, [](Call& c) { c.execution.work_count = 1; }), "execution.work"},
      {[](Call& c) { return sluice_select(&c.input, nullptr, 1, nullptr, 0, &c.execution); },
       "cuts"},
      {[](Call& c) { return sluice_select(&c.input, &c.cut, 1, nullptr, 1, &c.execution); },
       "masses"},
      {[](Call& c) { return sluice_mask(&c.mutable_logits, nullptr, 1, &c.execution); }, "cuts"},
      {[](Call& c) { return sluice_kept_bitmask(&c.logits, &c.cut, 1, nullptr, 1, &c.execution); },
       "bitmask"},
      {with(collect, [](Call& c) { c.candidates.offsets = nullptr; }), "candidates.offsets"},
      {with(collect, [](Call& c) { c.candidates.ids = nullptr; }), "candidates.ids"},
      {with(collect, [](Call& c) { c.candidates.logits = nullptr; }), "candidates.logits"},
      {with(collect, [](Call& c) { c.candidates.weights = nullptr; }), "candidates.weights"},
      {[](Call& c) { return sluice_draw(&c.input, 0, &c.cut, 1, nullptr, 1, &c.execution); },
       "results"},
      {[](Call& c) { return sluice_sample(&c.input, 0, nullptr, 1, &c.execution); }, "results"},
      {with(logprobs, [](Call& c) { c.logprob_input.params = nullptr; }), "params"},
      {with(logprobs, [](Call& c) { c.lists.ids = nullptr; }), "lists.ids"},
      {with(logprobs, [](Call& c) { c.lists.values = nullptr; }), "lists.values"},
      {with(verify, [](Call& c) { c.input.params = nullptr; }), "target.params"},
      {with(verify, [](Call& c) { c.input.keys = nullptr; }), "target.keys"},
      {with(verify, [](Call& c) { c.drafts.first_row = nullptr; }), "drafts.first_row"},
      {with(verify, [](Call& c) { c.drafts.ids = nullptr; }), "drafts.ids"},
      {with(verify, [](Call& c) { c.drafts.model.param_count = 1; }), "drafts.model.params"},
      {with(verify, [](Call& c) { c.drafts.model_cut_count = 1; }), "drafts.model_cuts"},
      {[](Call& c) {
         return sluice_verify(&c.input, &c.drafts, 0, 0, &c.result, 1, nullptr, 1, &c.execution);
       },
       "emitted"},
      {with(topk, [](Call& c) { c.topk.length_count = 1; }), "lengths"},
      {with(topk, [](Call& c) { c.topk.hint_count = 1; }), "hint"},
      {[](Call& c) {
         return sluice_topk(&c.topk, nullptr, 2, c.floats, 2, &c.row_status, 1, &c.execution);
       },
       "indices"},
      {[](Call& c) {
         return sluice_topk(&c.topk, c.ids, 2, nullptr, 2, &c.row_status, 1, &c.execution);
       },
       "values"},
      {[](Call& c) { return sluice_topk(&c.topk, c.ids, 2, nullptr, 0, nullptr, 1, &c.execution); },
       "statuses"},
      {with(project, [](Call& c) { c.head.bias = nullptr; }), "head.bias"},
      {[](Call& c) {
         return sluice_project(&c.head, &c.matrix, nullptr, 2, &c.one_token, &c.execution);
       },
       "query_start_loc"},
      {with(shards, [](Call& c) { c.shards.shards = nullptr; }), "shards"},
      {with(shards, [](Call& c) { c.shards.params = nullptr; }), "params"},
      {with(shards, [](Call& c) { c.shards.keys = nullptr; }), "keys"},
  };
  for (const Case& c : cases) {
    Call call;
    ExpectFailure(c.run(call), Message(c));
  }
}

// A struct that no _init function filled, or one of another header.
TEST(CAbi, AnotherHeaderIsRefused) {
  const std::string allowed =
      " is not allowed: 1, that of the library; the struct's _init function stores the header's";
  Call call;
  for (const uint32_t version : {0u, 2u}) {
    call.execution.abi_version = version;
    ExpectFailure(sluice_sample(&call.input, 0, &call.result, 1, &call.execution),
                  "execution.abi_version = " + std::to_string(version) + allowed,
                  SLUICE_UNAVAILABLE);
    sluice_sampler_options options;
    sluice_sampler_options_init(&options);
    options.abi_version = version;
    sluice_sampler* sampler = nullptr;
    ExpectFailure(sluice_sampler_create(&options, &sampler),
                  "options.abi_version = " + std::to_string(version) + allowed, SLUICE_UNAVAILABLE);
  }
}

TEST(CEnums, ValuesThatNoEnumHas) {
  auto sample = [](Call& c) {
    return sluice_sample(&c.input, SLUICE_DRAW_GUMBEL, &c.result, 1, &c.execution);
  };
  {
    Call c;
    ExpectFailure(sluice_sample(&c.input, 2, &c.result, 1, &c.execution),
                  "draw_method = 2 is not allowed: gumbel or cdf");
    ExpectFailure(sluice_logprobs(&c.logprob_input, &c.result, 1, nullptr, nullptr),
                  "execution = null is not allowed: a pointer");
    c.logprob_input.mode = 4;
    ExpectFailure(sluice_logprobs(&c.logprob_input, &c.result, 1, nullptr, &c.execution),
                  "mode = 4 is not allowed: [0, 3]");
    c.execution.algorithm = 200;
    EXPECT_EQ(sample(c), SLUICE_INVALID_VALUE);
  }
  const std::pair<uint8_t sluice_profile::*, std::string> switches[] = {
      {&sluice_profile::ties, "ties"},
      {&sluice_profile::top_k_top_p, "top_k_top_p"},
      {&sluice_profile::min_p_stage, "min_p_stage"},
      {&sluice_profile::top_p_boundary, "top_p_boundary"},
      {&sluice_profile::penalty_scope, "penalty_scope"},
      {&sluice_profile::temperature_stage, "temperature_stage"}};
  for (const auto& [field, name] : switches) {
    Call c;
    sluice_select_params params;
    sluice_select_params_init(&params);
    params.profile.*field = 2;
    c.input.params = &params;
    ExpectFailure(sample(c), "params.profile." + name + " = 2 is not allowed: [0, 1]");
    sluice_sampling_params sampling;
    sluice_sampling_params_init(&sampling);
    sampling.profile.*field = 255;
    ExpectFailure(sluice_validate(&sampling, 4, nullptr),
                  "profile." + name + " = 255 is not allowed: [0, 1]");
  }
  Call c;
  sluice_noise_key key = {1, 2, 3, 2};
  c.input.keys = &key;
  ExpectFailure(sample(c), "keys.stream = 2 is not allowed: [0, 1]");
  ExpectFailure(sluice_profile_by_name("ollama", nullptr),
                "profile = null is not allowed: a pointer");
  sluice_algorithm algorithm = 99;
  EXPECT_EQ(sluice_algorithm_by_name("bubble", &algorithm), SLUICE_INVALID_VALUE);
  EXPECT_EQ(algorithm, 99);
  sluice_backend_info info;
  EXPECT_EQ(sluice_backend_at(sluice_backend_count(), &info), SLUICE_INVALID_VALUE);
  EXPECT_EQ(sluice_backend_at(SIZE_MAX, &info), SLUICE_INVALID_VALUE);
}

}  // namespace
}  // namespace sluice::test
