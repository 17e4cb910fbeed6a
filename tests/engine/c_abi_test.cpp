// SPDX-License-Identifier: Apache-2.0
// The library through its public headers only.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hstu_jit/hstu_jit.hpp>
#include <string>
#include <vector>

#include "catch.hpp"

extern "C" size_t hstu_test_forward_size(void);

namespace {

uint16_t bf16(float value) {  // exact for the values used here
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

const char* const kSpec = R"({"op": "hstu_attention", "heads": 1, "head_dim_qk": 8,
                              "uih_lengths": [2]})";

hstu_options cpu_options() {
  hstu_options options{};
  options.size = sizeof options;
  options.device = "cpu";
  options.cache_mode = HSTU_CACHE_OFF;
  return options;
}

}  // namespace

TEST_CASE("C and C++ see the same structure") {
  CHECK(hstu_test_forward_size() == sizeof(hstu_forward));
  CHECK(std::string(hstu_version()).find('.') != std::string::npos);
}

TEST_CASE("a prepared kernel runs with lengths of its own, and gives what the formula says") {
  hstu::jit::api::Engine engine(cpu_options());
  hstu::jit::api::Kernel kernel = engine.prepare(kSpec);
  CHECK_THAT(kernel.info(), ContainsSubstring("\"source\":\"compiled\""));
  CHECK_THAT(engine.prepare(kSpec).info(), ContainsSubstring("\"source\":\"memory\""));

  // Three tokens; q = k = e0, so every logit is alpha. Row i sums silu(alpha) * v over j <= i.
  std::vector<uint16_t> q(3 * 8, 0), v(3 * 8), o(3 * 8, 0xffff);
  for (int i = 0; i < 3; ++i) {
    q[i * 8] = bf16(1.0f);
    for (int d = 0; d < 8; ++d) v[i * 8 + d] = bf16(static_cast<float>(i + 1));
  }
  const std::vector<int32_t> offsets = {0, 3};
  hstu_forward call{};
  call.size = sizeof call;
  call.q = q.data();
  call.k = q.data();
  call.v = v.data();
  call.o = o.data();
  call.seq_offsets_q = offsets.data();
  call.mask.attn_scale = 0.5f;
  call.alpha = 2.0f;
  call.batch = 1;
  call.heads = 1;
  call.seqlen_q = call.seqlen_kv = 3;
  kernel.launch(call);
  const double silu = 2.0 / (1.0 + std::exp(-2.0));
  for (int i = 0; i < 3; ++i) {
    const double want = 0.5 * silu * (i + 1) * (i + 2) / 2;
    for (int d = 0; d < 8; ++d) CHECK(from_bf16(o[i * 8 + d]) == Approx(want).epsilon(0.01));
  }
}

TEST_CASE("options of a program built with the first header, and of one built with a later one") {
  struct First {  // hstu_options as it was
    size_t size;
    const char* device;
    const char* cache_dir;
    int cache_mode;
    uint32_t compile_timeout_ms;
  };
  struct {
    First first;
    unsigned char beyond[sizeof(hstu_options)];  // not the structure's, so not to be read
  } old{};
  std::memset(old.beyond, 0xff, sizeof old.beyond);
  old.first = {sizeof(First), "cpu", nullptr, HSTU_CACHE_OFF, 0};
  hstu_engine* engine = nullptr;
  CHECK(hstu_engine_create(reinterpret_cast<const hstu_options*>(&old), &engine, nullptr) ==
        HSTU_OK);
  hstu_engine_destroy(engine);
  old.first.size = sizeof(First) - 1;
  CHECK(hstu_engine_create(reinterpret_cast<const hstu_options*>(&old), &engine, nullptr) ==
        HSTU_E_ARGUMENT);
  CHECK(engine == nullptr);

  struct {
    hstu_options options;
    unsigned char later[64];
  } next{cpu_options(), {}};
  next.options.size = sizeof next;
  CHECK(hstu_engine_create(&next.options, &engine, nullptr) == HSTU_OK);
  hstu_engine_destroy(engine);
}

TEST_CASE("bundles that cannot be used, and what an engine says it did") {
  hstu_options options = cpu_options();
  options.cache_mode = HSTU_CACHE_READ_ONLY;
  options.bundles = "/nowhere/k.hjb";
  hstu_engine* none = nullptr;
  hstu_error* error = nullptr;
  CHECK(hstu_engine_create(&options, &none, &error) == HSTU_E_CACHE);
  REQUIRE(error != nullptr);
  CHECK(std::string(hstu_error_message(error)).find("/nowhere/k.hjb") != std::string::npos);
  hstu_error_free(error);

  hstu::jit::api::Engine engine(cpu_options());
  engine.prepare(kSpec);
  engine.prepare(kSpec);
  const std::string stats = engine.stats();
  for (const char* part : {"\"schema\":\"hstu-jit/engine-stats/1\"", "\"requests\":2",
                           "\"memory\":1", "\"compiles\":1"}) {
    CHECK_THAT(stats, ContainsSubstring(part));
  }
  CHECK(hstu_engine_stats(engine.get(), nullptr, nullptr) == HSTU_E_ARGUMENT);
  char* json = nullptr;
  CHECK(hstu_engine_stats(nullptr, &json, nullptr) == HSTU_E_ARGUMENT);
  CHECK(json == nullptr);
  hstu_free(nullptr);
}

TEST_CASE("wrong calls are refused with a reason") {
  hstu_error* error = nullptr;
  CHECK(hstu_engine_create(nullptr, nullptr, &error) == HSTU_E_ARGUMENT);
  REQUIRE(error != nullptr);
  CHECK(std::string(hstu_error_message(error)).find("NULL") != std::string::npos);
  hstu_error_free(error);
  CHECK(hstu_engine_create(nullptr, nullptr, nullptr) == HSTU_E_ARGUMENT);

  hstu::jit::api::Engine engine(cpu_options());
  const auto status_of = [&](const std::string& spec) {
    try {
      engine.prepare(spec);
    } catch (const hstu::jit::api::Failure& failure) {
      return failure.status();
    }
    return HSTU_OK;
  };
  CHECK(status_of("{") == HSTU_E_SPEC);
  CHECK(status_of("[]") == HSTU_E_SPEC);
  try {
    engine.prepare(R"({"op": "hstu_attention", "hedas": 1})");
    FAIL("a misspelt key was accepted");
  } catch (const hstu::jit::api::Failure& failure) {
    CHECK(failure.pointer() == "/hedas");
  }

  hstu::jit::api::Kernel kernel = engine.prepare(kSpec);
  hstu_forward call{};
  CHECK(hstu_launch(kernel.get(), &call, nullptr, nullptr) == HSTU_E_ARGUMENT);
  call.size = sizeof call;
  call.batch = call.heads = call.seqlen_q = 1;
  CHECK(hstu_launch(kernel.get(), &call, nullptr, nullptr) == HSTU_E_ARGUMENT);
  CHECK(hstu_launch(nullptr, &call, nullptr, nullptr) == HSTU_E_ARGUMENT);
  call.batch = 0;
  CHECK(hstu_launch(kernel.get(), &call, nullptr, nullptr) == HSTU_OK);

  // A window that the prepared structure does not have would be ignored silently: refused.
  uint16_t x[8] = {};
  const int32_t offsets[2] = {0, 1};
  call.batch = 1;
  call.seqlen_kv = 1;
  call.q = call.k = call.v = x;
  call.o = x;
  call.seq_offsets_q = offsets;
  call.mask.local_len = 4;
  CHECK(hstu_launch(kernel.get(), &call, nullptr, nullptr) == HSTU_E_ARGUMENT);

  call.mask.local_len = 0;
  call.num_targets = offsets;
  CHECK(hstu_launch(kernel.get(), &call, nullptr, nullptr) == HSTU_E_ARGUMENT);
  call.num_targets = nullptr;
  CHECK(hstu_launch(kernel.get(), &call, nullptr, nullptr) == HSTU_OK);

  hstu_engine_destroy(nullptr);
  hstu_kernel_release(nullptr);
  hstu_error_free(nullptr);
}

// Against a driver that computes nothing: what a copy-engine kernel has to be told.
TEST_CASE("jagged calls of a Hopper kernel say how many tokens there are") {
  setenv("HSTU_JIT_CUDA", HSTU_FAKE_CUDA, 1);
  hstu_options options = cpu_options();
  options.device = "cuda:0";
  hstu::jit::api::Engine engine(options);
  hstu_kernel* kernel = nullptr;
  hstu_error* error = nullptr;
  const std::string spec =
      R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 64, "uih_lengths": [200, 70]})";
  const hstu_status prepared =
      hstu_prepare(engine.get(), spec.data(), spec.size(), &kernel, &error);
  unsetenv("HSTU_JIT_CUDA");
  if (prepared == HSTU_E_COMPILE) {
    INFO(hstu_error_message(error));
    CHECK(std::string(hstu_error_message(error)).find("NVRTC") != std::string::npos);
    hstu_error_free(error);
    std::printf("SKIPPED: launches of a Hopper kernel: no NVRTC\n");
    return;
  }
  REQUIRE(prepared == HSTU_OK);
  alignas(16) static uint16_t tensor[8];  // its address is all that is looked at
  int32_t offsets[3] = {0, 200, 270};
  hstu_forward call{};
  call.size = sizeof call;
  call.q = call.k = call.v = tensor;
  call.o = tensor;
  call.seq_offsets_q = offsets;
  call.mask.attn_scale = 1;
  call.batch = call.heads = 2;
  call.seqlen_q = call.seqlen_kv = 200;
  CHECK(hstu_launch(kernel, &call, nullptr, &error) == HSTU_E_ARGUMENT);
  REQUIRE(error != nullptr);
  CHECK(std::string(hstu_error_message(error)).find("tokens_q") != std::string::npos);
  hstu_error_free(error);
  call.tokens_q = 270;
  CHECK(hstu_launch(kernel, &call, nullptr, nullptr) == HSTU_OK);
  call.batch = 0;
  CHECK(hstu_launch(kernel, &call, nullptr, nullptr) == HSTU_OK);
  hstu_kernel_release(kernel);
}
