// SPDX-License-Identifier: Apache-2.0
// Matrix instructions against a plain product, through the lane layouts of the ISA documents.
// Operands are small multiples of a power of two, so every sum is exact in every order.
#include <fmt/format.h>

#include <random>

#include "catch.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

using U = uint32_t;
enum class Type { f16, bf16, f32, i8 };

struct MatrixShape {
  const char* name;
  Type type;
  int m, k, blocks;
  int per_lane;  // elements of A (and of B) that a lane holds
};

int bits_of(Type type) { return type == Type::f32 ? 32 : type == Type::i8 ? 8 : 16; }

U encode(double x, Type type) {
  switch (type) {
    case Type::f16:
      return from_f16(x);
    case Type::bf16:
      return from_bf16(x);
    case Type::f32:
      return from_f32(static_cast<float>(x));
    default:
      return static_cast<U>(static_cast<int>(x)) & 0xff;
  }
}

double small_value(std::mt19937& random, Type type) {
  const int whole = static_cast<int>(random() % 33) - 16;
  return type == Type::i8 ? whole * 7.0 : whole * 0.25;
}

void put(Wave& w, int first, int element, size_t lane, double value, Type type) {
  const int bits = bits_of(type), per_register = 32 / bits;
  Lanes& lanes = w.in[static_cast<size_t>(first + element / per_register)];
  const int shift = element % per_register * bits;
  const U mask = (bits == 32 ? ~0u : (1u << bits) - 1) << shift;
  lanes[lane] = (lanes[lane] & ~mask) | encode(value, type) << shift;
}

U result_bits(double x, Type type) {
  return type == Type::i8 ? static_cast<U>(static_cast<int>(x)) : from_f32(static_cast<float>(x));
}

constexpr int kA = 0, kB = 8, kC = 16;  // input registers: v8, v16, v24

// ---- MFMA: M x M x K in one or more blocks.

struct Place {
  int block, row, column;
};
Place place_of(int m, int r, int lane) {
  if (m == 32) return {r / 16, 8 * (r % 16 / 4) + 4 * (lane / 32) + r % 4, lane % 32};
  if (m == 16) return {r / 4, 4 * (lane / 16) + r % 4, lane % 16};
  return {lane / 4, r, lane % 4};
}

Probe mfma(const MatrixShape& s, bool through_agprs) {
  const int sources = s.per_lane * bits_of(s.type) / 32, results = s.m * s.m * s.blocks / 64;
  const auto range = [](const char* file, int first, int count) {
    return count == 1 ? fmt::format("{}{}", file, first)
                      : fmt::format("{}[{}:{}]", file, first, first + count - 1);
  };
  const std::string a = range("v", 8, sources), b = range("v", 16, sources);
  std::string code;
  if (through_agprs) {
    for (int r = 0; r < results; ++r)
      code += fmt::format("v_accvgpr_write_b32 a{}, v{}; ", r, 24 + r);
    const std::string c = range("a", 0, results);
    code += fmt::format("s_nop 7; {} {}, {}, {}, {}; s_nop 15; s_nop 15; ", s.name, c, a, b, c);
    for (int r = 0; r < results; ++r)
      code += fmt::format("v_accvgpr_read_b32 v{}, a{}; ", 64 + r, r);
    code += "s_nop 0";
  } else {
    code = fmt::format("{} {}, {}, {}, {}; s_nop 15; s_nop 15", s.name, range("v", 64, results), a,
                       b, range("v", 24, results));
  }
  Probe probe;
  probe.name = s.name;
  probe.code = code;
  probe.in.assign(48, In::u32);
  probe.out = results;
  probe.expect = [s, results](Wave& w) {
    std::mt19937 random(static_cast<unsigned>(s.m * 1000 + s.k + w.workgroup));
    std::vector<double> a(static_cast<size_t>(s.blocks * s.m * s.k)), b(a.size());
    const auto at = [&](int block, int i, int k) {
      return static_cast<size_t>((block * s.m + i) * s.k + k);
    };
    for (int lane = 0; lane < 64; ++lane)
      for (int j = 0; j < s.per_lane; ++j) {
        const int group = lane / s.m, i = lane % s.m;
        const int block = s.blocks > 1 ? group : 0;
        const int k = s.blocks > 1 ? j : group * s.per_lane + j;
        a[at(block, i, k)] = small_value(random, s.type);
        b[at(block, i, k)] = small_value(random, s.type);
        put(w, kA, j, static_cast<size_t>(lane), a[at(block, i, k)], s.type);
        put(w, kB, j, static_cast<size_t>(lane), b[at(block, i, k)], s.type);
      }
    for (int r = 0; r < results; ++r)
      for (int lane = 0; lane < 64; ++lane) {
        const Place p = place_of(s.m, r, lane);
        double sum = small_value(random, s.type);
        w.in[static_cast<size_t>(kC + r)][static_cast<size_t>(lane)] = result_bits(sum, s.type);
        for (int k = 0; k < s.k; ++k) sum += a[at(p.block, p.row, k)] * b[at(p.block, p.column, k)];
        w.out[static_cast<size_t>(r)][static_cast<size_t>(lane)] = result_bits(sum, s.type);
      }
  };
  probe.same = s.type == Type::i8 ? same_bits : same_f32_value;
  return probe;
}

const MatrixShape kOldShapes[] = {
    {"v_mfma_f32_32x32x1f32", Type::f32, 32, 1, 2, 1},
    {"v_mfma_f32_16x16x1f32", Type::f32, 16, 1, 4, 1},
    {"v_mfma_f32_4x4x1f32", Type::f32, 4, 1, 16, 1},
    {"v_mfma_f32_32x32x2f32", Type::f32, 32, 2, 1, 1},
    {"v_mfma_f32_16x16x4f32", Type::f32, 16, 4, 1, 1},
    {"v_mfma_f32_32x32x4f16", Type::f16, 32, 4, 2, 4},
    {"v_mfma_f32_16x16x4f16", Type::f16, 16, 4, 4, 4},
    {"v_mfma_f32_4x4x4f16", Type::f16, 4, 4, 16, 4},
    {"v_mfma_f32_32x32x8f16", Type::f16, 32, 8, 1, 4},
    {"v_mfma_f32_16x16x16f16", Type::f16, 16, 16, 1, 4},
    {"v_mfma_i32_32x32x4i8", Type::i8, 32, 4, 2, 4},
    {"v_mfma_i32_16x16x4i8", Type::i8, 16, 4, 4, 4},
    {"v_mfma_i32_4x4x4i8", Type::i8, 4, 4, 16, 4},
};
const MatrixShape kOldOnly[] = {
    {"v_mfma_f32_32x32x2bf16", Type::bf16, 32, 2, 2, 2},
    {"v_mfma_f32_16x16x2bf16", Type::bf16, 16, 2, 4, 2},
    {"v_mfma_f32_4x4x2bf16", Type::bf16, 4, 2, 16, 2},
    {"v_mfma_f32_32x32x4bf16", Type::bf16, 32, 4, 1, 2},
    {"v_mfma_f32_16x16x8bf16", Type::bf16, 16, 8, 1, 2},
    {"v_mfma_i32_32x32x8i8", Type::i8, 32, 8, 1, 4},
    {"v_mfma_i32_16x16x16i8", Type::i8, 16, 16, 1, 4},
};
const MatrixShape kBf16x4[] = {
    {"v_mfma_f32_32x32x4bf16_1k", Type::bf16, 32, 4, 2, 4},
    {"v_mfma_f32_16x16x4bf16_1k", Type::bf16, 16, 4, 4, 4},
    {"v_mfma_f32_4x4x4bf16_1k", Type::bf16, 4, 4, 16, 4},
    {"v_mfma_f32_32x32x8bf16_1k", Type::bf16, 32, 8, 1, 4},
    {"v_mfma_f32_16x16x16bf16_1k", Type::bf16, 16, 16, 1, 4},
};
const MatrixShape kGfx942[] = {
    {"v_mfma_f32_32x32x8_bf16", Type::bf16, 32, 8, 1, 4},
    {"v_mfma_f32_16x16x16_bf16", Type::bf16, 16, 16, 1, 4},
    {"v_mfma_f32_32x32x8_f16", Type::f16, 32, 8, 1, 4},
    {"v_mfma_i32_32x32x16_i8", Type::i8, 32, 16, 1, 8},
    {"v_mfma_i32_16x16x32_i8", Type::i8, 16, 32, 1, 8},
    {"v_mfma_f32_16x16x8_xf32", Type::f32, 16, 8, 1, 2},
    {"v_mfma_f32_32x32x4_xf32", Type::f32, 32, 4, 1, 2},
};

// f64: one element of A and B per lane.
Probe mfma_f64(bool four) {
  Probe probe;
  probe.code =
      four ? "v_mfma_f64_4x4x4f64 v[64:65], v[8:9], v[16:17], v[24:25]; s_nop 15"
           : "v_mfma_f64_16x16x4f64 v[64:71], v[8:9], v[16:17], v[24:31]; s_nop 15; s_nop 15";
  probe.in.assign(48, In::u32);
  const int results = four ? 1 : 4;
  probe.out = 2 * results;
  probe.expect = [four, results](Wave& w) {
    std::mt19937 random(static_cast<unsigned>(w.workgroup + 1));
    double a[4][16][4] = {}, b[4][16][4] = {};  // block, row or column, k
    const auto put64 = [&](int first, size_t lane, double x) {
      U bits[2];
      put_f64(x, bits);
      w.in[static_cast<size_t>(first)][lane] = bits[0];
      w.in[static_cast<size_t>(first + 1)][lane] = bits[1];
    };
    for (size_t lane = 0; lane < 64; ++lane) {
      const size_t i = four ? lane % 4 : lane % 16, block = four ? lane / 4 % 4 : 0, k = lane / 16;
      put64(kA, lane, a[block][i][k] = small_value(random, Type::f32));
      put64(kB, lane, b[block][i][k] = small_value(random, Type::f32));
    }
    for (int r = 0; r < results; ++r)
      for (size_t lane = 0; lane < 64; ++lane) {
        const size_t block = four ? lane / 4 % 4 : 0, column = four ? lane % 4 : lane % 16;
        const size_t row = lane / 16 + 4 * static_cast<size_t>(r);
        double sum = small_value(random, Type::f32);
        put64(kC + 2 * r, lane, sum);
        for (size_t k = 0; k < 4; ++k) sum += a[block][row][k] * b[block][column][k];
        U bits[2];
        put_f64(sum == 0 ? 0.0 : sum, bits);
        w.out[static_cast<size_t>(2 * r)][lane] = bits[0];
        w.out[static_cast<size_t>(2 * r + 1)][lane] = bits[1];
      }
  };
  return probe;
}

// ---- WMMA: 16x16x16. gfx11: both halves of the wave hold all of A and B; gfx12: each half of k.
Probe wmma(const std::string& target, Type type, bool narrow_result) {
  const bool gfx12 = is_gfx12(target);
  const int per_lane = gfx12 ? 8 : 16, sources = per_lane * bits_of(type) / 32;
  const char* in_name = type == Type::f16 ? "f16" : type == Type::bf16 ? "bf16" : "iu8";
  const char* out_name = narrow_result ? in_name : type == Type::i8 ? "i32" : "f32";
  const int results = narrow_result && gfx12 ? 4 : 8;
  Probe probe;
  probe.code = fmt::format(
      "v_wmma_{}_16x16x16_{} v[64:{}], v[8:{}], v[16:{}], v[24:{}]{}; "
      "s_nop 15",
      out_name, in_name, 63 + results, 7 + sources, 15 + sources, 23 + results,
      type == Type::i8 ? " neg_lo:[1,1,0]" : "");
  probe.in.assign(48, In::u32);
  probe.out = results;
  probe.expect = [=](Wave& w) {
    std::mt19937 random(static_cast<unsigned>(w.workgroup + 17));
    double a[16][16], b[16][16];  // row or column, k
    for (auto* matrix : {a, b})
      for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 16; ++k)
          // Few bits, so that even a 16-bit sum is exact.
          matrix[i][k] =
              narrow_result ? static_cast<int>(random() % 5) - 2.0 : small_value(random, type);
    for (int lane = 0; lane < 32; ++lane)
      for (int j = 0; j < per_lane; ++j) {
        const int k = gfx12 ? 8 * (lane / 16) + j : j;
        put(w, kA, j, static_cast<size_t>(lane), a[lane % 16][k], type);
        put(w, kB, j, static_cast<size_t>(lane), b[lane % 16][k], type);
      }
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < 8; ++e) {
        const int row = gfx12 ? 8 * (lane / 16) + e : 2 * e + lane / 16;
        double sum =
            narrow_result ? static_cast<int>(random() % 5) - 2.0 : small_value(random, type);
        const auto l = static_cast<size_t>(lane);
        const double c = sum;
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[lane % 16][k];
        if (!narrow_result) {
          w.in[static_cast<size_t>(kC + e)][l] = result_bits(c, type);
          w.out[static_cast<size_t>(e)][l] = result_bits(sum, type);
        } else if (gfx12) {
          put(w, kC, e, l, c, type);
          U& out = w.out[static_cast<size_t>(e / 2)][l];
          const int shift = e % 2 * 16;
          out = (out & ~(0xffffu << shift)) | encode(sum, type) << shift;
        } else {
          // The low halves; the high ones stay.
          w.in[static_cast<size_t>(kC + e)][l] = encode(c, type);
          w.out[static_cast<size_t>(e)][l] = encode(sum, type);
        }
      }
  };
  const auto low16_value = [](U got, U want) {
    return (got & 0xffff) == (want & 0xffff) || (((got | want) & 0x7fff) == 0);
  };
  probe.same = type == Type::i8          ? same_bits
               : narrow_result && !gfx12 ? static_cast<Same>(low16_value)
               : narrow_result           ? same_f16x2
                                         : same_f32_value;
  return probe;
}

}  // namespace

TEST_CASE("simulator: MFMA shapes and layouts") {
  const auto add = [](std::vector<Probe>& probes, const auto& shapes, bool agprs) {
    for (const MatrixShape& s : shapes) probes.push_back(mfma(s, agprs));
  };
  for (const char* target : {"gfx908", "gfx90a", "gfx942"}) {
    if (!can_probe(target, "MFMA")) continue;
    const std::string t = target;
    std::vector<Probe> probes;
    add(probes, kOldShapes, true);
    if (t != "gfx942") add(probes, kOldOnly, true);
    if (t != "gfx908") {
      add(probes, kOldShapes, false);
      add(probes, kBf16x4, false);
      add(probes, kBf16x4, true);
      probes.push_back(mfma_f64(false));
      probes.push_back(mfma_f64(true));
    }
    if (t == "gfx942") add(probes, kGfx942, false);
    run_probes(target, probes);
  }
}

TEST_CASE("simulator: WMMA shapes and layouts") {
  for (const char* target : {"gfx1100", "gfx1201"}) {
    if (!can_probe(target, "WMMA")) continue;
    std::vector<Probe> probes = {wmma(target, Type::f16, false), wmma(target, Type::bf16, false),
                                 wmma(target, Type::i8, false), wmma(target, Type::f16, true),
                                 wmma(target, Type::bf16, true)};
    run_probes(target, probes);
  }
}

// A product whose rows came in the wrong order is not taken for the right one.
TEST_CASE("simulator: swapped operand rows are noticed") {
  for (const char* target : {"gfx90a", "gfx942"}) {
    if (!can_probe(target, "swapped rows")) continue;
    const MatrixShape& shape = kBf16x4[3];
    Probe probe = mfma(shape, false);
    const auto right = probe.expect;
    int different = 0;
    probe.expect = [right, &different](Wave& w) {
      right(w);
      const Wave before = w;
      for (size_t r = 0; r < 2; ++r) {
        std::swap(w.in[r][2], w.in[r][3]);    // k = 0 to 3
        std::swap(w.in[r][34], w.in[r][35]);  // k = 4 to 7
      }
      // What must come then: rows 2 and 3 of the result changed places (C did not).
      for (size_t lane = 0; lane < 32; ++lane) {
        const float c2 = as_f32(w.in[kC + 2][lane]), c3 = as_f32(w.in[kC + 3][lane]);
        const float d2 = as_f32(before.out[2][lane]) - c2, d3 = as_f32(before.out[3][lane]) - c3;
        w.out[2][lane] = from_f32(d3 + c2), w.out[3][lane] = from_f32(d2 + c3);
        different += w.out[2][lane] != before.out[2][lane];
      }
    };
    run_probes(target, {probe});
    CHECK(different > 100);
  }
}

}  // namespace hstu::test
