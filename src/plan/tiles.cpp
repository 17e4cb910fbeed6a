// SPDX-License-Identifier: Apache-2.0
#include "plan/tiles.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace hstu::jit {
namespace {

int padded(int value, int step) { return (value + step - 1) / step * step; }

// CDNA: 32 query rows a wave, S^T = K Q^T and O^T = V^T P^T with 32x32 matrix instructions.
TileChoice cdna_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_cdna.hip";
  t.padded_qk = padded(c.head_dim_qk, 16);
  t.padded_v = padded(c.head_dim_v, 32);
  const bool wide = std::max(t.padded_qk, t.padded_v) > 128;
  t.waves = wide ? 4 : 8;
  t.waves_per_simd = wide ? 1 : 2;
  t.tile_m = 32 * t.waves;
  t.tile_n = wide ? 32 : 64;
  t.lds_bytes = 2 * t.tile_n * (t.padded_qk + t.padded_v) * 2;
  t.registers = t.padded_qk / 4 + t.padded_v / 2 + 16 + 8;
  t.why.push_back(fmt::format(
      "tile: {} waves of 32 query rows; a wave keeps Q ({} registers a lane), the fp32 output ({}) "
      "and 32 keys of logits (16) and probabilities (8) in registers: {} of {} at {} wave(s) per "
      "SIMD",
      t.waves, t.padded_qk / 4, t.padded_v / 2, t.registers, 512 / t.waves_per_simd,
      t.waves_per_simd));
  t.why.push_back(fmt::format("keys: {} a step, K and V^T double-buffered in LDS: {} of {} bytes",
                              t.tile_n, t.lds_bytes, target.lds_bytes));
  return t;
}

TileChoice rdna_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_rdna.hip";
  t.padded_qk = padded(c.head_dim_qk, 16);
  t.padded_v = padded(c.head_dim_v, 16);
  t.waves = 4;
  t.waves_per_simd = 2;
  t.tile_m = 16 * t.waves;
  t.tile_n = 32;
  t.lds_bytes = 2 * t.tile_n * (t.padded_qk + t.padded_v) * 2;
  t.registers = t.padded_qk / 2 + t.padded_v / 2 + 16 + 16;
  t.why.push_back(
      fmt::format("tile: {} waves of 16 query rows with 16x16x16 WMMA; about {} of 256 "
                  "registers a lane hold Q, output, logits and probabilities",
                  t.waves, t.registers));
  t.why.push_back(fmt::format("keys: {} a step, K and V double-buffered in LDS: {} of {} bytes",
                              t.tile_n, t.lds_bytes, target.lds_bytes));
  return t;
}

TileChoice nvidia_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_nvidia.hip";
  t.padded_qk = padded(c.head_dim_qk, 16);
  t.padded_v = padded(c.head_dim_v, 16);
  const bool wide = std::max(t.padded_qk, t.padded_v) > 128;
  t.waves = wide ? 8 : 4;
  t.waves_per_simd = wide ? 2 : 2;
  t.tile_m = 16 * t.waves;
  t.tile_n = wide ? 32 : 64;
  t.lds_bytes = 2 * t.tile_n * (t.padded_qk + t.padded_v) * 2;
  t.dynamic_lds_bytes = t.lds_bytes > 48 * 1024 ? t.lds_bytes : 0;
  t.registers = t.padded_qk / 4 + t.padded_v / 2 + t.tile_n / 2;
  t.why.push_back(
      fmt::format("tile: {} warps of 16 query rows with mma.sync m16n8k16; about {} of "
                  "255 registers a thread hold Q, output and logits",
                  t.waves, t.registers));
  t.why.push_back(fmt::format(
      "keys: {} a step, K and V double-buffered in shared memory by cp.async: {} of {} bytes",
      t.tile_n, t.lds_bytes, target.lds_bytes));
  return t;
}

TileChoice cpu_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_cpu.h";
  t.padded_qk = padded(c.head_dim_qk, 32);
  t.padded_v = padded(c.head_dim_v, 16);
  t.waves = 1;
  t.waves_per_simd = 1;
  t.tile_m = 128;
  t.tile_n = 64;
  t.why.push_back(fmt::format(
      "tile: {} query rows x {} keys, so that one tile of K, V, logits and output stays in the "
      "core's cache; level {}",
      t.tile_m, t.tile_n, target.name));
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
