// SPDX-License-Identifier: Apache-2.0
// What the device reaches at its best: a large matrix product by its vendor's library, a large
// copy. Both libraries are looked for while the program runs.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench_peers.hpp"
#include "device/cuda/cuda_library.hpp"
#include "device/hip/hip_api.hpp"

namespace hstu::jit::bench {
namespace {

// The device's context, current for this thread while it lives: libraries of others work in it.
class Current {
 public:
  explicit Current(const Device& device) {
    const std::string& name = device.name();
    cuda_ = name.rfind("cuda:", 0) == 0;
    if (!cuda_ && name.rfind("hip:", 0) != 0) return;
    api_ = cuda_ ? find_cuda().api : find_hip().api;
    if (!api_) return;
    ordinal_ = std::atoi(name.c_str() + name.find(':') + 1);
    if (cuda_) {
      if (api_->retain_context(&context_, ordinal_) != 0) return;
      if (api_->push_context(context_) != 0) {
        api_->release_context(ordinal_);
        return;
      }
      ready_ = true;
    } else {
      ready_ = api_->set_device(ordinal_) == 0;
    }
    library_ = dlopen(api_->origin.c_str(), RTLD_NOW | RTLD_NOLOAD);
  }
  ~Current() {
    if (library_ != nullptr) dlclose(library_);
    if (!ready_ || !cuda_) return;
    void* popped = nullptr;
    api_->pop_context(&popped);
    api_->release_context(ordinal_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  bool cuda() const { return ready_ && cuda_; }
  // Asynchronous copy inside the device; null where there is none.
  using Copy = int (*)(void* to, const void* from, size_t bytes, void* stream);
  Copy copy() const {
    Copy out = nullptr;
    if (!ready_ || library_ == nullptr) return out;
    void* symbol = dlsym(library_, cuda_ ? "cuMemcpyDtoDAsync_v2" : "hipMemcpyDtoDAsync");
    std::memcpy(&out, &symbol, sizeof out);
    return out;
  }

 private:
  std::shared_ptr<const HipApi> api_;
  bool cuda_ = false, ready_ = false;
  int ordinal_ = 0;
  void *context_ = nullptr, *library_ = nullptr;
};

// cuBLAS by its binary interface, which has been the same from version 11 on.
class Cublas {
 public:
  static constexpr int kBf16 = 14, kFloatSums = 68, kDefaultAlgorithm = -1;  // its constants

  // Empty, or why it cannot be used.
  std::string open(const std::string& path) {
    std::vector<std::string> names = {"libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.13",
                                      "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so.12"};
    if (!path.empty()) names = {path};
    for (const std::string& name : names)
      if ((library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
    if (library_ == nullptr) {
      const char* why = path.empty() ? nullptr : dlerror();
      return why != nullptr ? why : "no libcublas.so.13 or .12 on the loader's path: --cublas FILE";
    }
    Symbols symbols(library_);
    symbols.required("cublasCreate_v2", create_);
    symbols.required("cublasDestroy_v2", destroy_);
    symbols.required("cublasGemmEx", product_);
    if (!symbols.missing().empty()) return "cuBLAS lacks " + symbols.missing().front();
    const int code = create_(&handle_);
    if (code == 0) return "";
    handle_ = nullptr;
    return fmt::format("cublasCreate gave {}", code);
  }
  ~Cublas() {
    if (handle_ != nullptr) destroy_(handle_);
    // Not closed: it may have threads of its own.
  }

  // c = a * b, square, columns one after the other; all on the default stream.
  int product(int n, const void* a, const void* b, void* c) const {
    const float one = 1, zero = 0;
    return product_(handle_, 0, 0, n, n, n, &one, a, kBf16, n, b, kBf16, n, &zero, c, kBf16, n,
                    kFloatSums, kDefaultAlgorithm);
  }

 private:
  void *library_ = nullptr, *handle_ = nullptr;
  int (*create_)(void**) = nullptr;
  int (*destroy_)(void*) = nullptr;
  int (*product_)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*,
                  int, int, const void*, void*, int, int, int, int) = nullptr;
};

// Relative error of 64 elements spread over the product.
double product_error(int64_t n, const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
                     const std::vector<uint16_t>& c) {
  double errors = 0, squares = 0;
  for (int64_t sample = 0; sample < 64; ++sample) {
    const int64_t row = (sample * (n / 64) + sample % 7) % n, column = sample * 37 % 64 * (n / 64);
    double want = 0;
    for (int64_t k = 0; k < n; ++k)
      want += to_double(a[row + k * n], Dtype::bf16) * to_double(b[k + column * n], Dtype::bf16);
    const double difference = to_double(c[row + column * n], Dtype::bf16) - want;
    errors += difference * difference;
    squares += want * want;
  }
  return std::sqrt(errors / squares);
}

class CublasProduct : public MatrixProduct {
 public:
  explicit CublasProduct(Device& device) : device_(device), current_(device) {}

  Status open(const Options& options, const std::vector<uint16_t>& block) {
    if (!current_.cuda())
      return Error{ErrorKind::kUnsupported, "only known on NVIDIA GPUs (cuBLAS)", "", ""};
    if (std::string why = cublas_.open(options.cublas); !why.empty())
      return Error{ErrorKind::kUnsupported, std::move(why), "", ""};
    size_ = matrix_size(options);
    const size_t values = static_cast<size_t>(size_ * size_);
    bytes_ = values * sizeof(uint16_t);
    for (size_t n = 0; n < 3; ++n) {
      host_[n].resize(values);
      Result<std::unique_ptr<DeviceBuffer>> buffer = device_.allocate(bytes_);
      if (!buffer) return std::move(buffer).error();
      buffers_[n] = std::move(*buffer);
      if (n == 2) break;
      tile(block, n * (block.size() / 2 + 5), values, host_[n].data());
      if (Status s = device_.upload(*buffers_[n], 0, host_[n].data(), bytes_); !s) return s;
    }
    return {};
  }

  double flop() const override { return 2 * std::pow(static_cast<double>(size_), 3); }
  Status poison() override { return device_.fill(*buffers_[2], 0xff); }
  Status run() override {
    const int code = cublas_.product(static_cast<int>(size_), buffers_[0]->data(),
                                     buffers_[1]->data(), buffers_[2]->data());
    if (code == 0) return {};
    return Error{ErrorKind::kDevice, fmt::format("cublasGemmEx gave {}", code), "", ""};
  }
  Status check() override {
    if (Status s = device_.download(host_[2].data(), *buffers_[2], 0, bytes_); !s) return s;
    const double error = product_error(size_, host_[0], host_[1], host_[2]);
    if (error < 5e-3) return {};
    return Error{ErrorKind::kMismatch,
                 fmt::format("cuBLAS's product is wrong: relative error {:.2e}", error), "", ""};
  }

 private:
  Device& device_;
  const Current current_;  // outlives the library's handle
  Cublas cublas_;
  int64_t size_ = 0;
  size_t bytes_ = 0;
  std::vector<uint16_t> host_[3];
  std::unique_ptr<DeviceBuffer> buffers_[3];
};

Ceiling or_reason(Result<Ceiling> ceiling) {
  if (ceiling) return *ceiling;
  return {0, {}, ceiling.error().message};
}

}  // namespace

Result<std::unique_ptr<MatrixProduct>> make_matrix_product(Device& device, const Options& options,
                                                           const std::vector<uint16_t>& block) {
  auto product = std::make_unique<CublasProduct>(device);
  if (Status s = product->open(options, block); !s) return std::move(s).error();
  return std::unique_ptr<MatrixProduct>(std::move(product));
}

Ceiling matrix_ceiling(Device& device, const Options& options, const std::vector<uint16_t>& block) {
  const auto measure = [&]() -> Result<Ceiling> {
    Result<std::unique_ptr<MatrixProduct>> product = make_matrix_product(device, options, block);
    if (!product) return std::move(product).error();
    const Result<Summary> ms = time_work(
        device, options, {[&] { return (*product)->poison(); }, [&] { return (*product)->run(); }});
    if (!ms) return ms.error();
    if (Status s = (*product)->check(); !s) return std::move(s).error();
    return Ceiling{tflops((*product)->flop(), ms->median), *ms, ""};
  };
  return or_reason(measure());
}

Result<Summary> time_copy(Device& device, const Options& options,
                          const std::vector<uint16_t>& block, size_t bytes) {
  const Current current(device);
  const Current::Copy copy = current.copy();
  const bool host = device.target().vendor == Vendor::cpu;
  if (copy == nullptr && !host)
    return Error{ErrorKind::kUnsupported, "the driver has no copy inside the device", "", ""};
  std::unique_ptr<DeviceBuffer> buffers[2];
  for (auto& buffer : buffers) {
    Result<std::unique_ptr<DeviceBuffer>> made = device.allocate(bytes);
    if (!made) return std::move(made).error();
    buffer = std::move(*made);
  }
  const size_t step = block.size() * sizeof(uint16_t);
  for (size_t at = 0; at < bytes; at += step)
    if (Status s = device.upload(*buffers[0], at, block.data(), std::min(step, bytes - at)); !s)
      return std::move(s).error();
  Result<Summary> ms =
      time_work(device, options,
                {[&] { return device.fill(*buffers[1], 0xff); },
                 [&]() -> Status {
                   if (host) {
                     std::memcpy(buffers[1]->data(), buffers[0]->data(), bytes);
                     return {};
                   }
                   const int code = copy(buffers[1]->data(), buffers[0]->data(), bytes, nullptr);
                   if (code == 0) return {};
                   return Error{ErrorKind::kDevice, fmt::format("the copy gave {}", code), "", ""};
                 }});
  if (!ms) return std::move(ms).error();
  const size_t last = std::min<size_t>(bytes, 4096);
  std::vector<char> want(last), got(last);
  if (Status s = device.download(want.data(), *buffers[0], bytes - last, last); !s)
    return std::move(s).error();
  if (Status s = device.download(got.data(), *buffers[1], bytes - last, last); !s)
    return std::move(s).error();
  if (want != got)
    return Error{ErrorKind::kMismatch, "the copy's last bytes are not the source's", "", ""};
  return *ms;
}

Ceiling copy_ceiling(Device& device, const Options& options, const std::vector<uint16_t>& block) {
  const auto measure = [&]() -> Result<Ceiling> {
    // Far larger than any cache of the device.
    size_t bytes = device.target().vendor == Vendor::cpu ? size_t{128} << 20 : size_t{2} << 30;
    if (options.scale > 1) bytes >>= 3;
    if (device.free_memory() > 0) bytes = std::min(bytes, device.free_memory() / 4);
    const Result<Summary> ms = time_copy(device, options, block, bytes);
    if (!ms) return ms.error();
    return Ceiling{tflops(2 * static_cast<double>(bytes), ms->median), *ms, ""};
  };
  return or_reason(measure());
}

std::optional<double> best_rate(const std::vector<Ceiling>& ceilings) {
  double best = 0;
  for (const Ceiling& ceiling : ceilings) best = std::max(best, ceiling.rate);
  if (best == 0) return std::nullopt;
  return best;
}

}  // namespace hstu::jit::bench
