// Null pointers where the sampler needs something: each is an error that names it.
#include <string>

#include "tests/capi/as_c.h"

namespace sluice::test {
namespace {

void ExpectFailure(sluice_status status, const std::string& message) {
  EXPECT_EQ(status, SLUICE_INVALID_VALUE) << message;
  EXPECT_EQ(sluice_last_error(), message);
}

TEST(CNull, Sampler) {
  sluice_sampler_options options;
  sluice_sampler_options_init(&options);
  options.vocab = 4;
  options.max_requests = 1;
  ExpectFailure(sluice_sampler_create(&options, nullptr),
                "sampler = null is not allowed: a pointer");
  auto* sampler = reinterpret_cast<sluice_sampler*>(&options);
  ExpectFailure(sluice_sampler_create(nullptr, &sampler),
                "options = null is not allowed: a pointer");
  EXPECT_EQ(sampler, nullptr);
  ExpectOk(sluice_sampler_create(&options, &sampler));

  sluice_request request;
  sluice_request_init(&request);
  sluice_request_handle handle;
  ExpectFailure(sluice_sampler_add(sampler, nullptr, &handle),
                "request = null is not allowed: a pointer");
  ExpectFailure(sluice_sampler_add(sampler, &request, nullptr),
                "handle = null is not allowed: a pointer");
  auto add_null = [&](const std::string& name, auto spoil) {
    sluice_request bad = request;
    spoil(bad);
    ExpectFailure(sluice_sampler_add(sampler, &bad, &handle),
                  name + " = null is not allowed: a pointer to the elements");
  };
  add_null("prompt", [](auto& r) { r.prompt_count = 1; });
  add_null("processors", [](auto& r) { r.processor_count = 1; });
#define SLUICE_LIST_PARAM(type, name, json, help) \
  add_null(#name, [](auto& r) {                   \
    r.params.name.count = 1;                      \
    r.params.allowed_token_ids.has_value = true;  \
  });
#include "sluice/params.def"
  const sluice_token_ids null_word = {nullptr, 1};
  add_null("bad_words", [&](auto& r) { r.params.bad_words = {&null_word, 1}; });

  int32_t slots = 0;
  ExpectOk(sluice_sampler_free_slots(sampler, &slots));
  EXPECT_EQ(slots, 1) << "a failing add took a slot";
  ExpectOk(sluice_sampler_add(sampler, &request, &handle));

  const std::string no_sampler = "sampler = null is not allowed: a pointer";
  uint64_t seed = 0;
  int64_t length = 0;
  size_t count = 0;
  const int32_t* tokens = nullptr;
  const sluice_step_input input = {};
  const sluice_step_output output = {};
  ExpectFailure(sluice_sampler_add(nullptr, &request, &handle), no_sampler);
  ExpectFailure(sluice_sampler_remove(nullptr, handle), no_sampler);
  ExpectFailure(sluice_sampler_free_slots(nullptr, &slots), no_sampler);
  ExpectFailure(sluice_sampler_seed(nullptr, handle, &seed), no_sampler);
  ExpectFailure(sluice_sampler_tokens(nullptr, handle, &tokens, &count), no_sampler);
  ExpectFailure(sluice_sampler_prompt_length(nullptr, handle, &length), no_sampler);
  ExpectFailure(sluice_sampler_step(nullptr, &input, &output), no_sampler);
  ExpectFailure(sluice_sampler_accept(nullptr, handle, nullptr, 0), no_sampler);
  ExpectFailure(sluice_sampler_rollback(nullptr, handle, 0), no_sampler);
  const auto null_result = [](const std::string& name) {
    return name + " = null is not allowed: a pointer";
  };
  ExpectFailure(sluice_sampler_free_slots(sampler, nullptr), null_result("slots"));
  ExpectFailure(sluice_sampler_seed(sampler, handle, nullptr), null_result("seed"));
  ExpectFailure(sluice_sampler_tokens(sampler, handle, nullptr, &count), null_result("tokens"));
  ExpectFailure(sluice_sampler_tokens(sampler, handle, &tokens, nullptr), null_result("count"));
  ExpectFailure(sluice_sampler_prompt_length(sampler, handle, nullptr), null_result("length"));
  ExpectFailure(sluice_sampler_step(sampler, nullptr, &output), null_result("input"));
  ExpectFailure(sluice_sampler_step(sampler, &input, nullptr), null_result("output"));
  const sluice_step_input null_requests = {{}, nullptr, 1};
  ExpectFailure(sluice_sampler_step(sampler, &null_requests, &output),
                "requests = null is not allowed: a pointer to the elements");
  ExpectFailure(sluice_sampler_accept(sampler, handle, nullptr, 1),
                "tokens = null is not allowed: a pointer to the elements");
  sluice_sampler_destroy(sampler);
}

}  // namespace
}  // namespace sluice::test
