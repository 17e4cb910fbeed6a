// SPDX-License-Identifier: Apache-2.0
#include "cli/job.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>

#include "base/file.hpp"
#include "check/mask_picture.hpp"
#include "cli/commands.hpp"
#include "cli/simulation.hpp"
#include "cli/tensors.hpp"
#include "sim/sim.hpp"

namespace hstu::jit::cli {
namespace {

// One timed launch after another until there are enough, the last-level cache flushed between them
// when asked.
Result<std::vector<double>> time_launches(Device& device, const std::function<Status()>& launch,
                                          int count, bool flush) {
  std::vector<double> ms;
  for (int i = 0; i < count; ++i) {
    if (flush)
      if (Status s = device.flush_cache(nullptr); !s) return std::move(s).error();
    Result<std::unique_ptr<DeviceEvent>> start = device.record(nullptr);
    if (!start) return std::move(start).error();
    if (Status s = launch(); !s) return std::move(s).error();
    Result<std::unique_ptr<DeviceEvent>> stop = device.record(nullptr);
    if (!stop) return std::move(stop).error();
    Result<double> elapsed = device.elapsed(**start, **stop);
    if (!elapsed) return std::move(elapsed).error();
    ms.push_back(*elapsed);
  }
  return ms;
}

// Bit for bit: a NaN equals itself. An LSE that is not written is empty and has no bytes to
// compare.
bool same_bits(const HostOutput& a, const HostOutput& b) {
  return a.o == b.o && a.lse.size() == b.lse.size() &&
         (a.lse.empty() ||
          std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0);
}

std::string describe(const Problem& p, const Geometry& g) {
  std::string line =
      fmt::format("{} {}, {} head{}, dims {}/{}, {}{}, {} sequence{}, longest {}",
                  p.dtype == Dtype::fp16 ? "fp16" : "bf16",
                  p.activation == Activation::silu ? "silu"
                  : p.training                     ? "softmax+lse"
                                                   : "softmax",
                  p.heads, p.heads == 1 ? "" : "s", p.head_dim_qk, p.head_dim_v,
                  p.layout == Layout::jagged ? "jagged" : "batched", p.grouped() ? " groups" : "",
                  p.batch, p.batch == 1 ? "" : "s", g.longest_q);
  line += p.cross ? fmt::format(" x {}", g.max_seqlen_kv) : "";
  line += p.causal ? ", causal" : ", not causal";
  if (p.grouped()) return line;
  if (p.mask.local_len > 0) line += fmt::format(", window {}", p.mask.local_len);
  if (p.mask.context_len > 0) line += fmt::format(", context {}", p.mask.context_len);
  if (p.mask.minfull_len > 0) line += fmt::format(", min-full {}", p.mask.minfull_len);
  return line;
}

}  // namespace

Result<Device*> JobRunner::device_for(const std::string& name) {
  auto at = devices_.find(name);
  if (at == devices_.end()) {
    Result<std::unique_ptr<Device>> device = open_device(name);
    if (!device) return std::move(device).error();
    at = devices_.emplace(name, std::move(*device)).first;
  }
  return at->second.get();
}

JobReport JobRunner::run(const Problem& problem) {
  JobReport report;
  report.name = problem.name;
  try {
    if (Status s = run_into(problem, report); !s) report.error = std::move(s).error();
  } catch (const std::bad_alloc&) {
    report.error = Error{ErrorKind::kFailed,
                         "this host ran out of memory; use a smaller problem, or "
                         "\"validate\": {\"rows\": n}",
                         "", ""};
  }
  return report;
}

Status JobRunner::run_into(const Problem& problem, JobReport& report) {
  Result<Geometry> geometry = make_geometry(problem);
  if (!geometry) return std::move(geometry).error();
  report.problem_line = describe(problem, *geometry);
  if (!problem.mask_path.empty())
    if (Status s = write_mask_file(problem, *geometry, problem.mask_path); !s) return s;

  // The device decides the target unless the spec names one the device can run.
  if (problem.device == "auto" && problem.target != "auto")
    if (Result<Target> named = find_target(problem.target); !named) return std::move(named).error();
  Result<Device*> device = device_for(problem.device);
  if (!device) return std::move(device).error();
  report.device = (*device)->name();
  report.simulated = report.device.rfind("sim:", 0) == 0;
  Result<Target> target = target_of_device(report.device, (*device)->target(), problem.target);
  if (!target) return std::move(target).error();
  report.target = target->name;

  Result<Prepared> prepared = engine_.prepare(problem, *geometry, *target);
  if (!prepared) return std::move(prepared).error();
  const Plan& plan = prepared->plan;
  report.kernel_name = plan.entry;
  report.key = prepared->kernel->key.request;
  report.origin = kernel_origin_name(prepared->origin);
  report.toolchain = prepared->kernel->toolchain;
  report.cache_note = prepared->cache_note;
  report.compile_ms = prepared->compile_ms;
  report.prepare_ms = prepared->prepare_ms;
  report.visible_pairs = plan.estimate.visible_pairs;

  const std::string loaded_key = report.device + " " + report.key;
  if (loaded_.find(loaded_key) == loaded_.end()) {
    Result<std::unique_ptr<DeviceKernel>> kernel =
        (*device)->load(prepared->kernel->object, plan.entry);
    if (!kernel) return std::move(kernel).error();
    Result<std::unique_ptr<ForwardLauncher>> launcher = ForwardLauncher::create(**device, plan);
    if (!launcher) return std::move(launcher).error();
    loaded_[loaded_key] = {*device, std::move(*kernel), std::move(*launcher)};
  }
  const Loaded& loaded = loaded_[loaded_key];

  Result<DeviceTensors> tensors = DeviceTensors::create(problem, *geometry, **device);
  if (!tensors) return std::move(tensors).error();
  const auto enqueue = [&, arguments = tensors->arguments(), tokens = tensors->tokens()] {
    return loaded.launcher->launch(*loaded.kernel, arguments, tokens, nullptr);
  };

  HostOutput first;
  if (plan.launch.grid > 0) {
    std::optional<SimulationWatch> watch;
    if (report.simulated) {
      sim::forget_last_launch();  // else one that does not come about has its counters
      const auto launches =
          problem.benchmark ? 1 + problem.benchmark->warmup + problem.benchmark->iterations : 1;
      if (options_.watch_simulation) watch.emplace(plan, launches);
    }
    Result<std::vector<double>> ms = time_launches(**device, enqueue, 1, false);
    if (report.simulated) {
      const sim::LaunchReport launch = sim::last_launch();
      if (!launch.kernel.empty()) {
        report.counters_text = sim::to_text(launch.counters, launch.target);
        report.counters_json = sim::to_json(launch.counters, launch.target);
      }
    }
    if (!ms) return std::move(ms).error();
    if (Status s = tensors->download(first); !s) return s;
    // A few more launches give a figure worth printing, unless one takes long already.
    int warmup = 0, runs = ms->front() < 50 ? 5 : ms->front() < 500 ? 2 : 0;
    bool flush = false;
    if (problem.benchmark) {
      warmup = problem.benchmark->warmup;
      runs = problem.benchmark->iterations;
      flush = problem.benchmark->flush_l2;
    }
    if (runs > 0) {
      if (Status s = tensors->poison_outputs(); !s) return s;
      Result<std::vector<double>> warm = time_launches(**device, enqueue, warmup, flush);
      if (!warm) return std::move(warm).error();
      ms = time_launches(**device, enqueue, runs, flush);
      if (!ms) return std::move(ms).error();
      HostOutput last;
      if (Status s = tensors->download(last); !s) return s;
      if (!same_bits(last, first))
        return Error{ErrorKind::kMismatch,
                     fmt::format("{}: two launches on the same input gave different bits; the "
                                 "kernel is not deterministic",
                                 plan.entry),
                     "", ""};
    }
    report.run_ms = summarize(std::move(*ms));
    const double seconds = report.run_ms.median / 1e3;
    if (seconds > 0 && !report.simulated) {
      report.useful_tflops = plan.estimate.useful_flop / seconds / 1e12;
      report.dense_tflops = plan.estimate.dense_flop / seconds / 1e12;
    }
  } else if (Status s = tensors->download(first); !s) {
    return s;
  }

  if (problem.validate.enabled)
    report.validation = compare(problem, *geometry, tensors->inputs(), first.o, first.lse,
                                plan.config.tile_m, options_.tolerance);
  if (!problem.dump_dir.empty())
    if (Status s = dump_outputs(problem, *geometry, tensors->inputs(), first); !s) return s;
  if (report.validation && !report.validation->pass)
    return Error{ErrorKind::kMismatch, report.validation->summary, "", ""};
  return {};
}

}  // namespace hstu::jit::cli
