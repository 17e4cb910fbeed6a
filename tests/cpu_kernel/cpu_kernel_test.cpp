// SPDX-License-Identifier: Apache-2.0
// The cpu kernel against double precision: every level this machine runs, both types, every mask
// feature alone and together, awkward lengths and head dims, strides, guards, reproducibility.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "catch.hpp"
#include "device/cpu/cpu_device.hpp"
#include "problem.hpp"
#include "target/cpu_level.hpp"

namespace hstu::test {
namespace {

std::unique_ptr<jit::Device> open_with_threads(const char* count) {
  setenv("HSTU_JIT_THREADS", count, 1);
  auto device = jit::open_cpu_device();
  unsetenv("HSTU_JIT_THREADS");
  REQUIRE(device.ok());
  return std::move(*device);
}

jit::Device& device() {
  static std::unique_ptr<jit::Device> one = open_with_threads("2");
  return *one;
}

// Levels of this machine's family that it runs; the others are named once.
const std::vector<std::string>& levels() {
  static const std::vector<std::string> runnable = [] {
    std::vector<std::string> found;
    for (const std::string& level : jit::cpu_levels()) {
      if (jit::cpu_level_runs_here(level))
        found.push_back(level);
      else
        std::printf("SKIPPED: cpu_kernel: this machine does not run level %s\n", level.c_str());
    }
    return found;
  }();
  return runnable;
}

jit::ForwardConfig with_everything(jit::ForwardConfig c) {
  c.mask.local = c.mask.context = c.mask.minfull = c.mask.targets = true;
  return c;
}

void agree(const TestProblem& p, const std::string& level) {
  const TestRun run = launch(device(), kernel_for(device(), p.config, level), p);
  CHECK(disagreement(p, run) == "");
}

std::string text(const TestProblem& p) {
  std::string out;
  for (size_t b = 0; b < p.seqlen_q.size(); ++b)
    out += std::to_string(p.seqlen_q[b]) + "/" + std::to_string(p.seqlen_kv[b]) + "/" +
           std::to_string(p.targets.empty() ? 0 : p.targets[b]) + " ";
  for (const GroupArguments& g : p.groups)
    out += "local " + std::to_string(g.local_len) + " context " + std::to_string(g.context_len) +
           " minfull " + std::to_string(g.minfull_len) + " ";
  return out + "seed " + std::to_string(p.seed);
}

// Random lengths, targets and mask parameters that the configuration allows.
TestProblem random_problem(const jit::ForwardConfig& config, uint64_t seed, int longest) {
  TestProblem p;
  p.config = config;
  p.seed = seed;
  std::mt19937_64 random(seed);
  auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const int batch = config.grouped ? 4 : 3;
  const int some_length = pick(1, longest);
  const int some_length_kv = pick(1, longest);
  for (int b = 0; b < batch; ++b) {
    const int q = config.jagged ? (b == 1 ? pick(0, 1) : pick(1, longest)) : some_length;
    int kv = config.jagged ? pick(0, longest) : some_length_kv;
    if (!config.mask.cross) kv = q;
    p.seqlen_q.push_back(q);
    p.seqlen_kv.push_back(kv);
    if (config.mask.targets) p.targets.push_back(pick(0, 4) == 0 ? q : pick(0, std::min(q, 90)));
  }
  int context_room = 1 << 20;  // contexts are part of the lengths
  for (int b = 0; b < batch; ++b) {
    const int t = p.targets.empty() ? 0 : p.targets[static_cast<size_t>(b)];
    context_room = std::min(context_room, p.seqlen_q[static_cast<size_t>(b)] - t);
    if (config.mask.cross)
      context_room = std::min(context_room, p.seqlen_kv[static_cast<size_t>(b)]);
  }
  for (int g = 0; g < (config.grouped ? 2 : 1); ++g) {
    GroupArguments group{};
    if (config.mask.local) group.local_len = pick(0, 3) == 0 ? 0 : pick(1, pick(0, 1) ? 8 : 100);
    if (config.mask.context) group.context_len = std::min(context_room, pick(0, 80));
    if (config.mask.minfull) group.minfull_len = pick(0, 2) == 0 ? 0 : pick(1, longest);
    group.attn_scale = g == 0 ? 0.01f : 0.5f;
    p.groups.push_back(group);
  }
  return p;
}

}  // namespace

TEST_CASE("every level agrees with double precision, both types and activations") {
  for (const std::string& level : levels())
    for (Dtype dtype : {Dtype::bf16, Dtype::fp16})
      for (Activation activation : {Activation::silu, Activation::softmax}) {
        // Two of the four for the weaker levels: compiling is what this costs.
        if (level != levels().back() && (dtype == Dtype::bf16) != (activation == Activation::silu))
          continue;
        jit::ForwardConfig c = with_everything(plain_config(dtype, 64, 64));
        c.mask.causal = activation == Activation::silu;
        c.activation = activation;
        c.write_lse = activation == Activation::softmax;
        for (uint64_t seed = 1; seed <= 6; ++seed) {
          const TestProblem p = random_problem(c, seed, 200);
          INFO(level << " dtype " << static_cast<int>(dtype) << " softmax " << c.write_lse << " "
                     << text(p));
          agree(p, level);
        }
      }
}

TEST_CASE("each mask feature alone, cross and self, causal and not") {
  const std::string& level = levels().back();
  for (int feature = 0; feature < 5; ++feature)
    for (bool causal : {true, false})
      for (bool cross : {false, true}) {
        jit::ForwardConfig c = plain_config(Dtype::bf16, 32, 32);
        c.mask.causal = causal;
        c.mask.cross = cross;
        c.mask.local = feature == 1 || feature == 2;
        c.mask.minfull = feature == 2;
        c.mask.context = feature == 3;
        c.mask.targets = feature == 4;
        c.tile_m = 96;
        for (uint64_t seed = 1; seed <= 4; ++seed) {
          const TestProblem p = random_problem(c, seed, 250);
          INFO("feature " << feature << " causal " << causal << " cross " << cross << " "
                          << text(p));
          agree(p, level);
        }
      }
}

TEST_CASE("all features together: random problems") {
  const std::string& level = levels().back();
  for (bool causal : {true, false})
    for (bool cross : {false, true})
      for (bool grouped : {false, true}) {
        jit::ForwardConfig c = with_everything(plain_config(Dtype::bf16, 32, 48));
        c.mask.causal = causal;
        c.mask.cross = cross;
        c.grouped = grouped;
        c.activation = grouped ? Activation::softmax : Activation::silu;
        c.write_lse = grouped;
        for (uint64_t seed = 100; seed < 130; ++seed) {
          const TestProblem p = random_problem(c, seed, seed % 3 == 0 ? 300 : 120);
          INFO("causal " << causal << " cross " << cross << " " << text(p));
          agree(p, level);
        }
      }
}

TEST_CASE("head dims of every kind, strided tensors") {
  const int dims[][2] = {{8, 8}, {24, 40}, {40, 24}, {96, 64}, {256, 256}, {16, 256}, {80, 8}};
  for (const std::string& level : levels())
    for (const auto& dim : dims) {
      if (level != levels().back() && dim[0] != 24) continue;
      const bool half = dim[0] == 24 || dim[0] == 80;
      jit::ForwardConfig c = plain_config(half ? Dtype::fp16 : Dtype::bf16, dim[0], dim[1]);
      c.mask.causal = true;
      c.tile_n = dim[0] == 96 ? 256 : 32;
      for (int padding : {0, 3}) {
        TestProblem p = random_problem(c, 7 + static_cast<uint64_t>(padding), 150);
        p.padding = padding;
        INFO(level << " " << dim[0] << "x" << dim[1] << " padding " << padding);
        agree(p, level);
      }
    }
}

TEST_CASE("lengths 0 and 1, all targets, batched, empty launches") {
  const std::string& level = levels().back();
  jit::ForwardConfig c = with_everything(plain_config(Dtype::bf16, 32, 32));
  c.mask.causal = true;
  TestProblem p;
  p.config = c;
  p.groups = {{3, 0, 0, 0.25f}};
  for (auto lengths : {std::vector<int>{0}, {1}, {0, 1, 0}, {65, 1, 64, 2}}) {
    p.seqlen_q = p.seqlen_kv = p.targets = lengths;  // targets alone
    agree(p, level);
    for (int& t : p.targets) t = 0;
    agree(p, level);
  }
  p.seqlen_q = p.seqlen_kv = {};
  p.targets = {};
  p.groups = {{0, 0, 0, 1}};
  agree(p, level);

  for (uint64_t seed = 1; seed <= 5; ++seed) {
    jit::ForwardConfig batched = c;
    batched.jagged = false;
    batched.mask.context = false;
    agree(random_problem(batched, seed, 100), level);
  }
}

TEST_CASE("keys shorter than queries leave rows without a key: zero and -inf") {
  for (const std::string& level : levels()) {
    jit::ForwardConfig c = plain_config(Dtype::fp16, 64, 64);
    c.mask.causal = c.mask.cross = true;
    c.activation = Activation::softmax;
    c.write_lse = true;
    TestProblem p;
    p.config = c;
    p.seqlen_q = {100, 70};
    p.seqlen_kv = {30, 0};
    p.groups = {{0, 0, 0, 1}};
    const TestRun run = launch(device(), kernel_for(device(), c, level), p);
    CHECK(disagreement(p, run) == "");
    CHECK(run.lse[0] == -std::numeric_limits<float>::infinity());
    CHECK(run.o[0] == 0);
  }
}

TEST_CASE("large logits of either sign stay finite") {
  for (const std::string& level : levels())
    for (Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
      jit::ForwardConfig c = with_everything(plain_config(dtype, 64, 64));
      c.mask.causal = true;
      TestProblem p = random_problem(c, 3, 100);
      p.magnitude = 30;  // logits around 7000
      p.groups[0].attn_scale = 1e-4f;
      INFO(level);
      agree(p, level);
    }
}

TEST_CASE("results do not depend on the number of threads, bit for bit") {
  for (Activation activation : {Activation::silu, Activation::softmax}) {
    jit::ForwardConfig c = with_everything(plain_config(Dtype::bf16, 64, 64));
    c.activation = activation;
    const TestProblem p = random_problem(c, 11, 250);
    TestRun first;
    for (const char* threads : {"1", "2", "5"}) {
      std::unique_ptr<jit::Device> other = open_with_threads(threads);
      const TestRun run = launch(*other, kernel_for(device(), c, levels().back()), p);
      if (first.o.empty()) first = run;
      CHECK(run.o == first.o);
    }
  }
}

TEST_CASE("the comparison notices a wrong answer") {
  jit::ForwardConfig c = with_everything(plain_config(Dtype::bf16, 64, 64));
  c.mask.causal = true;
  TestProblem p = random_problem(c, 5, 120);
  TestRun run = launch(device(), kernel_for(device(), c, levels().back()), p);
  REQUIRE(disagreement(p, run) == "");
  TestRun off = run;
  off.o[100] = static_cast<uint16_t>(off.o[100] ^ 0x0080);  // twice or half
  CHECK(disagreement(p, off) != "");
  // Another mask is another answer.
  p.groups[0].local_len = p.groups[0].local_len == 0 ? 5 : 0;
  CHECK(disagreement(p, run) != "");
}

}  // namespace hstu::test
