// SPDX-License-Identifier: Apache-2.0
// hstu-jit-bench-onednn: the cpu kernel against the two matrix products alone through oneDNN.
//
// Both run in turns in this process on the same number of threads, because only ratios within one
// run mean something on a shared machine. oneDNN gets dense per-head tensors and does q k^T and p v
// with bf16 results, nothing in between; under a mask only for blocks of keys that hold visible
// pairs. It may choose between whole heads and blocks, whichever is faster. The output of the last
// timed launch is validated.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>
#include <functional>
#include <limits>

#include "bench/bench.hpp"
#include "check/check.hpp"
#include "cli/tensors.hpp"
#include "device/cpu/cpu_device.hpp"
#include "engine/engine.hpp"

namespace {

using namespace hstu::jit;
using Dims = dnnl::memory::dims;

constexpr int kHeads = 4;
constexpr int kRepetitions = 9;

struct Case {
  int length;
  int head_dim;
  bool causal;
  int window;  // 0: none
};

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const auto span = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::milli>(span).count();
}

Problem problem_of(const Case& c) {
  Problem p;
  p.name = "bench";
  p.heads = kHeads;
  p.head_dim_qk = p.head_dim_v = c.head_dim;
  p.layout = hstu::jit::Layout::batched;
  p.batch = 1;
  p.uih_q = p.uih_kv = {c.length};
  p.num_targets = {0};
  p.causal = c.causal;
  p.mask.local_len = c.window;
  p.validate.rows = 64;
  return p;
}

// The products of one head, or of all heads at once, cut into blocks of rows and keys.
class Products {
 public:
  Products(const Case& c, int rows, int keys, int heads)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const int64_t n = c.length, d = c.head_dim;
    const size_t elements = static_cast<size_t>(kHeads * n * d);
    for (auto* tensor : {&q_, &k_, &v_, &o_}) tensor->assign(elements, 0x3e80);  // 0.25
    p_.assign(static_cast<size_t>(heads) * static_cast<size_t>(rows) * static_cast<size_t>(keys),
              0x3e80);
    for (int h = 0; h < kHeads; h += heads)
      for (int64_t row = 0; row < n; row += rows) {
        const int64_t m = std::min<int64_t>(rows, n - row);
        const int64_t begin = c.window > 0 ? std::max<int64_t>(0, row - c.window) / 32 * 32 : 0;
        const int64_t end = c.causal ? row + m : n;
        for (int64_t key = begin; key < end; key += keys) {
          const int64_t count = std::min<int64_t>(keys, end - key);
          const size_t at_row = static_cast<size_t>((h * n + row) * d);
          const size_t at_key = static_cast<size_t>((h * n + key) * d);
          add({heads, m, d}, {n * d, d, 1}, &q_[at_row], {heads, d, count}, {n * d, 1, d},
              &k_[at_key], {heads, m, count}, {m * count, count, 1}, p_.data());
          add({heads, m, count}, {m * count, count, 1}, p_.data(), {heads, count, d}, {n * d, d, 1},
              &v_[at_key], {heads, m, d}, {n * d, d, 1}, &o_[at_row]);
        }
      }
  }

  void run() {
    for (Step& step : steps_) step.product.execute(stream_, step.arguments);
    stream_.wait();
  }

 private:
  struct Step {
    dnnl::matmul product;
    std::unordered_map<int, dnnl::memory> arguments;
  };

  void add(const Dims& a, const Dims& a_strides, uint16_t* a_data, const Dims& b,
           const Dims& b_strides, uint16_t* b_data, const Dims& c, const Dims& c_strides,
           uint16_t* c_data) {
    constexpr auto bf16 = dnnl::memory::data_type::bf16;
    const dnnl::memory::desc left(a, bf16, a_strides), right(b, bf16, b_strides);
    const dnnl::memory::desc result(c, bf16, c_strides);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(left, right, result),
                                                   engine_);
    steps_.push_back({dnnl::matmul(description),
                      {{DNNL_ARG_SRC, dnnl::memory(left, engine_, a_data)},
                       {DNNL_ARG_WEIGHTS, dnnl::memory(right, engine_, b_data)},
                       {DNNL_ARG_DST, dnnl::memory(result, engine_, c_data)}}});
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<uint16_t> q_, k_, v_, o_, p_;
  std::vector<Step> steps_;
};

// One line of the table. Errors: whatever planning, compiling or validation say.
Status run_case(const Case& c, Engine& engine, Device& device) {
  const Problem problem = problem_of(c);
  Result<Geometry> geometry = make_geometry(problem);
  if (!geometry) return std::move(geometry).error();
  Result<Prepared> prepared = engine.prepare(problem, *geometry, device.target());
  if (!prepared) return std::move(prepared).error();
  Result<std::unique_ptr<DeviceKernel>> kernel =
      device.load(prepared->kernel->object, prepared->kernel->entry);
  if (!kernel) return std::move(kernel).error();
  Result<cli::DeviceTensors> tensors = cli::DeviceTensors::create(problem, *geometry, device);
  if (!tensors) return std::move(tensors).error();
  const hstu::ForwardArguments arguments = tensors->arguments();
  const LaunchGrid grid{prepared->plan.launch.grid, 1, 0};

  std::vector<std::unique_ptr<Products>> products;
  const int rows = std::min(256, c.length);
  if (!c.causal && c.window == 0) {
    products.push_back(std::make_unique<Products>(c, c.length, c.length, kHeads));
    products.push_back(std::make_unique<Products>(c, c.length, c.length, 1));
  }
  products.push_back(std::make_unique<Products>(c, rows, 256, 1));
  products.push_back(std::make_unique<Products>(c, rows, 256, kHeads));
  products.push_back(std::make_unique<Products>(c, rows, c.length, kHeads));

  std::vector<double> ours;
  std::vector<std::vector<double>> theirs(products.size());
  for (int i = 0; i <= kRepetitions; ++i) {  // the first round warms up
    if (Status s = tensors->poison_outputs(); !s) return s;
    Status launched;
    const double ms = milliseconds(
        [&] { launched = device.launch(**kernel, grid, &arguments, sizeof arguments, nullptr); });
    if (!launched) return launched;
    if (i > 0) ours.push_back(ms);
    for (size_t p = 0; p < products.size(); ++p) {
      const double other = milliseconds([&] { products[p]->run(); });
      if (i > 0) theirs[p].push_back(other);
    }
  }
  cli::HostOutput output;
  if (Status s = tensors->download(output); !s) return s;
  const Comparison check = compare(problem, *geometry, tensors->inputs(), output.o, output.lse,
                                   prepared->plan.config.tile_m, {});
  if (!check.pass) return Error{ErrorKind::kMismatch, check.summary, "", ""};

  const double mine = summarize(ours).median;
  double best = std::numeric_limits<double>::infinity();
  for (const auto& times : theirs) best = std::min(best, summarize(times).median);
  const double pairs = static_cast<double>(visible_pairs(*geometry)) * kHeads;
  std::printf("%s\n",
              fmt::format("{:>6} {:>4} {:>7} {:>7} {:>10.3f} {:>12.3f} {:>7.2f} {:>9.3f} "
                          "{:>8.0f} {:>9.1e}",
                          c.length, c.head_dim, c.causal ? "causal" : "full",
                          c.window > 0 ? fmt::format("{}", c.window) : "-", mine, best, mine / best,
                          mine * 1e6 / pairs, useful_flops(problem, *geometry) / mine * 1e-6,
                          check.rel_frobenius)
                  .c_str());
  std::fflush(stdout);
  return {};
}

int fail(const Error& error) {
  std::fprintf(stderr, "hstu-jit-bench-onednn: %s\n", error.message.c_str());
  return exit_code(error.kind);
}

int run() {
  Result<int> threads = cpu_thread_count();
  if (!threads) return fail(threads.error());
  omp_set_num_threads(*threads);
  Result<std::unique_ptr<Device>> device = open_cpu_device();
  if (!device) return fail(device.error());
  Result<std::unique_ptr<Engine>> engine = Engine::create({});
  if (!engine) return fail(engine.error());
  std::printf("%s\nbf16, %d heads, SiLU; oneDNN: its two products alone, the fastest of its ways\n",
              (*device)->description().c_str(), kHeads);
  std::printf(
      "length  dim    mask  window    ours ms    oneDNN ms   ratio   ns/pair   GFLOP/s"
      "     error\n");
  for (const int length : {1024, 2048})
    for (const int dim : {64, 128, 256})
      for (const bool causal : {false, true})
        if (Status s = run_case({length, dim, causal, 0}, **engine, **device); !s)
          return fail(s.error());
  std::printf("cost per visible pair under a window\n");
  for (const int window : {256, 5})
    for (const int dim : {64, 128, 256})
      if (Status s = run_case({2048, dim, true, window}, **engine, **device); !s)
        return fail(s.error());
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {  // oneDNN throws
    std::fprintf(stderr, "hstu-jit-bench-onednn: %s\n", error.what());
    return 1;
  }
}
