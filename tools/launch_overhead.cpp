// SPDX-License-Identifier: Apache-2.0
// hstu-jit-launch-overhead: nanoseconds the host spends on a launch, for each layer from the
// driver's own call up to the C interface, and for a graph that holds one captured launch.
#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "cli/commands.hpp"
#include "cli/tensors.hpp"
#include "device/cuda/cuda_library.hpp"
#include "device/hip/hip_api.hpp"
#include "engine/engine.hpp"
#include "hstu_jit/hstu_jit.h"
#include "spec/parse.hpp"

namespace hstu::jit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSmallSpec =
    R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 128, "uih_lengths": [200, 70]})";

struct Options {
  std::string spec, device = "auto", cache_dir;
  int launches = 100, rounds = 41;
};

// The driver's own way to launch, with nothing of ours around it but a function pointer.
class BareKernel {
 public:
  using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, void*, void**, void**);

  static Result<std::unique_ptr<BareKernel>> load(const std::string& device_name,
                                                  const std::string& object,
                                                  const std::string& entry) {
    const bool cuda = device_name.rfind("cuda:", 0) == 0;
    const HipSearch search = cuda ? find_cuda() : find_hip();
    if (!search.api) return Error{ErrorKind::kDevice, "no driver library", "", ""};
    std::unique_ptr<BareKernel> bare(new BareKernel(search.api));
    const HipApi& api = *search.api;
    bare->ordinal_ = std::atoi(device_name.c_str() + device_name.find(':') + 1);
    void* library = dlopen(api.origin.c_str(), RTLD_NOW | RTLD_NOLOAD);
    void* symbol = library == nullptr
                       ? nullptr
                       : dlsym(library, cuda ? "cuLaunchKernel" : "hipModuleLaunchKernel");
    if (symbol == nullptr) return Error{ErrorKind::kDevice, "no launch function", "", ""};
    std::memcpy(&bare->launch_, &symbol, sizeof symbol);
    const auto check = [&](const char* call, int code) -> Status {
      if (code == 0) return {};
      return hip_error(api, device_name, call, code);
    };
    if (cuda) {
      Status s = check("retain", api.retain_context(&bare->context_, bare->ordinal_));
      if (s) s = check("push", api.push_context(bare->context_));
      if (!s) return std::move(s).error();
    } else if (Status s = check("hipSetDevice", api.set_device(bare->ordinal_)); !s) {
      return std::move(s).error();
    }
    Status s = check("hipModuleLoadData", api.module_load_data(&bare->module_, object.data()));
    if (s) {
      s = check("hipModuleGetFunction",
                api.module_get_function(&bare->function_, bare->module_, entry.c_str()));
    }
    if (!s) return std::move(s).error();
    return bare;
  }
  ~BareKernel() {
    if (module_ != nullptr) api_->module_unload(module_);
    void* popped = nullptr;
    if (context_ != nullptr) {
      api_->pop_context(&popped);
      api_->release_context(ordinal_);
    }
  }

  // The context is the calling thread's current one as long as this object lives.
  void allow_lds(int bytes) const {
    if (api_->set_lds_total != nullptr) api_->set_lds_total(function_, bytes);
  }
  bool operator()(const LaunchGrid& grid, const std::vector<char>& arguments, void* stream) const {
    size_t size = arguments.size();
    void* address = const_cast<char*>(arguments.data());
    void* parameters[] = {address};
    void* extra[] = {hip_launch_buffer_pointer(), address, hip_launch_buffer_size(), &size,
                     hip_launch_end()};
    const bool cuda = context_ != nullptr;
    return launch_(function_, static_cast<unsigned>(grid.grid), 1, 1,
                   static_cast<unsigned>(grid.block), 1, 1,
                   static_cast<unsigned>(grid.dynamic_lds_bytes), stream,
                   cuda ? parameters : nullptr, cuda ? nullptr : extra) == 0;
  }

 private:
  explicit BareKernel(std::shared_ptr<const HipApi> api) : api_(std::move(api)) {}
  std::shared_ptr<const HipApi> api_;
  int ordinal_ = 0;
  void *context_ = nullptr, *module_ = nullptr, *function_ = nullptr;
  Launch launch_ = nullptr;
};

// The C interface, as a host program uses it.
struct Interface {
  hstu_engine* engine = nullptr;
  hstu_kernel* kernel = nullptr;
  hstu_error* error = nullptr;
  ~Interface() {
    hstu_error_free(error);
    hstu_kernel_release(kernel);
    hstu_engine_destroy(engine);
  }
  Status told(const char* what) const {
    return Error{ErrorKind::kFailed, fmt::format("{}: {}", what, hstu_error_message(error)), "",
                 ""};
  }
};

hstu_forward call_of(const ForwardArguments& a, const TokenCounts& tokens, bool jagged) {
  const auto strides = [](const Strides& s) { return hstu_strides{s.batch, s.seq, s.head}; };
  hstu_forward call{};
  call.size = sizeof call;
  call.q = a.q, call.k = a.k, call.v = a.v, call.o = a.o, call.lse = a.lse;
  call.seq_offsets_q = a.seq_offsets_q, call.seq_offsets_kv = a.seq_offsets_kv;
  call.num_targets = a.num_targets;
  call.q_strides = strides(a.q_strides), call.k_strides = strides(a.k_strides);
  call.v_strides = strides(a.v_strides), call.o_strides = strides(a.o_strides);
  call.lse_strides = strides(a.lse_strides);
  call.mask = {a.uniform.local_len, a.uniform.context_len, a.uniform.minfull_len,
               a.uniform.attn_scale};
  call.alpha = a.alpha;
  call.batch = a.batch, call.heads = a.heads;
  call.seqlen_q = a.seqlen_q, call.seqlen_kv = a.seqlen_kv;
  if (jagged) call.tokens_q = tokens.q, call.tokens_kv = tokens.kv;
  return call;
}

struct Layer {
  std::string name;
  std::function<bool()> launch;
  std::vector<double> ns;  // a launch, one figure per round
};

Status measure(Device& device, std::vector<Layer>& layers, void* stream, const Options& o) {
  for (int round = -2; round < o.rounds; ++round) {  // two to warm up
    for (Layer& layer : layers) {
      if (Status s = device.synchronize(stream); !s) return s;
      const Clock::time_point start = Clock::now();
      bool good = true;
      for (int i = 0; i < o.launches; ++i) good &= layer.launch();
      const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
      if (!good) return Error{ErrorKind::kFailed, layer.name + ": a launch failed", "", ""};
      if (round >= 0) layer.ns.push_back(ns / o.launches);
    }
  }
  return device.synchronize(stream);
}

void print_layers(std::vector<Layer>& layers) {
  std::string out =
      fmt::format("{:<34} {:>9} {:>9} {:>9}\n", "ns per launch", "median", "p10", "over bare");
  double bare = 0;
  for (Layer& layer : layers) {
    std::sort(layer.ns.begin(), layer.ns.end());
    const double median = layer.ns[layer.ns.size() / 2];
    if (bare == 0) bare = median;
    out += fmt::format("{:<34} {:>9.0f} {:>9.0f} {:>+9.0f}\n", layer.name, median,
                       layer.ns[layer.ns.size() / 10], median - bare);
  }
  (void)cli::print(out);
}

Status run(const Options& o) {
  Result<ParsedSpec> spec = o.spec.empty() ? parse_spec(kSmallSpec, ".") : cli::load_spec(o.spec);
  if (!spec) return std::move(spec).error();
  const Problem& problem = spec->problems.front();
  if (problem.grouped())
    return Error{ErrorKind::kUsage, "problems with groups are not measured here", "", ""};
  Result<Geometry> geometry = make_geometry(problem);
  if (!geometry) return std::move(geometry).error();
  Result<std::unique_ptr<Device>> device = open_device(o.device);
  if (!device) return std::move(device).error();
  if ((*device)->name().rfind("cuda:", 0) != 0 && (*device)->name().rfind("hip:", 0) != 0)
    return Error{
        ErrorKind::kUsage,
        fmt::format("{} has no driver to compare with: want hip:N or cuda:N", (*device)->name()),
        "", ""};
  EngineOptions engine_options;
  engine_options.cache_dir = o.cache_dir;
  Result<std::unique_ptr<Engine>> engine = Engine::create(engine_options);
  if (!engine) return std::move(engine).error();
  Result<Prepared> prepared = (*engine)->prepare(problem, *geometry, (*device)->target());
  if (!prepared) return std::move(prepared).error();
  const Plan& plan = prepared->plan;
  const std::string& object = prepared->kernel->object;
  Result<std::unique_ptr<DeviceKernel>> kernel = (*device)->load(object, plan.entry);
  if (!kernel) return std::move(kernel).error();
  Result<std::unique_ptr<ForwardLauncher>> launcher = ForwardLauncher::create(**device, plan);
  if (!launcher) return std::move(launcher).error();
  Result<cli::DeviceTensors> tensors = cli::DeviceTensors::create(problem, *geometry, **device);
  if (!tensors) return std::move(tensors).error();
  Result<void*> stream = (*device)->create_stream();
  if (!stream) return std::move(stream).error();

  // The bytes of the kernel's argument, ready made.
  const ForwardArguments forward = tensors->arguments();
  const TokenCounts tokens = tensors->tokens();
  HopperArguments hopper{};
  const bool whole = (*launcher)->needs_tokens();
  if (whole)
    if (Status s = (*launcher)->fill(forward, tokens, *stream, hopper); !s) return s;
  const void* ready = whole ? static_cast<const void*>(&hopper) : &forward;
  const std::vector<char> bytes(
      static_cast<const char*>(ready),
      static_cast<const char*>(ready) + (whole ? sizeof hopper : sizeof forward));
  const Result<int64_t> workgroups = (*launcher)->grid(forward);
  if (!workgroups) return workgroups.error();
  const LaunchGrid grid{*workgroups, plan.launch.block, plan.launch.dynamic_lds_bytes};

  Interface c;
  hstu_options c_options{};
  c_options.size = sizeof c_options;
  const std::string name = (*device)->name(), text = to_json(problem);
  c_options.device = name.c_str();
  c_options.cache_dir = o.cache_dir.empty() ? nullptr : o.cache_dir.c_str();
  if (hstu_engine_create(&c_options, &c.engine, &c.error) != HSTU_OK) return c.told("engine");
  if (hstu_prepare(c.engine, text.data(), text.size(), &c.kernel, &c.error) != HSTU_OK)
    return c.told("prepare");
  const hstu_forward call = call_of(forward, tokens, plan.config.jagged);

  if (Status s = (*device)->begin_capture(*stream); !s) return s;
  const bool captured = hstu_launch(c.kernel, &call, *stream, &c.error) == HSTU_OK;
  Result<std::unique_ptr<DeviceGraph>> graph = (*device)->end_capture(*stream);
  if (!captured) return c.told("launch into a graph");
  if (!graph) return std::move(graph).error();

  Result<std::unique_ptr<BareKernel>> bare = BareKernel::load(name, object, plan.entry);
  if (!bare) return std::move(bare).error();
  (*bare)->allow_lds((*device)->target().lds_bytes);
  std::vector<Layer> layers;
  layers.push_back({name.rfind("cuda:", 0) == 0 ? "cuLaunchKernel" : "hipModuleLaunchKernel",
                    [&] { return (**bare)(grid, bytes, *stream); },
                    {}});
  layers.push_back(
      {"Device::launch",
       [&] { return (*device)->launch(**kernel, grid, bytes.data(), bytes.size(), *stream).ok(); },
       {}});
  layers.push_back({"ForwardLauncher::launch",
                    [&] { return (*launcher)->launch(**kernel, forward, tokens, *stream).ok(); },
                    {}});
  layers.push_back({"hstu_launch",
                    [&] { return hstu_launch(c.kernel, &call, *stream, nullptr) == HSTU_OK; },
                    {}});
  layers.push_back({"hstu_launch, default stream",
                    [&] { return hstu_launch(c.kernel, &call, nullptr, nullptr) == HSTU_OK; },
                    {}});
  layers.push_back(
      {"graph with that launch", [&] { return (*device)->launch(**graph, *stream).ok(); }, {}});
  Status measured = measure(**device, layers, *stream, o);

  // The graph alone must write what a launch writes.
  cli::HostOutput by_graph;
  if (measured) measured = tensors->poison_outputs();
  if (measured) measured = (*device)->launch(**graph, *stream);
  if (measured) measured = (*device)->synchronize(*stream);
  if (measured) measured = tensors->download(by_graph);
  (*device)->destroy_stream(*stream);
  if (!measured) return measured;
  (void)cli::print(fmt::format("{} on {}\n", plan.entry, (*device)->description()));
  print_layers(layers);
  const Comparison compared = compare(problem, *geometry, tensors->inputs(), by_graph.o,
                                      by_graph.lse, plan.config.tile_m, {});
  if (!compared.pass)
    return Error{ErrorKind::kMismatch, "the graph's output is wrong: " + compared.summary, "", ""};
  (void)cli::print("the output of the graph agrees with the reference\n");
  return {};
}

}  // namespace
}  // namespace hstu::jit

int main(int argc, char** argv) {
  hstu::jit::Options options;
  CLI::App app{"What a launch costs the host, from the driver's own call to the C interface."};
  app.add_option("spec", options.spec, "Spec file; without one a problem of two short sequences");
  app.add_option("--device", options.device, "hip:N or cuda:N");
  app.add_option("--cache-dir", options.cache_dir, "Kernel cache folder");
  app.add_option("--launches", options.launches, "Launches a round")->check(CLI::Range(1, 900));
  app.add_option("--rounds", options.rounds, "Rounds")->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);
  const hstu::jit::Status status = hstu::jit::run(options);
  if (status) return 0;
  fmt::print(stderr, "hstu-jit-launch-overhead: {}\n", status.error().message);
  return hstu::jit::exit_code(status.error().kind);
}
