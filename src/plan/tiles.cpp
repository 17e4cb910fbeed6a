// SPDX-License-Identifier: Apache-2.0
#include "plan/tiles.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace hstu::jit {
namespace {

int padded(int value, int step) { return (value + step - 1) / step * step; }

// Widest head dim, in the steps the matrix instructions take.
int widest(const TileChoice& t) { return std::max(t.padded_qk, t.padded_v); }

// CDNA: 32 query rows a wave, S^T = K Q^T and O^T = V^T P^T with 32x32 matrix instructions.
TileChoice cdna_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_cdna.hip";
  t.padded_qk = padded(c.head_dim_qk, 16);
  t.padded_v = padded(c.head_dim_v, 32);
  const bool wide = widest(t) > 128;
  // gfx908 has no register file that VGPRs and AGPRs share, so four waves do not fit there.
  const bool narrow = widest(t) <= 64 && target.matrix != MatrixUnit::mfma_gfx908;
  t.waves = wide ? 4 : 8;
  t.waves_per_simd = wide ? 1 : narrow ? 4 : 2;
  t.tile_m = 32 * t.waves;
  t.tile_n = wide ? 32 : 64;
  t.lds_bytes = 2 * t.tile_n * (t.padded_qk + t.padded_v) * 2;
  t.registers = t.padded_qk / 4 + t.padded_v / 2 + 16 + 8;
  t.why.push_back(fmt::format(
      "tile: {} waves of 32 query rows; a wave keeps Q ({} registers a lane), the fp32 output "
      "({}), "
      "32 keys of logits (16) and of probabilities (8) in registers: {} of {} at {} wave(s) per "
      "SIMD",
      t.waves, t.padded_qk / 4, t.padded_v / 2, t.registers, 512 / t.waves_per_simd,
      t.waves_per_simd));
  t.why.push_back(fmt::format("keys: {} a step, K and V^T double-buffered in LDS: {} of {} bytes{}",
                              t.tile_n, t.lds_bytes, target.lds_bytes,
                              wide ? "; 64 keys would not fit at this head dim" : ""));
  return t;
}

// RDNA: 16 query rows a wave with 16x16x16 WMMA. LDS rows stand an odd number of 16-byte chunks
// apart, so that neighbouring rows start in different banks.
TileChoice rdna_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_rdna.hip";
  t.padded_qk = padded(c.head_dim_qk, 16);
  t.padded_v = padded(c.head_dim_v, 16);
  const bool wide = widest(t) > 128;
  t.waves = 4;
  t.waves_per_simd = 4;
  t.tile_m = 16 * t.waves;
  t.tile_n = wide ? 16 : 32;
  t.lds_bytes =
      2 * (t.tile_n * ((t.padded_qk / 8) | 1) * 16 + t.padded_v * ((t.tile_n / 8) | 1) * 16);
  // gfx11 repeats an operand in both half-waves, gfx12 splits it between them.
  const int q_registers =
      target.matrix == MatrixUnit::wmma_gfx11 ? t.padded_qk / 2 : t.padded_qk / 4;
  t.registers = q_registers + t.padded_v / 2 + 16 + 16;
  t.why.push_back(fmt::format(
      "tile: {} waves of 16 query rows with 16x16x16 WMMA; Q ({}), output ({}), logits and "
      "probabilities (32) take {} of 256 registers a lane{}",
      t.waves, q_registers, t.padded_v / 2, t.registers,
      t.registers > 256 ? ": some of them spill at this head dim" : ""));
  t.why.push_back(fmt::format("keys: {} a step, K and V^T double-buffered in LDS: {} of {} bytes",
                              t.tile_n, t.lds_bytes, target.lds_bytes));
  return t;
}

// NVIDIA: mma.sync m16n8k16; 32 rows a warp while registers allow, since each row of keys read from
// shared memory then serves twice the queries.
TileChoice nvidia_tiles(const ForwardConfig& c, const Target& target) {
  constexpr int kStaticLimit = 48 * 1024;  // what a kernel may declare without asking at launch
  TileChoice t;
  t.template_name = "attention/forward_nvidia.hip";
  t.padded_qk = padded(c.head_dim_qk, 16);
  t.padded_v = padded(c.head_dim_v, 8);
  const bool wide = std::max(c.head_dim_qk, c.head_dim_v) > 128;
  const int row_tiles = wide ? 1 : 2;
  t.waves = wide ? 8 : 4;
  t.waves_per_simd = 2;
  t.tile_m = 16 * row_tiles * t.waves;
  t.tile_n = 32;
  const int resident = row_tiles * (c.head_dim_qk / 4 + c.head_dim_v / 2 + 8);
  const int parked = row_tiles > 1 && resident > 176 ? std::min(3, c.head_dim_qk / 16) : 0;
  t.lds_bytes = 2 * t.tile_n * 16 * (((c.head_dim_qk / 8) | 1) + ((c.head_dim_v / 8) | 1)) +
                parked * row_tiles * t.waves * 32 * 16;
  t.dynamic_lds_bytes = t.lds_bytes > kStaticLimit ? t.lds_bytes : 0;
  t.registers = std::min(255, resident - parked * row_tiles * 4 + 32);
  t.why.push_back(fmt::format(
      "tile: {} warps of {} query rows with mma.sync m16n8k16; Q, output and logits take about {} "
      "of 255 registers a thread{}",
      t.waves, 16 * row_tiles, t.registers,
      parked > 0
          ? fmt::format("; {} of {} columns of Q wait in shared memory", 16 * parked, c.head_dim_qk)
          : ""));
  t.why.push_back(fmt::format(
      "keys: {} a step, K and V double-buffered in shared memory by cp.async: {} of {} bytes",
      t.tile_n, t.lds_bytes, target.lds_bytes));
  return t;
}

// cpu: a tile of packed K and V, logits and output stays in a core's L2 cache. Found by timing the
// levels against each other; tools/bench_cpu_onednn.cpp measures it.
TileChoice cpu_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_cpu.h";
  t.padded_qk = padded(c.head_dim_qk, 32);
  t.padded_v = padded(c.head_dim_v, 16);
  t.waves = 1;
  t.waves_per_simd = 1;
  t.tile_m = 256;
  // Two 8-bit-mantissa parts of each fp16 value double what the AMX tile keeps on the stack.
  const bool split_fp16 = c.dtype == Dtype::fp16 && widest(t) > 128;
  t.tile_n = target.matrix == MatrixUnit::amx && !split_fp16 ? 256 : 128;
  t.why.push_back(fmt::format(
      "tile: {} query rows x {} keys: packed keys serve {} rows, and keys, logits and output stay "
      "in a core's L2 cache; instruction level {}",
      t.tile_m, t.tile_n, t.tile_m, target.name));
  return t;
}

}  // namespace

Result<TileChoice> choose_tiles(const ForwardConfig& config, const Target& target) {
  switch (target.matrix) {
    case MatrixUnit::mfma_gfx908:
    case MatrixUnit::mfma_gfx90a:
    case MatrixUnit::mfma_gfx950:
      return cdna_tiles(config, target);
    case MatrixUnit::wmma_gfx11:
    case MatrixUnit::wmma_gfx12:
      return rdna_tiles(config, target);
    case MatrixUnit::mma_sync:
      return nvidia_tiles(config, target);
    case MatrixUnit::amx:
    case MatrixUnit::none:
      return cpu_tiles(config, target);
  }
  return Error{ErrorKind::kInternal, "target without a tile table: " + target.name, "", ""};
}

}  // namespace hstu::jit
