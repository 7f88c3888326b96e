// What reading a row with its patches costs: the time of SampleIds on rows with patches and masks,
// against the same call on the rows without them, and on rows that have the patched values as their
// logits (patches can make a row harder), by graph replay, hot as in cuda_bench.cu. Usage:
// sluice_cuda_patches --help.
//
// The ids of a row's patches are random, but for a fifth of them, which are those of its largest
// values, as a text repeats likely tokens; values are what a repetition penalty of 1.3 makes.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/cuda/graph_timer.cuh"
#include "bench/cuda/this_gpu.cuh"
#include "bench/support/program_flags.h"
#include "bench/support/rows.h"
#include "semantics/draw/philox.h"
#include "sluice/cuda/rows.hpp"
#include "sluice/draw.hpp"
#include "support/check.h"

namespace sluice::bench {
namespace {

constexpr int64_t kDistinct = 8;  // rows beyond are copies

struct Kind {
  int64_t patches;
  bool is_masked;  // half of the vocabulary is allowed
};

struct Task {
  const char* name;
  SelectParams params;
};

const Task kTasks[] = {{"sample-k50-p0.9", {.top_k = 50, .top_p = 0.9f}},
                       {"sample-p0.7", {.top_p = 0.7f}},
                       {"sample", {}}};

// A row as the model gives it, its patch, and what they make.
struct PatchedRow {
  std::vector<std::byte> logits;
  std::vector<int32_t> ids;
  std::vector<float> values;
  std::vector<int32_t> allowed;
  std::vector<float> as_read;

  std::vector<std::byte> AppliedLogits(DType dtype) const { return ToLogits(as_read, dtype); }
  static std::vector<std::byte> ToLogits(const std::vector<float>& values, DType dtype) {
    std::vector<std::byte> logits(values.size() * SizeOf(dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kBf16) {
        const uint16_t narrow = RoundToBf16(values[i]);
        std::memcpy(logits.data() + 2 * i, &narrow, 2);
      } else {
        std::memcpy(logits.data() + 4 * i, &values[i], 4);
      }
    }
    return logits;
  }
};

PatchedRow MakePatchedRow(int64_t vocab, DType dtype, const Kind& kind, uint32_t index) {
  PatchedRow row;
  row.as_read = MakeRow(Distribution::kMid, vocab, index);
  row.logits = PatchedRow::ToLogits(row.as_read, dtype);
  if (dtype == DType::kBf16) {
    for (float& x : row.as_read) x = WidenBf16(RoundToBf16(x));
  }
  std::vector<int32_t> order(row.as_read.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likely = static_cast<ptrdiff_t>(kind.patches / 5);
  std::partial_sort(order.begin(), order.begin() + likely, order.end(), [&](int32_t a, int32_t b) {
    return row.as_read[static_cast<size_t>(a)] > row.as_read[static_cast<size_t>(b)];
  });
  for (auto i = static_cast<size_t>(likely); i < static_cast<size_t>(kind.patches); ++i) {
    const semantics::Block block = semantics::Philox(6, index, static_cast<uint32_t>(i), 0, 0);
    std::swap(order[i], order[i + block.word[0] % (order.size() - i)]);
  }
  row.ids.assign(order.begin(), order.begin() + static_cast<ptrdiff_t>(kind.patches));
  std::sort(row.ids.begin(), row.ids.end());
  for (const int32_t id : row.ids) {
    const float x = row.as_read[static_cast<size_t>(id)];
    row.values.push_back(x > 0 ? x / 1.3f : x * 1.3f);
  }
  for (int64_t word = 0; kind.is_masked && word < (vocab + 31) / 32; ++word) {
    row.allowed.push_back(static_cast<int32_t>(
        semantics::Philox(7, index, static_cast<uint32_t>(word), 0, 0).word[0]));
  }
  for (size_t i = 0; kind.is_masked && i < row.as_read.size(); ++i) {
    const bool is_allowed = (static_cast<uint32_t>(row.allowed[i / 32]) >> (i % 32) & 1u) != 0;
    if (!is_allowed) row.as_read[i] = -std::numeric_limits<float>::infinity();
  }
  for (size_t i = 0; i < row.ids.size(); ++i) {
    row.as_read[static_cast<size_t>(row.ids[i])] = row.values[i];
  }
  return row;
}

class Bench {
 public:
  Bench(int64_t vocab, DType dtype, int64_t rows, const Kind& kind)
      : vocab_(vocab),
        dtype_(dtype),
        rows_(rows),
        bytes_(static_cast<size_t>(rows * vocab) * SizeOf(dtype)),
        master_(bytes_),
        applied_(bytes_),
        logits_(bytes_),
        patch_ids_(static_cast<size_t>(rows * std::max<int64_t>(kind.patches, 1))),
        patch_values_(patch_ids_.size()),
        allowed_(static_cast<size_t>(kind.is_masked ? rows * ((vocab + 31) / 32) : 1)),
        patches_(static_cast<size_t>(rows)),
        params_(static_cast<size_t>(1)),
        keys_(static_cast<size_t>(rows)),
        ids_(static_cast<size_t>(rows)),
        ways_(static_cast<size_t>(rows)),
        largest_(static_cast<size_t>(rows)),
        timer_(master_.data(), logits_.data(), bytes_, rows >= 128 ? 8 : 20),
        applied_timer_(applied_.data(), logits_.data(), bytes_, rows >= 128 ? 8 : 20) {
    std::vector<cuda::RowPatch> patches;
    std::vector<NoiseKey> keys;
    for (int64_t r = 0; r < rows; ++r) {
      if (r < kDistinct) {
        host_.push_back(MakePatchedRow(vocab, dtype, kind, static_cast<uint32_t>(r)));
      }
      const PatchedRow& row = host_[static_cast<size_t>(r % kDistinct)];
      auto copy = [r](auto* to, const auto& from) {
        RequireCuda(cudaMemcpy(to + static_cast<size_t>(r) * from.size(), from.data(),
                               from.size() * sizeof(from[0]), cudaMemcpyHostToDevice));
        return to + static_cast<size_t>(r) * from.size();
      };
      copy(master_.data(), row.logits);
      copy(applied_.data(), row.AppliedLogits(dtype));
      copy(logits_.data(), row.logits);
      cuda::RowPatch patch;
      patch.ids = copy(patch_ids_.data(), row.ids);
      patch.values = copy(patch_values_.data(), row.values);
      patch.count = static_cast<int32_t>(row.ids.size());
      if (kind.is_masked) patch.allowed = copy(allowed_.data(), row.allowed);
      patches.push_back(patch);
      keys.push_back({7, static_cast<uint32_t>(r)});
    }
    patches_.Set(patches);
    keys_.Set(keys);
  }

  double ReadFloor() {
    double best = 1e30;
    for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 64u}) {
      for (const unsigned threads : {512u, 1024u}) {
        best = std::min(best, timer_.Microseconds([=, this](cudaStream_t stream) {
          ReadKernel<<<dim3(blocks, static_cast<unsigned>(rows_)), threads, 0, stream>>>(
              reinterpret_cast<const uint4*>(logits_.data()),
              static_cast<size_t>(vocab_) * SizeOf(dtype_) / 16, largest_.data());
        }));
      }
    }
    return best;
  }

  // Of the kernels for patched rows, or for others.
  double Time(const SelectParams& params, bool is_patched) {
    params_.Set({params});
    return timer_.Microseconds([=, this](cudaStream_t stream) { Sample(stream, is_patched); });
  }
  double TimeOfApplied(const SelectParams& params) {
    params_.Set({params});
    return applied_timer_.Microseconds([=, this](cudaStream_t stream) { Sample(stream, false); });
  }

  // Tokens that differ from the reference's, among the first rows, and rows left to the definition.
  struct Check {
    int wrong;
    int left;
  };
  Check Compare(const SelectParams& params, int64_t most) {
    params_.Set({params});
    RequireCuda(cudaMemcpy(logits_.data(), master_.data(), bytes_, cudaMemcpyDeviceToDevice));
    Sample(nullptr, true);
    const std::vector<int32_t> ids = ids_.Get();
    const std::vector<cuda::RowPath> ways = ways_.Get();
    Check check{0,
                static_cast<int>(std::count(ways.begin(), ways.end(), cuda::RowPath::kDefinition))};
    for (int64_t r = 0; r < std::min(rows_, most); ++r) {
      const LogitsView row{host_[static_cast<size_t>(r % kDistinct)].as_read.data(),
                           1,
                           vocab_,
                           vocab_,
                           DType::kF32,
                           {}};
      std::vector<std::byte> workspace(SelectWorkspaceBytes(row, {}) + 64);
      const size_t misaligned = reinterpret_cast<uintptr_t>(workspace.data()) % 64;
      const NoiseKey key{7, static_cast<uint32_t>(r)};
      TokenResult expected;
      sluice::Sample({row, {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, {&expected, 1},
                     {.workspace = std::span(workspace).subspan((64 - misaligned) % 64)});
      check.wrong += ids[static_cast<size_t>(r)] != expected.id;
    }
    return check;
  }

 private:
  void Sample(cudaStream_t stream, bool is_patched) const {
    const LogitsView view{logits_.data(), rows_, vocab_, vocab_, dtype_, {DeviceKind::kCuda, 0}};
    cuda::RowParams params{{params_.data(), 1}, {keys_.data(), rows_}};
    if (is_patched) params.patches = {patches_.data(), rows_};
    cuda::SampleIds(view, params, DrawMethod::kGumbel, {ids_.data(), rows_}, {}, stream,
                    {ways_.data(), rows_});
  }

  int64_t vocab_;
  DType dtype_;
  int64_t rows_;
  size_t bytes_;
  DeviceMemory<std::byte> master_;
  DeviceMemory<std::byte> applied_;
  DeviceMemory<std::byte> logits_;
  DeviceMemory<int32_t> patch_ids_;
  DeviceMemory<float> patch_values_;
  DeviceMemory<int32_t> allowed_;
  DeviceMemory<cuda::RowPatch> patches_;
  DeviceMemory<SelectParams> params_;
  DeviceMemory<NoiseKey> keys_;
  DeviceMemory<int32_t> ids_;
  DeviceMemory<cuda::RowPath> ways_;
  DeviceMemory<uint32_t> largest_;
  GraphTimer timer_;
  GraphTimer applied_timer_;
  std::vector<PatchedRow> host_;
};

struct Options {
  int64_t vocab = 128256;
  DType dtype = DType::kF32;
  std::vector<int64_t> batches = {1, 8, 32, 128, 256, 512};
  std::vector<int64_t> counts = {0, 100, 1000, 5000};

  explicit Options(ProgramFlags& flags) {
    flags.Number("--vocab", vocab, {64, kMaxVocab}, "tokens of a row");
    flags.Choice("--dtype", dtype, ByName(std::array{DType::kF32, DType::kBf16}), "of the logits");
    flags.Number("--batch", batches, {1, 65535}, "rows of a call");
    flags.Number("--patches", counts, {0, kMaxVocab}, "patches of a row, no more than --vocab");
  }
};

void Run(const Options& options) {
  const auto& [vocab, dtype, batches, counts] = options;
  for (const int64_t count : counts) CheckInRange("--patches", count, 0, vocab);
  DeviceReport report(ThisGpu());
  for (const int64_t rows : batches) {
    double floor = 0;
    for (const int64_t count : counts) {
      for (const bool is_masked : {false, true}) {
        Bench bench(vocab, dtype, rows, {count, is_masked});
        if (floor == 0) floor = bench.ReadFloor();
        for (const Task& task : kTasks) {
          const double plain = bench.Time(task.params, false);
          const double applied = bench.TimeOfApplied(task.params);
          const double us = bench.Time(task.params, true);
          const auto [wrong, left] = bench.Compare(task.params, 4);
          report.Row(
              "{\"bench\": \"cuda-patches\", \"task\": \"%s\", \"backend\": \"cuda\", \"dtype\": "
              "\"%s\", \"vocab\": %lld, \"batch\": %lld, \"patches\": %lld, \"masked\": %s, "
              "\"ns\": %.0f, \"plain_ns\": %.0f, \"applied_ns\": %.0f, \"floor_ns\": %.0f, "
              "\"exact\": %s, "
              "\"left_to_definition\": %d}",
              task.name, std::string(Name(dtype)).c_str(), static_cast<long long>(vocab),
              static_cast<long long>(rows), static_cast<long long>(count),
              is_masked ? "true" : "false", us * 1e3, plain * 1e3, applied * 1e3, floor * 1e3,
              wrong == 0 ? "true" : "false", left);
          std::fprintf(stderr,
                       "%-16s %-9s B=%-4lld %5lld patches%s %8.2f us  plain %8.2f applied %8.2f  "
                       "%+6.2f us %5.2fx  floor %7.2f  wrong %d  left %d\n",
                       task.name, std::string(Name(dtype)).c_str(), static_cast<long long>(rows),
                       static_cast<long long>(count), is_masked ? " mask" : "     ", us, plain,
                       applied, us - plain, us / plain, floor, wrong, left);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(argc, argv, "sluice_cuda_patches",
                                   "Times draws from rows with patches and masks on a GPU.",
                                   sluice::bench::Run);
}
