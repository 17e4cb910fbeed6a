// SPDX-License-Identifier: Apache-2.0
// The GPU kernels through every compiler found here, with the planner's tiles: no spill, no
// scratch, the LDS the tile asks for, the matrix instructions its shape needs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "catch.hpp"
#include "compile/compile.hpp"
#include "compile/locate.hpp"
#include "object/inspect.hpp"
#include "plan/tiles.hpp"
#include "source/source.hpp"

using namespace hstu;
using namespace hstu::jit;

namespace {

struct Case {
  Dtype dtype;
  Activation activation;  // softmax: with LSE
  int qk, v;
  bool jagged, grouped;
  MaskFeatures mask;
  bool narrow = false;
};

constexpr MaskFeatures kCausal{true, false, false, false, false, false};
constexpr MaskFeatures kAll{true, false, true, true, true, true};
constexpr MaskFeatures kOpen{false, false, true, true, true, true};
constexpr MaskFeatures kWindow{true, false, true, false, false, true};
constexpr MaskFeatures kOpenWindow{false, false, true, false, false, false};
constexpr MaskFeatures kCross{true, true, true, true, true, true};

constexpr Case kCases[] = {
    {Dtype::bf16, Activation::silu, 128, 128, true, false, kCausal},
    {Dtype::fp16, Activation::softmax, 128, 128, true, true, kAll},
    {Dtype::bf16, Activation::softmax, 128, 96, true, false, kCross},
    {Dtype::fp16, Activation::silu, 96, 128, false, false, kOpen},
    {Dtype::bf16, Activation::silu, 64, 64, true, false, kAll},
    {Dtype::fp16, Activation::softmax, 8, 24, true, false, kOpen},
    {Dtype::bf16, Activation::silu, 256, 256, true, false, kAll},
    {Dtype::fp16, Activation::softmax, 256, 256, true, true, kCross},
    {Dtype::bf16, Activation::softmax, 64, 256, false, false, kOpen},
    {Dtype::fp16, Activation::silu, 256, 40, true, false, kAll},
    {Dtype::bf16, Activation::softmax, 192, 192, true, false, kAll},
    {Dtype::bf16, Activation::silu, 96, 96, true, true, kAll},
    {Dtype::bf16, Activation::silu, 128, 128, true, false, kWindow, true},
    {Dtype::fp16, Activation::softmax, 128, 64, true, true, kWindow, true},
    {Dtype::fp16, Activation::silu, 64, 64, false, false, kOpenWindow, true},
    {Dtype::bf16, Activation::softmax, 64, 200, true, false, kWindow, true},
    {Dtype::bf16, Activation::silu, 256, 256, true, false, kWindow, true},
};

// Matrix instructions of a wave in one step of keys, of this target.
int64_t expected_products(const ForwardConfig& c, const TileChoice& t, const Target& target) {
  if (t.stages > 0) {
    // wgmma: 64 rows, all keys or columns, over 16; the step under no mask alone.
    return int64_t{(c.head_dim_qk + 15) / 16} + t.tile_n / 16;
  }
  if (target.vendor == Vendor::nvidia) {
    // 16x8 results over 16 (or, an odd end of the head dim, 8) elements.
    const int row_tiles = t.tile_m / t.waves / 16;
    return int64_t{row_tiles} *
           (t.tile_n / 8 * ((c.head_dim_qk + 15) / 16) + t.tile_n / 16 * (c.head_dim_v / 8));
  }
  if (target.wave_width == 32)  // 16x16 over 16
    return int64_t{t.tile_n / 16} * (t.padded_qk / 16 + t.padded_v / 16);
  // 32x32 over 16
  const int instructions = target.matrix == MatrixUnit::mfma_gfx950                             ? 1
                           : target.matrix == MatrixUnit::mfma_gfx908 && c.dtype == Dtype::bf16 ? 4
                                                                                                : 2;
  return int64_t{t.tile_n / 32} * (t.padded_qk / 16 + 2 * (t.padded_v / 32)) * instructions;
}

// "" if the object is as it should be.
std::string judge(const ObjectInfo& info, const ForwardConfig& c, const TileChoice& t,
                  const Target& target) {
  if (info.kernels.size() != 1) return "not one kernel";
  const KernelInfo& k = info.kernels[0];
  if (k.vgpr_spills.value_or(0) != 0) return fmt::format("{} VGPRs spilled", *k.vgpr_spills);
  if (k.sgpr_spills.value_or(0) != 0) return fmt::format("{} SGPRs spilled", *k.sgpr_spills);
  if (k.scratch_bytes.value_or(-1) != 0)
    return fmt::format("{} bytes of scratch", k.scratch_bytes.value_or(-1));
  const int reserved = target.name == "sm_90a" ? 1024 : 0;  // the machine's own, in every object
  if (k.lds_bytes.value_or(-1) != t.lds_bytes - t.dynamic_lds_bytes + reserved)
    return fmt::format("{} bytes of LDS", k.lds_bytes.value_or(-1));
  if (k.max_workgroup.value_or(-1) != t.waves * target.wave_width) return "wrong workgroup size";
  if (k.matrix_instructions && *k.matrix_instructions < expected_products(c, t, target))
    return fmt::format("{} matrix instructions, {} expected", *k.matrix_instructions,
                       expected_products(c, t, target));
  return "";
}

void compile_all(const char* target_name, Driver driver) {
  const auto skip = [&](const std::string& reason) {
    fmt::print("SKIPPED: templates_compile {} with {}: {}\n", target_name, driver_name(driver),
               reason);
  };
  const auto found = compiler_candidates(driver);
  if (found.empty()) return skip(how_to_get(driver));
  const auto target = find_target(target_name);
  REQUIRE(target);
  bool counted = false;
  for (const Case& one : kCases) {
    Plan plan;
    plan.target = *target;
    ForwardConfig& c = plan.config;
    c.dtype = one.dtype;
    c.head_dim_qk = one.qk;
    c.head_dim_v = one.v;
    c.activation = one.activation;
    c.write_lse = one.activation == Activation::softmax;
    c.jagged = one.jagged;
    c.grouped = one.grouped;
    c.mask = one.mask;
    c.narrow = one.narrow;
    const auto tiles = choose_tiles(c, *target);
    REQUIRE(tiles);
    if (one.narrow && !tiles->apart) continue;  // the same kernel as of wide windows
    c.tile_m = tiles->tile_m;
    c.tile_n = tiles->tile_n;
    c.waves = tiles->waves;
    c.waves_per_simd = tiles->waves_per_simd;
    c.stages = tiles->stages;
    c.q_buffers = tiles->q_buffers;
    c.apart = tiles->apart;
    plan.template_name = tiles->template_name;
    plan.entry = "hstu_forward";
    const auto source = write_source(plan, "{}");
    REQUIRE(source);
    const auto object = compile(*source, *target, Toolchain{driver, found[0], "", ""}, {});
    if (!object && object.error().message.find("does not know target") != std::string::npos)
      return skip(object.error().message);
    INFO(fmt::format("{} {} qk {} v {} {} {}", target_name, driver_name(driver), one.qk, one.v,
                     one.dtype == Dtype::fp16 ? "fp16" : "bf16",
                     one.activation == Activation::silu ? "silu" : "softmax"));
    if (!object) {
      CHECK(object.error().message + object.error().detail == "");
      continue;
    }
    // ptxas runs matrix products one by one where it cannot follow their registers, and says so.
    CHECK(object->log.find("serialized") == std::string::npos);
    auto info = read_object(object->bytes);
    REQUIRE(info);
    count_instructions(*info, object->bytes);
    counted = counted || info->kernels[0].matrix_instructions;
    CHECK(judge(*info, c, *tiles, *target) == "");
  }
  if (!counted) skip("no disassembler: matrix instructions were not counted");
}

struct UseWorker {
  UseWorker() { setenv("HSTU_JIT_WORKER", HSTU_REAL_WORKER, 0); }
} const use_worker;

}  // namespace

TEST_CASE("cdna kernels: hipRTC", "[compile]") {
  for (const char* target : {"gfx908", "gfx90a", "gfx942", "gfx950"})
    compile_all(target, Driver::hiprtc);
}

TEST_CASE("cdna kernels: clang", "[compile]") {
  for (const char* target : {"gfx908", "gfx90a", "gfx942", "gfx950"})
    compile_all(target, Driver::clang);
}

TEST_CASE("rdna kernels: clang", "[compile]") {
  for (const char* target : {"gfx1100", "gfx1201"}) compile_all(target, Driver::clang);
}

TEST_CASE("nvidia kernels: NVRTC", "[compile]") {
  for (const char* target : {"sm_80", "sm_90a"}) compile_all(target, Driver::nvrtc);
}

TEST_CASE("gpu kernels: the checks notice", "[compile]") {
  const auto target = find_target("gfx90a");
  REQUIRE(target);
  ForwardConfig c;
  TileChoice t;
  t.tile_n = 64;
  t.padded_qk = t.padded_v = 128;
  t.lds_bytes = 65536;
  t.waves = 8;
  ObjectInfo good;
  good.target = "gfx90a";
  good.kernels.resize(1);
  KernelInfo& k = good.kernels[0];
  k.vgpr_spills = k.sgpr_spills = 0;
  k.scratch_bytes = 0;
  k.lds_bytes = 65536;
  k.max_workgroup = 512;
  k.matrix_instructions = 64;  // 2 parts of 8 + 8 products, two instructions each
  CHECK(judge(good, c, t, *target) == "");
  const auto bad = [&](auto change) {
    ObjectInfo copy = good;
    change(copy.kernels[0]);
    return !judge(copy, c, t, *target).empty();
  };
  CHECK(bad([](KernelInfo& x) { x.vgpr_spills = 1; }));
  CHECK(bad([](KernelInfo& x) { x.sgpr_spills = 1; }));
  CHECK(bad([](KernelInfo& x) { x.scratch_bytes = 4; }));
  CHECK(bad([](KernelInfo& x) { x.lds_bytes = 32768; }));
  CHECK(bad([](KernelInfo& x) { x.max_workgroup = 256; }));
  CHECK(bad([](KernelInfo& x) { x.matrix_instructions = 63; }));
}
