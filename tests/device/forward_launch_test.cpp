// SPDX-License-Identifier: Apache-2.0
// The launch a template wants: arguments as they are, or tensor maps, counters and a persistent
// grid for Hopper kernels, against a fake NVIDIA driver that notes all of it.
#include "engine/forward_launch.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "fake_driver.hpp"
#include "object/make_object.hpp"

using namespace hstu::jit;
using hstu::ForwardArguments;
using hstu::HopperArguments;
using hstu::test::FakeDriver;
using hstu::test::make_cubin;

namespace {

Plan hopper_plan(bool jagged) {
  Plan plan;
  plan.template_name = kHopperTemplate;
  plan.config.dtype = hstu::Dtype::fp16;
  plan.config.activation = hstu::Activation::softmax;
  plan.config.head_dim_qk = 96;
  plan.config.head_dim_v = 64;
  plan.config.jagged = jagged;
  plan.config.tile_m = 128;
  plan.config.tile_n = 64;
  plan.config.q_buffers = 2;
  plan.launch.block = 256;
  plan.launch.dynamic_lds_bytes = 200000;
  return plan;
}

ForwardArguments call() {
  ForwardArguments a{};
  a.q = reinterpret_cast<const unsigned short*>(0x10000);
  a.k = reinterpret_cast<const unsigned short*>(0x20000);
  a.v = reinterpret_cast<const unsigned short*>(0x30000);
  a.o = reinterpret_cast<unsigned short*>(0x40000);
  a.q_strides = {5000 * 384, 384, 96};
  a.k_strides = {6000 * 400, 400, 96};
  a.v_strides = {6000 * 256, 256, 64};
  a.o_strides = {5000 * 320, 320, 72};
  a.batch = 3;
  a.heads = 4;
  a.seqlen_q = 1000;
  a.seqlen_kv = 1200;
  a.alpha = 0.5f;
  return a;
}

struct Setup {
  explicit Setup(FakeDriver& driver, const Plan& plan) : fake(driver) {
    fake.state->argument_bytes = sizeof(HopperArguments);
    device = std::move(*open_device("cuda"));
    kernel = std::move(*device->load(
        make_cubin(90, true, {"attention", {{48, sizeof(HopperArguments)}}, 1024}), "attention"));
    auto made = ForwardLauncher::create(*device, plan);
    REQUIRE(made.ok());
    launcher = std::move(*made);
  }
  HopperArguments last() const {
    HopperArguments arguments;
    REQUIRE_FALSE(fake.state->launches.empty());
    const std::string& bytes = fake.state->launches.back().argument;
    REQUIRE(bytes.size() == sizeof arguments);
    std::memcpy(&arguments, bytes.data(), sizeof arguments);
    return arguments;
  }
  FakeDriver& fake;
  std::unique_ptr<Device> device;
  std::unique_ptr<DeviceKernel> kernel;
  std::unique_ptr<ForwardLauncher> launcher;
};

using Extents = std::vector<uint64_t>;

}  // namespace

TEST_CASE("hopper launch: maps of batched tensors are the tensors, bytes for elements", "[cuda]") {
  FakeDriver fake;
  {
    Setup s(fake, hopper_plan(false));
    const ForwardArguments a = call();
    REQUIRE(s.launcher->launch(*s.kernel, a, {1000, 1200}, nullptr).ok());
    REQUIRE(fake.state->tensor_maps.size() == 4);
    const auto& maps = fake.state->tensor_maps;
    CHECK(maps[0].address == a.q);
    CHECK(maps[1].address == a.k);
    CHECK(maps[2].address == a.v);
    CHECK(maps[3].address == a.o);
    CHECK(maps[0].extents == Extents{96, 1000, 4, 3});
    CHECK(maps[1].extents == Extents{96, 1200, 4, 3});
    CHECK(maps[2].extents == Extents{64, 1200, 4, 3});
    CHECK(maps[3].extents == Extents{64, 1000, 4, 3});
    CHECK(maps[0].strides == Extents{768, 192, 5000 * 768});
    CHECK(maps[1].strides == Extents{800, 192, 6000 * 800});
    CHECK(maps[2].strides == Extents{512, 128, 6000 * 512});
    CHECK(maps[3].strides == Extents{640, 144, 5000 * 640});
    CHECK(maps[0].box == std::vector<uint32_t>{64, 64, 1, 1});  // of one warpgroup
    CHECK(maps[1].box == std::vector<uint32_t>{64, 64, 1, 1});
    CHECK(maps[3].box == std::vector<uint32_t>{64, 16, 1, 1});  // of one warp
    for (const FakeTensorMap& map : maps) {
      CHECK(map.data_type == 6);  // fp16
      CHECK(map.swizzle == 3);    // 128 bytes
    }
    const FakeCudaLaunch& launch = fake.state->launches.back();
    CHECK(launch.grid[0] == 3 * 4 * 8);  // fewer tiles than multiprocessors
    CHECK(launch.block[0] == 256);
    CHECK(launch.dynamic_shared == 200000);
    const HopperArguments got = s.last();
    CHECK(std::memcmp(&got.forward, &a, sizeof a) == 0);
    CHECK(got.q.words[0] == 0x7777777777777777);  // what the fake driver writes
    CHECK(got.v.words[15] == 0x7777777777777777);
    CHECK(got.o.words[15] == 0x7777777777777777);
  }
  fake.check_balance();
}

TEST_CASE("hopper launch: jagged tensors are one sequence of all tokens", "[cuda]") {
  FakeDriver fake;
  {
    Setup s(fake, hopper_plan(true));
    ForwardArguments a = call();
    a.batch = 100;
    a.q_strides.batch = a.k_strides.batch = a.v_strides.batch = a.o_strides.batch = 0;
    REQUIRE(s.launcher->launch(*s.kernel, a, {70000, 80000}, nullptr).ok());
    const auto& maps = fake.state->tensor_maps;
    REQUIRE(maps.size() == 4);
    CHECK(maps[0].extents == Extents{96, 70000, 4, 1});
    CHECK(maps[1].extents == Extents{96, 80000, 4, 1});
    CHECK(maps[3].extents == Extents{64, 70000, 4, 1});
    for (const FakeTensorMap& map : maps) {
      CHECK(map.strides[2] > 0);  // never used, but the driver refuses 0
      CHECK(map.strides[2] % 16 == 0);
    }
    CHECK(fake.state->launches.back().grid[0] == 132);  // as many as there are multiprocessors

    // Sequences without any key: no map of nothing is made, but zeros are written.
    fake.state->tensor_maps.clear();
    REQUIRE(s.launcher->launch(*s.kernel, a, {69999, 0}, nullptr).ok());
    REQUIRE(fake.state->tensor_maps.size() == 2);
    CHECK(fake.state->tensor_maps[0].address == a.q);
    CHECK(fake.state->tensor_maps[1].address == a.o);

    // Nothing to do, and what cannot be done.
    const size_t launches = fake.state->launches.size();
    a.batch = 0;
    CHECK(s.launcher->launch(*s.kernel, a, {0, 0}, nullptr).ok());
    a.batch = 100;
    const Status unknown = s.launcher->launch(*s.kernel, a, {0, 0}, nullptr);
    REQUIRE_FALSE(unknown.ok());
    CHECK(unknown.error().kind == ErrorKind::kUsage);
    fake.fail("cuTensorMapEncodeTiled", 1, 1);
    CHECK_FALSE(s.launcher->launch(*s.kernel, a, {70001, 80001}, nullptr).ok());
    CHECK(fake.state->launches.size() == launches);
  }
  fake.check_balance();
}

TEST_CASE("hopper launch: kernels with one query buffer write for themselves", "[cuda]") {
  FakeDriver fake;
  {
    Plan plan = hopper_plan(true);
    plan.config.q_buffers = 1;
    Setup s(fake, plan);
    REQUIRE(s.launcher->launch(*s.kernel, call(), {70000, 80000}, nullptr).ok());
    CHECK(fake.state->tensor_maps.size() == 3);
    CHECK(s.last().o.words[0] == 0);
  }
  fake.check_balance();
}

TEST_CASE("hopper launch: pairs of workgroups share few tiles of many keys", "[cuda]") {
  struct Launched {
    unsigned grid, cluster;
    bool operator==(const Launched&) const = default;
  };
  const auto launched = [](const char* driver, auto change) {
    FakeDriver fake(driver);
    Launched result{};
    {
      Plan plan = hopper_plan(false);
      plan.config.activation = hstu::Activation::silu;
      ForwardArguments a = call();
      change(plan, a);
      Setup s(fake, plan);
      REQUIRE(s.launcher->launch(*s.kernel, a, {a.seqlen_q, a.seqlen_kv}, nullptr).ok());
      const FakeCudaLaunch& launch = fake.state->launches.back();
      result = {launch.grid[0], launch.cluster};
    }
    fake.check_balance();
    return result;
  };
  const auto here = [&](auto change) { return launched("fake_cuda", change); };
  CHECK(here([](Plan&, ForwardArguments&) {}) == Launched{132, 2});  // 96 tiles, 132 processors
  CHECK(here([](Plan&, ForwardArguments& a) { a.batch = 1; }) == Launched{64, 2});  // 32 tiles
  // Enough tiles for everyone, few keys, softmax, or outputs that do not halve: each by one.
  CHECK(here([](Plan&, ForwardArguments& a) { a.batch = 6; }) == Launched{132, 1});
  // Of very many keys up to two tiles a multiprocessor.
  CHECK(here([](Plan&, ForwardArguments& a) { a.batch = 8, a.seqlen_kv = 3072; }) ==
        Launched{132, 2});
  CHECK(here([](Plan&, ForwardArguments& a) { a.batch = 8, a.seqlen_kv = 3071; }) ==
        Launched{132, 1});
  CHECK(here([](Plan&, ForwardArguments& a) { a.batch = 9, a.seqlen_kv = 4000; }) ==
        Launched{132, 1});
  // Shared tiles have 128 rows whatever the kernel's have.
  CHECK(here([](Plan& p, ForwardArguments& a) { p.config.tile_m = 192, a.batch = 1; }) ==
        Launched{64, 2});
  CHECK(here([](Plan&, ForwardArguments& a) { a.seqlen_kv = 1024; }) == Launched{132, 2});
  CHECK(here([](Plan&, ForwardArguments& a) { a.seqlen_kv = 1023; }) == Launched{96, 1});
  CHECK(here([](Plan& p, ForwardArguments&) { p.config.activation = hstu::Activation::softmax; }) ==
        Launched{96, 1});
  CHECK(here([](Plan& p, ForwardArguments&) { p.config.head_dim_v = 96; }) == Launched{96, 1});
  // Warpgroups with keys of their own have nothing to share.
  CHECK(here([](Plan& p, ForwardArguments&) { p.config.apart = true; }) == Launched{96, 1});
}

TEST_CASE("hopper launch: few calls, with the context looked at once, whoever's it is", "[cuda]") {
  FakeDriver fake;
  {
    Setup s(fake, hopper_plan(false));
    using Calls = std::vector<std::string>;
    const std::string map = "cuTensorMapEncodeTiled";
    ForwardArguments a = call();
    TokenCounts tokens{1000, 1200};
    const auto calls = [&] {
      fake.state->calls.clear();
      CHECK(s.launcher->launch(*s.kernel, a, tokens, nullptr).ok());
      return fake.state->calls;
    };
    CHECK(calls() == Calls{"cuCtxGetCurrent", "cuCtxPushCurrent", map, map, map, map,
                           "cuLaunchKernel", "cuCtxPopCurrent"});
    // The same tensors again; what is remembered is what was encoded for them.
    CHECK(calls() ==
          Calls{"cuCtxGetCurrent", "cuCtxPushCurrent", "cuLaunchKernel", "cuCtxPopCurrent"});
    const HopperArguments got = s.last();
    CHECK(got.q.words[3] == 0x7777777777777777);
    CHECK(got.v.words[3] == 0x7777777777777777);
    // Anything about a tensor that differs is another map.
    const auto encoded = [&] {
      const Calls made = calls();
      return std::count(made.begin(), made.end(), map);
    };
    tokens.q = 999;
    CHECK(encoded() == 2);
    tokens.kv = 1199;
    CHECK(encoded() == 2);
    a.k += 8;
    CHECK(encoded() == 1);
    a.v_strides.seq += 8;
    CHECK(encoded() == 1);
    a.o += 8;
    CHECK(encoded() == 1);
    a.heads = 2;
    CHECK(encoded() == 4);
    a.batch = 2;
    CHECK(encoded() == 4);
    CHECK(encoded() == 0);
    // Another launcher, perhaps of another device, does not take them.
    auto second = ForwardLauncher::create(*s.device, hopper_plan(false));
    REQUIRE(second.ok());
    fake.state->tensor_maps.clear();
    CHECK((*second)->launch(*s.kernel, a, tokens, nullptr).ok());
    CHECK(fake.state->tensor_maps.size() == 4);

    void* other = fake.new_context(1);
    fake.push(other);
    CHECK(calls().back() == "cuCtxPopCurrent");
    CHECK(fake.current() == other);
    // A failure is not remembered, and afterwards the next call looks for its context again.
    a.q += 16, a.k += 16;
    fake.fail(map, 1, 1);
    CHECK_FALSE(s.launcher->launch(*s.kernel, a, tokens, nullptr).ok());
    CHECK(fake.current() == other);
    CHECK(s.device->fill(**s.device->allocate(16), 0).ok());
    CHECK(fake.current() == other);
    CHECK(encoded() == 1);
    fake.pop();
  }
  fake.check_balance();
}

TEST_CASE("hopper launch: counters are zero, and no two launches under way share them", "[cuda]") {
  FakeDriver fake;
  {
    Setup s(fake, hopper_plan(false));
    const ForwardArguments a = call();
    auto first = s.device->create_stream(), second = s.device->create_stream();
    REQUIRE((first.ok() && second.ok()));
    std::set<const void*> eager, captured;
    for (int i = 0; i < 50; ++i) {
      void* stream = i % 3 == 0 ? nullptr : i % 3 == 1 ? *first : *second;
      REQUIRE(s.launcher->launch(*s.kernel, a, {1000, 1200}, stream).ok());
      const unsigned* counters = s.last().counters;
      CHECK((counters[0] == 0 && counters[1] == 0));  // device memory of the fake is the host's
      CHECK(eager.insert(counters).second);
    }
    for (int i = 0; i < 5; ++i) {
      REQUIRE(s.device->begin_capture(*first).ok());
      for (int k = 0; k < 3; ++k)
        REQUIRE(s.launcher->launch(*s.kernel, a, {1000, 1200}, *first).ok());
      auto graph = s.device->end_capture(*first);
      REQUIRE(graph.ok());
      const size_t before = fake.state->launches.size();
      REQUIRE(s.device->launch(**graph, *second).ok());
      REQUIRE(fake.state->launches.size() == before + 3);
      for (size_t k = before; k < before + 3; ++k) {
        HopperArguments arguments;
        std::memcpy(&arguments, fake.state->launches[k].argument.data(), sizeof arguments);
        CHECK(captured.insert(arguments.counters).second);
        CHECK(eager.count(arguments.counters) == 0);
      }
    }
    s.device->destroy_stream(*first);
    s.device->destroy_stream(*second);
  }
  fake.check_balance();
}

TEST_CASE("launch: kernels of other templates get their arguments as they are", "[cuda]") {
  FakeDriver fake;
  fake.state->argument_bytes = sizeof(ForwardArguments);
  {
    auto device = std::move(*open_device("cuda"));
    auto kernel = std::move(*device->load(
        make_cubin(90, true, {"attention", {{0, sizeof(ForwardArguments)}}, 1024}), "attention"));
    Plan plan = hopper_plan(true);
    plan.template_name = "attention/forward_nvidia.hip";
    auto launcher = ForwardLauncher::create(*device, plan);
    REQUIRE(launcher.ok());
    CHECK_FALSE((*launcher)->needs_tokens());
    ForwardArguments a = call();
    a.batch = 70000;  // batch x heads is beyond what a grid has in y or z
    REQUIRE((*launcher)->launch(*kernel, a, {}, nullptr).ok());
    REQUIRE(fake.state->launches.size() == 1);
    CHECK(fake.state->launches[0].grid[0] == 70000u * 4 * 8);
    CHECK(std::memcmp(fake.state->launches[0].argument.data(), &a, sizeof a) == 0);
    CHECK(fake.state->tensor_maps.empty());
    CHECK(fake.state->allocations == 0);
  }
  fake.check_balance();
}
