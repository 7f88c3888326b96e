// A vocabulary that is split between two processes: both end with the token that one would draw.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"

namespace {

// Of six tokens, rank 0 has the first four and rank 1 the rest.
const std::vector<float> kLogits[2] = {{1.5f, 0.25f, 3.0f, 2.75f}, {-1.0f, 2.5f}};

int32_t SampleOnRank(const std::string& directory, int32_t rank) {
  const std::vector<float>& logits = kLogits[rank];
  // [shards]
  // Each process, once: meet the others, and say what it has.
  const auto group =
      sluice::ConnectShardGroup(directory, rank, /*ranks=*/2, std::chrono::seconds(30));
  sluice::ShardSampler sampler(
      *group, {.vocab = 6, .first_id = rank == 0 ? 0 : 4, .tokens = rank == 0 ? 4 : 2});

  // Each step: the logits of its own tokens, and the same parameters everywhere.
  const int64_t tokens = static_cast<int64_t>(logits.size());
  const sluice::SelectParams params{.temperature = 0.8f, .top_k = 4, .top_p = 0.9f};
  const sluice::NoiseKey key{.seed = 42, .position = 7};
  sluice::TokenResult token;
  sampler.Sample(
      {.logits = {logits.data(), 1, tokens, tokens}, .params = {&params, 1}, .keys = {&key, 1}},
      sluice::DrawMethod::kGumbel, {&token, 1}, {});
  // [shards]
  return token.id;
}

}  // namespace

int main() {
  std::string directory = (std::filesystem::temp_directory_path() / "shards-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return 1;
  const pid_t other = fork();
  const int32_t id = SampleOnRank(directory, other == 0 ? 1 : 0);
  if (other == 0) _exit(id);
  int status = 0;
  waitpid(other, &status, 0);
  std::filesystem::remove_all(directory);
  std::printf("token %d on both ranks\n", id);
  return WIFEXITED(status) && WEXITSTATUS(status) == id ? 0 : 1;
}
