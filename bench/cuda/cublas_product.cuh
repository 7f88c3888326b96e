// The peer of a head on a GPU: the library's product of bf16 matrices, found at run time, so that
// the bench runs where the library is not.
#pragma once

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "bench/cuda/graph_timer.cuh"

namespace sluice::bench {

class CublasProduct {
 public:
  static constexpr int kMostAlgorithms = 8;
  static constexpr size_t kWorkspaceBytes = 32 << 20;

  CublasProduct() : workspace_(kWorkspaceBytes) {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
      if (library_ == nullptr) library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library_ == nullptr) return;
    Find("cublasLtCreate", create_);
    Find("cublasLtMatmulDescCreate", create_product_);
    Find("cublasLtMatmulDescSetAttribute", set_product_);
    Find("cublasLtMatrixLayoutCreate", create_layout_);
    Find("cublasLtMatmulPreferenceCreate", create_preference_);
    Find("cublasLtMatmulPreferenceSetAttribute", set_preference_);
    Find("cublasLtMatmulAlgoGetHeuristic", get_algorithms_);
    Find("cublasLtMatmul", multiply_);
    if (library_ != nullptr && create_(&handle_) != CUBLAS_STATUS_SUCCESS) library_ = nullptr;
  }

  bool is_there() const { return library_ != nullptr; }

  // logits [rows, vocab] = hidden [rows, dim] times weight [vocab, dim], transposed. Answers how
  // many ways to compute it the library has.
  int Plan(int64_t vocab, int64_t dim, int64_t rows) {
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulPreference_t preference;
    const uint64_t most = kWorkspaceBytes;
    create_product_(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set_product_(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    create_layout_(&weight_, CUDA_R_16BF, static_cast<uint64_t>(dim), static_cast<uint64_t>(vocab),
                   dim);
    create_layout_(&hidden_, CUDA_R_16BF, static_cast<uint64_t>(dim), static_cast<uint64_t>(rows),
                   dim);
    create_layout_(&logits_, CUDA_R_16BF, static_cast<uint64_t>(vocab), static_cast<uint64_t>(rows),
                   vocab);
    create_preference_(&preference);
    set_preference_(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    int count = 0;
    get_algorithms_(handle_, product_, weight_, hidden_, logits_, logits_, preference,
                    kMostAlgorithms, algorithms_, &count);
    return count;
  }

  bool Multiply(int algorithm, const void* weight, const void* hidden, void* logits,
                cudaStream_t stream) const {
    const float one = 1.0f, zero = 0.0f;
    return multiply_(handle_, product_, &one, weight, weight_, hidden, hidden_, &zero, logits,
                     logits_, logits, logits_, &algorithms_[algorithm].algo, workspace_.data(),
                     kWorkspaceBytes, stream) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  template <typename Function>
  void Find(const char* name, Function& function) {
    if (library_ == nullptr) return;
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) library_ = nullptr;
  }

  void* library_ = nullptr;
  decltype(&cublasLtCreate) create_ = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_product_ = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product_ = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout_ = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference_ = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference_ = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_algorithms_ = nullptr;
  decltype(&cublasLtMatmul) multiply_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr, hidden_ = nullptr, logits_ = nullptr;
  cublasLtMatmulHeuristicResult_t algorithms_[kMostAlgorithms] = {};
  DeviceMemory<std::byte> workspace_;
};

}  // namespace sluice::bench
