#include "model/weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string>

#include "model/layer_backend.h"
#include "semantics/widen.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice::model {
namespace {

constexpr int64_t kRowsAtOnce = 64;  // of a parallel-for's task

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    text.append(text.size() > 1 ? ", " : "").append(ToText(extent));
  }
  return text + "]";
}

std::optional<DType> FloatType(StoredType type) {
  switch (type) {
    case StoredType::kF32:
      return DType::kF32;
    case StoredType::kBf16:
      return DType::kBf16;
    case StoredType::kF16:
      return DType::kF16;
    default:
      return std::nullopt;
  }
}

bool IsPowerOfTwo(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t exponent = bits >> 23;
  return (bits & 0x7fffffu) == 0 && exponent > 0 && exponent < 255;
}

class Reader {
 public:
  Reader(const ModelConfig& config, const StoredTensors& tensors, const ModelOptions& options,
         const ParallelFor& parallel)
      : config_(config), tensors_(tensors), options_(options), parallel_(parallel) {
    // Models of text and images have the text's tensors further down.
    for (const char* prefix : {"model.", "language_model.model.", "model.language_model."}) {
      if (tensors.contains(std::string(prefix) + "embed_tokens.weight")) prefix_ = prefix;
    }
  }

  // Once to look, which throws for all that does not fit, and once to read.
  Weights Read() {
    only_looks_ = true;
    ReadAll();
    only_looks_ = false;
    total_ = done_;
    done_ = 0;
    Weights weights = ReadAll();
    weights.memory = std::move(memory_);
    weights.bytes = read_bytes_;
    weights.parameters = parameters_;
    return weights;
  }

 private:
  [[noreturn]] static void Refuse(const std::string& file, const std::string& name,
                                  const std::string& value, const std::string& allowed) {
    ThrowInvalid(std::string(file).append(": ").append(name), value, allowed);
  }

  Weights ReadAll() {
    parameters_ = 0;
    read_bytes_ = 0;
    const ModelInfo& info = config_.info;
    Weights weights;
    weights.embedding = Table(prefix_ + "embed_tokens", info.vocab, info.dim);
    weights.head = info.has_tied_head ? weights.embedding : Table("lm_head", info.vocab, info.dim);
    read_bytes_ += static_cast<size_t>(info.vocab * info.dim) * SizeOf(weights.head.dtype);
    weights.last_norm = Norm(prefix_ + "norm", info.dim);
    for (int64_t i = 0; i < info.layers; ++i) {
      LayerWeights layer = Layer(prefix_ + "layers." + ToText(i) + ".");
      if (!only_looks_) weights.layers.push_back(std::move(layer));
    }
    return weights;
  }

  LayerWeights Layer(const std::string& at) {
    const ModelInfo& info = config_.info;
    const int64_t queries = info.heads * info.head_dim, keys = info.kv_heads * info.head_dim;
    LayerWeights layer;
    layer.attention_norm = Norm(at + "input_layernorm", info.dim);
    layer.query = Matrix(at + "self_attn.q_proj", queries, info.dim, config_.has_qkv_bias);
    layer.key = Matrix(at + "self_attn.k_proj", keys, info.dim, config_.has_qkv_bias);
    layer.value = Matrix(at + "self_attn.v_proj", keys, info.dim, config_.has_qkv_bias);
    if (config_.has_qk_norm) {
      layer.query_norm = Norm(at + "self_attn.q_norm", info.head_dim);
      layer.key_norm = Norm(at + "self_attn.k_norm", info.head_dim);
    }
    layer.output = Matrix(at + "self_attn.o_proj", info.dim, queries, config_.has_output_bias);
    if (config_.has_post_norms) {
      layer.post_attention_norm = Norm(at + "post_attention_layernorm", info.dim);
      layer.ffn_norm = Norm(at + "pre_feedforward_layernorm", info.dim);
      layer.post_ffn_norm = Norm(at + "post_feedforward_layernorm", info.dim);
    } else {
      layer.ffn_norm = Norm(at + "post_attention_layernorm", info.dim);
    }
    layer.gate = Matrix(at + "mlp.gate_proj", info.ffn_dim, info.dim, config_.has_ffn_bias);
    layer.up = Matrix(at + "mlp.up_proj", info.ffn_dim, info.dim, config_.has_ffn_bias);
    layer.down = Matrix(at + "mlp.down_proj", info.dim, info.ffn_dim, config_.has_ffn_bias);
    return layer;
  }

  const StoredTensor& Find(const std::string& name, std::span<const int64_t> shape) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      Refuse("safetensors", name, "missing",
             std::string("a tensor of shape ").append(ShapeText(shape)));
    }
    const StoredTensor& tensor = found->second;
    if (!std::ranges::equal(tensor.shape, shape)) {
      Refuse(tensor.file, name, std::string("shape ").append(ShapeText(tensor.shape)),
             ShapeText(shape));
    }
    return tensor;
  }

  // Its bytes as a matrix, where they lie if their alignment allows it.
  MatrixView FloatView(const std::string& name, const StoredTensor& tensor, int64_t rows,
                       int64_t columns) {
    const auto dtype = FloatType(tensor.type);
    if (!dtype) {
      const char* const allowed =
          config_.is_int8 ? "F32, BF16, F16, or I8 with a weight_scale" : "F32, BF16, F16";
      Refuse(tensor.file, name, "dtype " + tensor.type_name, allowed);
    }
    done_ += tensor.bytes.size();
    MatrixView view{tensor.bytes.data(), rows, columns, columns, *dtype, {}};
    if (only_looks_) return view;
    if (reinterpret_cast<uintptr_t>(view.data) % SizeOf(*dtype) != 0) {
      std::byte* const copy = memory_.Take(tensor.bytes.size());
      std::memcpy(copy, tensor.bytes.data(), tensor.bytes.size());
      view.data = copy;
    }
    Report();
    return view;
  }

  std::vector<float> Vector(const std::string& name, std::span<const int64_t> shape) {
    const StoredTensor& tensor = Find(name, shape);
    const int64_t size = shape[0];
    const MatrixView view = FloatView(name, tensor, 1, size);
    parameters_ += size;
    std::vector<float> values;
    if (only_looks_) return values;
    for (int64_t i = 0; i < size; ++i) {
      values.push_back(semantics::Load(view.data, view.dtype, i));
    }
    read_bytes_ += values.size() * sizeof(float);
    return values;
  }

  std::vector<float> Norm(const std::string& base, int64_t width) {
    std::vector<float> weight = Vector(base + ".weight", {{width}});
    if (config_.norm_adds_one) {
      for (float& w : weight) w += 1.0f;
    }
    return weight;
  }

  // The scales of a matrix that is stored in int8: [rows, 1] or [rows].
  std::vector<float> Scales(const std::string& base, int64_t rows) {
    const std::string name = base + ".weight_scale";
    const auto found = tensors_.find(name);
    const bool is_flat = found != tensors_.end() && found->second.shape.size() == 1;
    std::vector<float> scales =
        is_flat ? Vector(name, {{rows}}) : Vector(name, {{rows, int64_t{1}}});
    // They belong to weights that are counted.
    parameters_ -= rows;
    read_bytes_ -= scales.size() * sizeof(float);
    return scales;
  }

  bool IsStoredInt8(const std::string& base, const StoredTensor& tensor) const {
    return config_.is_int8 && tensor.type == StoredType::kI8 &&
           tensors_.contains(base + ".weight_scale");
  }

  Linear Matrix(const std::string& base, int64_t rows, int64_t columns, bool has_bias) {
    const StoredTensor& tensor = Find(base + ".weight", {{rows, columns}});
    Linear linear;
    if (IsStoredInt8(base, tensor)) {
      const std::vector<float> scales = Scales(base, rows);
      done_ += tensor.bytes.size();
      if (!only_looks_) linear.codes = StoredCodes(tensor, scales, rows, columns);
    } else {
      const MatrixView floats = FloatView(base + ".weight", tensor, rows, columns);
      if (only_looks_ || options_.weights == WeightFormat::kAsStored) {
        linear.floats = floats;
      } else {
        linear.codes = Rounded(floats);
      }
    }
    parameters_ += rows * columns;
    read_bytes_ +=
        linear.is_int8()
            ? static_cast<size_t>(rows * columns) + static_cast<size_t>(rows) * sizeof(float)
            : static_cast<size_t>(rows * columns) * SizeOf(linear.floats.dtype);
    if (has_bias) linear.bias = Vector(base + ".bias", {{rows}});
    if (!only_looks_) Report();
    return linear;
  }

  const float* Keep(std::span<const float> values) {
    std::byte* const to = memory_.Take(values.size_bytes());
    std::memcpy(to, values.data(), values.size_bytes());
    return reinterpret_cast<const float*>(to);
  }

  int8_t* TakeCodes(int64_t rows, int64_t columns) {
    return reinterpret_cast<int8_t*>(
        memory_.Take(static_cast<size_t>(rows) * CodeStride(static_cast<size_t>(columns))));
  }

  Int8Matrix StoredCodes(const StoredTensor& tensor, std::span<const float> scales, int64_t rows,
                         int64_t columns) {
    const size_t width = static_cast<size_t>(columns), stride = CodeStride(width);
    const auto* const stored = reinterpret_cast<const int8_t*>(tensor.bytes.data());
    Int8Matrix matrix{stored, Keep(scales), rows, columns};
    if (width == stride) return matrix;
    int8_t* const codes = TakeCodes(rows, columns);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      std::memcpy(codes + r * stride, stored + r * width, width);
      std::memset(codes + r * stride + width, 0, stride - width);
    }
    matrix.codes = codes;
    return matrix;
  }

  // ModelOptions::weights = kInt8.
  Int8Matrix Rounded(const MatrixView& floats) {
    const size_t width = static_cast<size_t>(floats.columns), stride = CodeStride(width);
    int8_t* const codes = TakeCodes(floats.rows, floats.columns);
    auto* const scales =
        reinterpret_cast<float*>(memory_.Take(static_cast<size_t>(floats.rows) * sizeof(float)));
    const LayerTable& table = LayerTableFor(Backend::kAuto);
    const int64_t tasks = (floats.rows + kRowsAtOnce - 1) / kRowsAtOnce;
    ForEachRow(parallel_, tasks, [&](int64_t task, int) {
      std::vector<float> row(width);
      std::vector<int16_t> wide(stride);
      const int64_t end = std::min((task + 1) * kRowsAtOnce, floats.rows);
      for (int64_t r = task * kRowsAtOnce; r < end; ++r) {
        for (size_t i = 0; i < width; ++i) {
          row[i] = semantics::Load(floats.Row(r), floats.dtype, static_cast<int64_t>(i));
        }
        scales[r] = table.encode(row.data(), width, wide.data());
        std::ranges::copy(wide, codes + static_cast<size_t>(r) * stride);
      }
    });
    return {codes, scales, floats.rows, floats.columns};
  }

  // The embeddings or the head. In int8 with scales that are powers of two, each weight is a bf16
  // exactly, and the head is one like any other; with other scales it needs fp32.
  MatrixView Table(const std::string& base, int64_t rows, int64_t columns) {
    const StoredTensor& tensor = Find(base + ".weight", {{rows, columns}});
    parameters_ += rows * columns;
    if (!IsStoredInt8(base, tensor)) return FloatView(base + ".weight", tensor, rows, columns);
    const std::vector<float> scales = Scales(base, rows);
    done_ += tensor.bytes.size();
    if (only_looks_) return {};
    const bool is_bf16 = std::ranges::all_of(scales, IsPowerOfTwo);
    MatrixView table{nullptr, rows, columns, columns, is_bf16 ? DType::kBf16 : DType::kF32, {}};
    std::byte* const to = memory_.Take(static_cast<size_t>(rows * columns) * SizeOf(table.dtype));
    table.data = to;
    const int64_t tasks = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
    ForEachRow(parallel_, tasks, [&](int64_t task, int) {
      const auto begin = static_cast<size_t>(task * kRowsAtOnce * columns);
      const auto end = static_cast<size_t>(std::min((task + 1) * kRowsAtOnce, rows) * columns);
      const auto* const codes = reinterpret_cast<const int8_t*>(tensor.bytes.data());
      for (size_t i = begin; i < end; ++i) {
        const float weight =
            static_cast<float>(codes[i]) * scales[i / static_cast<size_t>(columns)];
        if (is_bf16) {
          reinterpret_cast<uint16_t*>(to)[i] =
              static_cast<uint16_t>(std::bit_cast<uint32_t>(weight) >> 16);
        } else {
          reinterpret_cast<float*>(to)[i] = weight;
        }
      }
    });
    Report();
    return table;
  }

  void Report() const {
    if (options_.progress != nullptr) options_.progress(options_.progress_context, done_, total_);
  }

  const ModelConfig& config_;
  const StoredTensors& tensors_;
  const ModelOptions& options_;
  const ParallelFor& parallel_;
  std::string prefix_ = "model.";
  WeightMemory memory_;
  bool only_looks_ = false;
  size_t done_ = 0, total_ = 0;  // bytes of the files
  int64_t parameters_ = 0;
  size_t read_bytes_ = 0;
};

}  // namespace

std::byte* WeightMemory::Take(size_t bytes) {
  auto* const memory = static_cast<std::byte*>(
      ::operator new(std::max(bytes, size_t{1}), std::align_val_t(kWorkspaceAlignment)));
  blocks_.emplace_back(memory);
  return memory;
}

void WeightMemory::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t(kWorkspaceAlignment));
}

Weights ReadWeights(const ModelConfig& config, const StoredTensors& tensors,
                    const ModelOptions& options, const ParallelFor& parallel) {
  return Reader(config, tensors, options, parallel).Read();
}

}  // namespace sluice::model
