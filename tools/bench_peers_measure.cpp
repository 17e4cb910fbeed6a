// SPDX-License-Identifier: Apache-2.0
// One row: inputs, timed launches, validation of what the last of them wrote.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "bench_peers.hpp"
#include "check/parallel.hpp"
#include "engine/forward_launch.hpp"

namespace hstu::jit::bench {
namespace {

// 64 MiB less a little: repeated, no row of a tensor starts where an earlier one did.
constexpr size_t kBlockValues = (size_t{1} << 25) - 39;
constexpr size_t kMostSequences = 32;
constexpr int64_t kSampledRows = 256;  // a head, over all tokens

Result<double> time_once(Device& device, const Work& work) {
  if (Status s = work.before(); !s) return std::move(s).error();
  if (Status s = device.flush_cache(nullptr); !s) return std::move(s).error();
  Result<std::unique_ptr<DeviceEvent>> start = device.record(nullptr);
  if (!start) return std::move(start).error();
  if (Status s = work.work(); !s) return std::move(s).error();
  Result<std::unique_ptr<DeviceEvent>> stop = device.record(nullptr);
  if (!stop) return std::move(stop).error();
  return device.elapsed(**start, **stop);
}

// Spread evenly, and the shortest and the longest.
std::vector<Geometry::Sequence> sampled_sequences(const std::vector<Geometry::Sequence>& all) {
  if (all.size() <= kMostSequences) return all;
  std::vector<size_t> places;
  for (size_t n = 0; n < kMostSequences; ++n)
    places.push_back(n * (all.size() - 1) / (kMostSequences - 1));
  const auto shorter = [](const auto& a, const auto& b) { return a.seqlen_q < b.seqlen_q; };
  const auto [least, most] = std::minmax_element(all.begin(), all.end(), shorter);
  places.push_back(static_cast<size_t>(least - all.begin()));
  places.push_back(static_cast<size_t>(most - all.begin()));
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  std::vector<Geometry::Sequence> out;
  for (const size_t b : places) out.push_back(all[b]);
  return out;
}

// Elements that are no finite bf16 numbers, as the poison is none.
int64_t count_unwritten(const std::vector<uint16_t>& o) {
  constexpr size_t kChunk = size_t{1} << 20;
  std::atomic<int64_t> count{0};
  (void)parallel_for((o.size() + kChunk - 1) / kChunk, [&](size_t n) {
    const size_t end = std::min(o.size(), (n + 1) * kChunk);
    int64_t found = 0;
    for (size_t i = n * kChunk; i < end; ++i) found += (o[i] & 0x7f80) == 0x7f80;
    count += found;
  });
  return count;
}

}  // namespace

std::vector<uint16_t> random_block(size_t values, uint32_t seed) {
  constexpr size_t kSlice = size_t{1} << 16;
  std::vector<uint16_t> block(values);
  (void)parallel_for((values + kSlice - 1) / kSlice, [&](size_t n) {
    std::seed_seq seeds{seed, static_cast<uint32_t>(n)};
    std::mt19937 generator(seeds);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    const size_t end = std::min(values, (n + 1) * kSlice);
    for (size_t i = n * kSlice; i < end; ++i) block[i] = from_float(normal(generator), Dtype::bf16);
  });
  return block;
}

void tile(const std::vector<uint16_t>& block, size_t offset, size_t values, uint16_t* out) {
  constexpr size_t kChunk = size_t{1} << 20;
  (void)parallel_for((values + kChunk - 1) / kChunk, [&](size_t n) {
    const size_t end = std::min(values, (n + 1) * kChunk);
    for (size_t i = n * kChunk; i < end;) {
      const size_t from = (offset + i) % block.size();
      const size_t count = std::min(end - i, block.size() - from);
      std::memcpy(out + i, block.data() + from, count * sizeof(uint16_t));
      i += count;
    }
  });
}

Result<std::vector<Summary>> time_in_turn(Device& device, const Options& options,
                                          const std::vector<Work>& works) {
  if (Status s = device.synchronize(nullptr); !s) return std::move(s).error();
  std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
  const double timed_ms = kTimedMs * static_cast<double>(works.size());
  double least = std::numeric_limits<double>::infinity(), total = 0;
  for (int i = 0; i < 3 && (i < 2 || total < timed_ms / 2); ++i) {
    double all = 0;
    for (const Work& work : works) {
      const Result<double> ms = time_once(device, work);
      if (!ms) return ms.error();
      all += *ms;
    }
    least = std::min(least, all);
    total += all;
  }
  int runs = options.iterations;
  if (runs <= 0)
    runs = static_cast<int>(std::clamp(std::ceil(timed_ms / std::max(least, 1e-6)),
                                       double{kLeastRuns}, double{kMostRuns}));
  std::vector<std::vector<double>> all(works.size());
  for (int i = 0; i < runs; ++i) {
    for (size_t n = 0; n < works.size(); ++n) {
      const Result<double> ms = time_once(device, works[n]);
      if (!ms) return ms.error();
      all[n].push_back(*ms);
    }
  }
  std::vector<Summary> out;
  for (std::vector<double>& times : all) out.push_back(summarize(std::move(times)));
  return out;
}

Result<Summary> time_work(Device& device, const Options& options, const Work& work) {
  const Result<std::vector<Summary>> ms = time_in_turn(device, options, {work});
  if (!ms) return ms.error();
  return ms->front();
}

Validation validate(const Problem& problem, const Geometry& geometry, const HostTensors& inputs,
                    const cli::HostOutput& output, int tile_m) {
  Validation out;
  if (const int64_t bad = count_unwritten(output.o); bad > 0) {
    out.error = std::numeric_limits<double>::infinity();
    out.checked = static_cast<int64_t>(output.o.size());
    out.why =
        fmt::format("{} of {} elements were not written or are not finite", bad, output.o.size());
    return out;
  }
  Geometry some = geometry;
  some.sequences = sampled_sequences(geometry.sequences);
  Problem sampled = problem;
  sampled.validate.rows = kSampledRows;
  const Comparison c = compare(sampled, some, inputs, output.o, output.lse, tile_m, {});
  out.pass = c.pass && c.checked > 0;
  out.error = c.rel_frobenius;
  out.checked = c.checked;
  out.why = c.summary;
  return out;
}

Bench::Bench(Device& device, Engine& engine, const Options& options, MakeProduct product)
    : device_(device),
      engine_(engine),
      options_(options),
      block_(random_block(options.scale > 1 ? kBlockValues / 16 : kBlockValues, 13579)),
      product_(std::move(product)) {
  if (!product_) product_ = [this] { return make_matrix_product(device_, options_, block_); };
}

HostTensors Bench::make_inputs(const Geometry& geometry) const {
  // Not whole rows apart: no key is a query's copy.
  HostTensors inputs;
  std::vector<uint16_t>* const tensors[3] = {&inputs.q, &inputs.k, &inputs.v};
  const int64_t sizes[3] = {geometry.q_elements, geometry.k_elements, geometry.v_elements};
  const size_t third = block_.size() / 3;
  if (!parallel_for(3, [&](size_t n) { tensors[n]->resize(static_cast<size_t>(sizes[n])); }))
    throw std::bad_alloc();
  for (size_t n = 0; n < 3; ++n)
    tile(block_, n * (third + 37), tensors[n]->size(), tensors[n]->data());
  return inputs;
}

Measured Bench::measure(const Row& row) {
  Measured out;
  try {
    if (Status s = measure_into(row, out); !s) out.error = std::move(s).error();
  } catch (const std::bad_alloc&) {
    out.error = Error{ErrorKind::kFailed, "this host ran out of memory", "", ""};
  }
  if (out.error) out.valid = false;
  return out;
}

Status Bench::measure_into(const Row& row, Measured& out) {
  const Problem& problem = row.problem;
  Result<Geometry> geometry = make_geometry(problem);
  if (!geometry) return std::move(geometry).error();
  out.useful_flop = useful_flops(problem, *geometry);
  out.dense_flop = dense_flops(problem, *geometry);
  out.bytes = io_bytes(problem, *geometry);
  out.pairs = static_cast<double>(visible_pairs(*geometry)) * problem.heads;

  Result<Prepared> prepared = engine_.prepare(problem, *geometry, device_.target());
  if (!prepared) return std::move(prepared).error();
  const Plan& plan = prepared->plan;
  out.kernel = plan.entry;
  out.origin = kernel_origin_name(prepared->origin);
  Result<std::unique_ptr<DeviceKernel>> kernel = device_.load(prepared->kernel->object, plan.entry);
  if (!kernel) return std::move(kernel).error();
  Result<std::unique_ptr<ForwardLauncher>> launcher = ForwardLauncher::create(device_, plan);
  if (!launcher) return std::move(launcher).error();
  Result<cli::DeviceTensors> tensors =
      cli::DeviceTensors::create(problem, *geometry, device_, make_inputs(*geometry));
  if (!tensors) return std::move(tensors).error();
  const Work launches{[&] { return tensors->poison_outputs(); },
                      [&] {
                        return (*launcher)->launch(**kernel, tensors->arguments(),
                                                   tensors->tokens(), nullptr);
                      }};
  Result<Summary> ms = time_work(device_, options_, launches);
  if (!ms) return std::move(ms).error();
  out.ms = *ms;
  if (row.matrix_goal > 0) {
    Result<InTurn> in_turn = measure_in_turn(launches, ms->median);
    out.in_turn = in_turn ? *in_turn : InTurn{{}, {}, 0, 0, in_turn.error().message};
  }
  if (row.memory_goal) {
    const Result<Summary> copy =
        time_copy(device_, options_, block_, static_cast<size_t>(out.bytes / 2));
    out.same_copy = copy ? SameCopy{*copy, ""} : SameCopy{{}, copy.error().message};
  }
  cli::HostOutput output;
  if (Status s = tensors->download(output); !s) return s;
  out.check = validate(problem, *geometry, tensors->inputs(), output, plan.config.tile_m);
  out.valid = out.check.pass;
  return {};
}

Result<InTurn> Bench::measure_in_turn(const Work& launches, double launch_ms) const {
  Result<std::unique_ptr<MatrixProduct>> made = product_();
  if (!made) return std::move(made).error();
  MatrixProduct& product = **made;
  const auto poison = [&] { return product.poison(); };
  Options once = options_;
  once.iterations = 3;
  const Result<Summary> one = time_work(device_, once, {poison, [&] { return product.run(); }});
  if (!one) return one.error();
  InTurn out;
  out.products = static_cast<int>(
      std::clamp(std::round(launch_ms / std::max(one->median, 1e-6)), 1.0, 1000.0));
  out.product_flop = out.products * product.flop();
  const Work products{poison, [&]() -> Status {
                        for (int n = 0; n < out.products; ++n)
                          if (Status s = product.run(); !s) return s;
                        return {};
                      }};
  const Result<std::vector<Summary>> ms = time_in_turn(device_, options_, {launches, products});
  if (!ms) return ms.error();
  if (Status s = product.check(); !s) return std::move(s).error();
  out.row_ms = (*ms)[0];
  out.product_ms = (*ms)[1];
  return out;
}

}  // namespace hstu::jit::bench
