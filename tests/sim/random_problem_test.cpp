// SPDX-License-Identifier: Apache-2.0
// Hundreds of small random attention problems: planned, compiled for a real target, executed in
// simulation over poisoned outputs and compared with the double-precision reference.
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <random>

#include "base/file.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "check/check.hpp"
#include "cli/tensors.hpp"
#include "device/hip/hip_device.hpp"
#include "engine/engine.hpp"
#include "probe.hpp"
#include "sim/sim.hpp"

namespace hstu::test {
namespace {

// What is baked into a kernel. Problems of one structure share one compile.
struct Structure {
  Dtype dtype = Dtype::bf16;
  Activation activation = Activation::silu;
  bool lse = false, jagged = true, grouped = false, cross = false, causal = true;
  bool local = false, context = false, minfull = false, targets = false;
  bool narrow = false;  // the window, of all groups
  int qk = 64, v = 64;
};

Structure structure(int qk, int v, const std::string& words) {
  const auto has = [&](const char* word) { return words.find(word) != std::string::npos; };
  Structure s;
  s.qk = qk, s.v = v;
  s.dtype = has("fp16") ? Dtype::fp16 : Dtype::bf16;
  s.activation = has("softmax") || has("lse") ? Activation::softmax : Activation::silu;
  s.lse = has("lse"), s.jagged = !has("batched"), s.grouped = has("groups");
  s.cross = has("cross"), s.causal = !has("open");
  s.narrow = has("narrow");
  s.local = has("local") || has("all") || s.narrow, s.context = has("context") || has("all");
  s.minfull = has("minfull") || has("all"), s.targets = has("targets") || has("all");
  return s;
}

// Each mask feature alone and all together, with every dtype, activation and layout somewhere.
const Structure kStructures[] = {
    structure(64, 64, "bf16 silu"),
    structure(64, 64, "fp16 silu open"),
    structure(128, 128, "bf16 silu all"),
    structure(64, 64, "fp16 softmax lse local"),
    structure(96, 64, "bf16 silu context"),
    structure(40, 96, "fp16 silu targets"),
    structure(64, 128, "bf16 softmax local minfull"),
    structure(8, 24, "fp16 softmax lse all open"),
    structure(128, 64, "bf16 silu groups all"),
    structure(16, 64, "fp16 lse cross all"),
    structure(64, 64, "bf16 silu cross open batched"),
    structure(64, 64, "bf16 silu cross"),
    structure(72, 120, "fp16 silu batched all"),
    structure(256, 256, "bf16 softmax batched targets"),
};

// Windows for which Hopper has kernels of their own; the simulated targets have none.
const Structure kNarrow[] = {
    structure(128, 128, "bf16 silu narrow targets"),
    structure(64, 64, "fp16 silu narrow"),
    structure(96, 64, "fp16 softmax lse narrow targets"),
    structure(64, 128, "bf16 silu narrow batched targets"),
    structure(40, 96, "bf16 softmax narrow groups targets"),
    structure(128, 128, "bf16 silu narrow open targets"),
    structure(72, 72, "fp16 silu narrow cross"),
    structure(128, 64, "bf16 softmax lse narrow cross open"),
    structure(256, 256, "bf16 silu narrow targets"),
    structure(200, 256, "fp16 softmax narrow"),
};

// `scale` above 1 asks for as much longer and more sequences, which real devices have time for.
jit::Problem random_problem(const Structure& s, std::mt19937& random, int scale = 1) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const auto one_in = [&](int n) { return pick(1, n) == 1; };
  jit::Problem p;
  p.dtype = s.dtype;
  p.activation = s.activation;
  p.training = s.lse;
  p.layout = s.jagged ? jit::Layout::jagged : jit::Layout::batched;
  p.head_dim_qk = s.qk, p.head_dim_v = s.v;
  p.causal = s.causal, p.cross = s.cross;
  p.heads = pick(1, scale == 1 ? 2 : 6);
  p.batch = s.grouped ? 4 : pick(1, 3);
  if (scale > 1 && one_in(3)) p.batch = s.grouped ? 70 : pick(30, 80);
  const auto length = [&] {
    const int kind = pick(0, 7);
    return kind == 0   ? 0
           : kind == 1 ? 1
           : kind == 2 ? 64 * scale
           : kind == 3 ? pick(120 * scale, 150 * scale)
                       : pick(2, 90 * scale);
  };
  // A feature of the structure must show in some sequence or the kernel is another one.
  const auto group = [&](bool must) {
    jit::GroupSpec g;
    if (s.narrow)
      g.local_len = pick(1, s.causal ? 16 : 8);
    else if (s.local && (must || !one_in(3)))
      g.local_len = one_in(4) ? pick(100, 300) : pick(1, 40);
    if (s.context && (must || !one_in(3))) g.context_len = one_in(3) ? pick(30, 70) : pick(1, 9);
    if (s.minfull && (must || !one_in(3))) g.minfull_len = one_in(4) ? 1000 : pick(1, 50);
    return g;
  };
  const int same = length(), same_kv = length();
  for (int64_t b = 0; b < p.batch; ++b) {
    p.uih_q.push_back(s.jagged ? length() : same);
    const int many = one_in(4) ? pick(30, s.narrow ? 200 : 70) : pick(1, 9);
    p.num_targets.push_back(!s.targets ? 0 : b == 0 || !one_in(4) ? many : 0);
    p.uih_kv.push_back(!s.cross ? p.uih_q.back() : s.jagged ? length() : same_kv);
  }
  if (s.targets && s.jagged && one_in(4)) p.uih_q[0] = 0;  // targets only
  if (!s.cross) p.uih_kv = p.uih_q;
  p.mask = group(true);
  if (s.grouped) p.groups = {group(true), group(false)};
  if (one_in(3)) {
    const auto strides = [&](int dim) {
      jit::StrideSpec t;
      t.head = dim + 8 * pick(0, 2);
      t.seq = t.head * p.heads + 8 * pick(0, 3);
      if (!s.jagged) t.batch = t.seq * (same + same_kv + 500 * scale) + 8;
      return t;
    };
    p.q_strides = strides(s.qk), p.k_strides = strides(s.qk);
    p.v_strides = strides(s.v), p.o_strides = strides(s.v);
  }
  // Softmax kernels that take maxima before the scale have to mind its sign.
  if (one_in(4)) p.alpha = one_in(2) ? -0.3f : 0.4f;
  p.data.seed = random();
  return p;
}

// What random lengths seldom give: sequences without a key, beside others and alone, and queries
// that outnumber the keys by whole query tiles.
jit::Problem edge_problem(const Structure& s, int keys, std::mt19937& random) {
  jit::Problem p = random_problem(s, random);
  p.batch = 4, p.heads = 1;
  p.q_strides = p.k_strides = p.v_strides = p.o_strides = std::nullopt;
  p.num_targets = {0, 0, 0, s.targets ? 5 : 0};
  p.uih_q = {300, 33, 0, 150}, p.uih_kv = {keys, 0, 64, keys};
  if (!s.jagged) {
    p.num_targets.assign(4, p.num_targets[3]);
    p.uih_q.assign(4, 300), p.uih_kv.assign(4, keys);
  }
  if (!s.cross) p.uih_q = p.uih_kv;
  return p;
}

std::string describe(const jit::Problem& p) {
  std::string lengths;
  for (size_t b = 0; b < p.uih_q.size(); ++b)
    lengths += fmt::format(" {}x{}+{}", p.uih_q[b], p.uih_kv[b], p.num_targets[b]);
  return fmt::format(
      "dims {}/{} heads {} lengths{} local {} context {} minfull {} strides {} seed {}",
      p.head_dim_qk, p.head_dim_v, p.heads, lengths, p.mask.local_len, p.mask.context_len,
      p.mask.minfull_len, p.q_strides.has_value(), p.data.seed);
}

struct Loaded {
  std::unique_ptr<jit::DeviceKernel> kernel;
  std::unique_ptr<jit::ForwardLauncher> launcher;
};

// Everything that outlives one problem.
struct Bench {
  std::unique_ptr<jit::Engine> engine;
  std::unique_ptr<jit::Device> device;
  std::map<std::string, Loaded> kernels;  // by object
};

// "" or what is wrong. `spoil` is told the arguments before the launch, to prove that a fault
// shows.
std::string run(Bench& bench, const jit::Problem& p,
                const std::function<void(ForwardArguments&)>& spoil = {}) {
  const auto geometry = jit::make_geometry(p);
  if (!geometry) return geometry.error().message;
  const auto prepared = bench.engine->prepare(p, *geometry, bench.device->target());
  if (!prepared) return prepared.error().message;
  Loaded& kernel = bench.kernels[prepared->kernel->object];
  if (!kernel.kernel) {
    auto loaded = bench.device->load(prepared->kernel->object, prepared->kernel->entry);
    if (!loaded) return loaded.error().message;
    auto launcher = jit::ForwardLauncher::create(*bench.device, prepared->plan);
    if (!launcher) return launcher.error().message;
    kernel = {std::move(*loaded), std::move(*launcher)};
  }
  auto tensors = jit::cli::DeviceTensors::create(p, *geometry, *bench.device);
  if (!tensors) return tensors.error().message;
  ForwardArguments arguments = tensors->arguments();
  if (spoil) spoil(arguments);
  const jit::Status launched =
      kernel.launcher->launch(*kernel.kernel, arguments, tensors->tokens(), nullptr);
  if (!launched) return launched.error().message;
  const jit::Status done = bench.device->synchronize(nullptr);
  if (!done) return done.error().message;
  jit::cli::HostOutput output;
  const jit::Status got = tensors->download(output);
  if (!got) return got.error().message;
  const jit::Comparison c = jit::compare(p, *geometry, tensors->inputs(), output.o, output.lse,
                                         prepared->plan.config.tile_m, {});
  return c.pass ? "" : c.summary;
}

// More with HSTU_TEST_SIM_CASES for a longer hunt.
int cases() {
  const char* text = std::getenv("HSTU_TEST_SIM_CASES");
  return text ? std::atoi(text) : 12;
}

void open_engine(const std::string& cache, Bench& bench) {
  setenv("HSTU_JIT_WORKER", HSTU_REAL_WORKER, 0);
  jit::EngineOptions options;
  options.cache_dir = cache;
  auto engine = jit::Engine::create(options);
  REQUIRE(engine.ok());
  bench.engine = std::move(*engine);
}

bool open_bench(const char* target, const std::string& cache, Bench& bench) {
  open_engine(cache, bench);
  auto device =
      jit::open_hip_device(jit::sim::simulator_api(), *jit::sim::find_machine(target), "sim");
  REQUIRE(device.ok());
  bench.device = std::move(*device);
  CHECK(bench.device->target().name == target);
  // One compile tells whether a compiler is here.
  std::mt19937 random(1);
  const jit::Problem p = random_problem(kStructures[0], random);
  const auto geometry = jit::make_geometry(p);
  REQUIRE(geometry.ok());
  const auto prepared = bench.engine->prepare(p, *geometry, bench.device->target());
  if (prepared) return true;
  skip(std::string("random problems on ") + target, prepared.error().message);
  return false;
}

}  // namespace

TEST_CASE("simulator: random problems agree with the reference") {
  for (const char* target : {"gfx90a", "gfx942", "gfx1100"}) {
    if (!can_probe(target, "random problems")) continue;
    const auto folder = jit::TempDir::create("hstu-sim-random");
    REQUIRE(folder.ok());
    Bench bench;
    if (!open_bench(target, folder->path(), bench)) continue;
    // The slower targets share the cases of one.
    const int count = std::string(target) == "gfx1100" ? (cases() + 2) / 3 : cases();
    unsigned seed = 11;
    int without_keys = 0, longer = 0;
    for (const Structure& s : kStructures) {
      std::mt19937 random(seed += 7);
      for (int i = 0; i < count; ++i) {
        const jit::Problem p = random_problem(s, random);
        INFO(target << " " << describe(p));
        CHECK(run(bench, p) == "");
      }
      for (const int keys : {0, 20}) {
        const jit::Problem p = edge_problem(s, keys, random);
        INFO(target << " " << describe(p));
        CHECK(run(bench, p) == "");
        const auto geometry = jit::make_geometry(p);
        REQUIRE(geometry.ok());
        for (const auto& sequence : geometry->sequences) {
          without_keys += sequence.seqlen_q > 0 && sequence.seqlen_kv == 0;
          longer += sequence.seqlen_kv > 0 && sequence.seqlen_q > sequence.seqlen_kv + 256;
        }
      }
    }
    CHECK(without_keys > 0);
    CHECK(longer > 0);
    CHECK(bench.kernels.size() <= std::size(kStructures) + 4);
  }
}

// Wrong lengths, a wrong pointer and swapped tensors do not pass.
TEST_CASE("simulator: random problems notice a spoiled launch") {
  if (!can_probe("gfx90a", "spoiled launches")) return;
  const auto folder = jit::TempDir::create("hstu-sim-random");
  REQUIRE(folder.ok());
  Bench bench;
  if (!open_bench("gfx90a", folder->path(), bench)) return;
  std::mt19937 random(5);
  jit::Problem p = random_problem(kStructures[0], random);
  p.batch = 1;
  p.uih_q = p.uih_kv = {70};
  p.num_targets = {0};
  p.q_strides = p.k_strides = p.v_strides = p.o_strides = std::nullopt;
  CHECK(run(bench, p) == "");
  CHECK(run(bench, p, [](ForwardArguments& a) { std::swap(a.k, a.v); }) != "");
  CHECK(run(bench, p, [](ForwardArguments& a) { a.alpha *= 1.5f; }) != "");
  CHECK(run(bench, p, [](ForwardArguments& a) { a.o += 64; }) != "");
  CHECK(run(bench, p, [](ForwardArguments& a) { a.heads = 0; }) != "");
  const std::string outside = run(bench, p, [](ForwardArguments& a) { a.seq_offsets_q = nullptr; });
  CHECK(outside.find("workgroup") != std::string::npos);
}

// On real hardware the same problems, longer ones, and batches beyond what a grid has in y or z.
// HSTU_JIT_TEST_DEVICE=cuda:0 names the device, HSTU_TEST_SIM_CASES how many of a structure.
TEST_CASE("device: random problems agree with the reference") {
  const char* name = std::getenv("HSTU_JIT_TEST_DEVICE");
  if (name == nullptr) {
    skip("random problems on a device", "HSTU_JIT_TEST_DEVICE is not set");
    return;
  }
  const auto folder = jit::TempDir::create("hstu-device-random");
  REQUIRE(folder.ok());
  Bench bench;
  open_engine(folder->path(), bench);
  auto device = jit::open_device(name);
  REQUIRE(device.ok());
  bench.device = std::move(*device);
  int failures = 0, runs = 0;
  const auto check = [&](const jit::Problem& p) {
    const std::string wrong = run(bench, p);
    INFO(name << " " << describe(p));
    CHECK(wrong == "");
    failures += wrong != "";
    ++runs;
  };
  unsigned seed = 3;
  std::vector<Structure> structures(std::begin(kStructures), std::end(kStructures));
  structures.insert(structures.end(), std::begin(kNarrow), std::end(kNarrow));
  for (const Structure& s : structures) {
    std::mt19937 random(seed += 7);
    for (int i = 0; i < cases(); ++i) {
      for (const int scale : {1, 7}) {
        if (failures < 10) check(random_problem(s, random, scale));
      }
    }
    for (const int keys : {0, 20})
      if (failures < 10) check(edge_problem(s, keys, random));
  }
  for (const auto& [batch, heads] : {std::pair(70001, 1), std::pair(18, 4096)}) {
    jit::Problem p;
    p.head_dim_qk = p.head_dim_v = 64;
    p.batch = batch, p.heads = heads;
    for (int b = 0; b < batch; ++b) p.uih_q.push_back(b % 3);
    p.uih_kv = p.uih_q;
    p.num_targets.assign(static_cast<size_t>(batch), 0);
    if (failures < 10) check(p);
  }
  std::printf("%d random problems on %s (%s)\n", runs, name, bench.device->description().c_str());
}

}  // namespace hstu::test
