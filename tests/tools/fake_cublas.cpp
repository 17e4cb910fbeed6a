// SPDX-License-Identifier: Apache-2.0
// A cuBLAS of one product, on a fake driver whose device memory is host memory: by its published
// definition c = a b, columns one after the other. FAKE_CUBLAS=wrong makes the product wrong,
// FAKE_CUBLAS=fail makes the call fail.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

bool told(const char* what) {
  const char* value = std::getenv("FAKE_CUBLAS");
  return value != nullptr && std::strcmp(value, what) == 0;
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
uint16_t to_bf16(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  return static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

int handle;

}  // namespace

FAKE_EXPORT int cublasCreate_v2(void** out) {
  *out = &handle;
  return 0;
}
FAKE_EXPORT int cublasDestroy_v2(void* given) { return given == &handle ? 0 : 1; }

// Types and constants as NVIDIA documents them: CUDA_R_16BF is 14, CUBLAS_COMPUTE_32F 68.
FAKE_EXPORT int cublasGemmEx(void* given, int op_a, int op_b, int m, int n, int k,
                             const void* alpha, const void* a, int type_a, int lda, const void* b,
                             int type_b, int ldb, const void* beta, void* c, int type_c, int ldc,
                             int compute, int algorithm) {
  if (given != &handle || op_a != 0 || op_b != 0 || type_a != 14 || type_b != 14 || type_c != 14 ||
      compute != 68 || algorithm != -1 || lda < m || ldb < k || ldc < m)
    return 7;  // CUBLAS_STATUS_INVALID_VALUE
  if (told("fail")) return 13;
  float scale, keep;
  std::memcpy(&scale, alpha, sizeof scale);
  std::memcpy(&keep, beta, sizeof keep);
  const auto* left = static_cast<const uint16_t*>(a);
  const auto* right = static_cast<const uint16_t*>(b);
  auto* out = static_cast<uint16_t*>(c);
  std::vector<float> column(static_cast<size_t>(m));
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < m; ++i)
      column[i] = keep == 0 ? 0 : keep * from_bf16(out[i + int64_t{j} * ldc]);
    for (int x = 0; x < k; ++x) {
      const float factor = scale * from_bf16(right[x + int64_t{j} * ldb]);
      for (int i = 0; i < m; ++i) column[i] += factor * from_bf16(left[i + int64_t{x} * lda]);
    }
    if (told("wrong")) column[0] += 100, column[static_cast<size_t>(m) / 2] += 100;
    for (int i = 0; i < m; ++i) out[i + int64_t{j} * ldc] = to_bf16(column[i]);
  }
  return 0;
}
