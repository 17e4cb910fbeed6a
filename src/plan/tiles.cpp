// SPDX-License-Identifier: Apache-2.0
#include "plan/tiles.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tile/hopper_shape.h"  // templates/

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
  // Head dims of the slot loop (tile/cdna_slots.h) keep two parts of keys under way, two waves a
  // SIMD. Smaller ones go by the plain loop with four; gfx908 has no register file that VGPRs and
  // AGPRs share, so four waves do not fit there.
  const bool slots = c.head_dim_qk > 48 && c.head_dim_v > 32;
  const bool narrow = widest(t) <= 64 && !slots && target.matrix != MatrixUnit::mfma_gfx908;
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

// gfx950: as cdna_tiles(), with K and V loaded to LDS directly, three steps of 64 keys or four of
// 32 under way there.
TileChoice cdna4_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_cdna4.hip";
  t.padded_qk = std::max(padded(c.head_dim_qk, 16), 32);
  t.padded_v = padded(c.head_dim_v, 32);
  // Q, output, logits and probabilities of two parts of 32 keys, operands on their way, addresses
  // and intermediate values.
  const int slots = std::min(t.padded_qk, t.padded_v) / 16;
  const bool narrow = widest(t) <= 64;
  t.registers = t.padded_qk / 4 + t.padded_v / 2 + 32 + 16 +
                (narrow ? 16 + 12 : 4 * std::min(slots + 1, 8) + 26);
  const bool wide = t.registers > 240;
  const bool softmax = c.activation == Activation::softmax;
  // Softmax keeps a row's maximum and sum beside it all: three waves where SiLU has four.
  t.waves_per_simd = wide ? 1 : !narrow ? 2 : softmax ? 3 : 4;
  t.waves = wide || (narrow && softmax) ? 4 : 8;
  t.tile_m = 32 * t.waves;
  t.tile_n = wide ? 32 : 64;
  const int steps = wide ? 4 : 3;
  t.lds_bytes = steps * t.tile_n * (t.padded_qk + t.padded_v) * 2;
  t.why.push_back(fmt::format(
      "tile: {} waves of 32 query rows; a wave keeps Q ({} registers a lane), the fp32 output "
      "({}), twice 32 keys of logits (16) and of probabilities (8) in registers: about {} of {} at "
      "{} wave(s) per SIMD",
      t.waves, t.padded_qk / 4, t.padded_v / 2, t.registers, 512 / t.waves_per_simd,
      t.waves_per_simd));
  t.why.push_back(fmt::format(
      "keys: {} a step, loaded to LDS directly, {} steps of K and V there: {} of {} bytes{}",
      t.tile_n, steps, t.lds_bytes, target.lds_bytes,
      wide ? "; two waves a SIMD would not fit at this head dim" : ""));
  return t;
}

// gfx1102, gfx1103 and gfx1150 have the smaller of RDNA3's two register files.
bool small_register_file(const Target& target) {
  return target.name == "gfx1102" || target.name == "gfx1103" || target.name == "gfx1150";
}

// RDNA: 8 waves of 16 query rows with 16x16x16 WMMA. A workgroup's waves share two SIMDs, 4 each;
// two workgroups, 8 waves a SIMD, run side by side where registers (192 a lane) and LDS (half of
// it) allow, so that one computes while the other waits at its barrier.
TileChoice rdna_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_rdna.hip";
  t.padded_qk = padded(c.head_dim_qk, 16);
  t.padded_v = padded(c.head_dim_v, 16);
  t.waves = 8;
  t.tile_m = 16 * t.waves;
  // gfx11 repeats an operand in both half-waves, gfx12 splits it between them.
  const bool repeats = target.matrix == MatrixUnit::wmma_gfx11;
  const int operand = repeats ? 8 : 4;
  const int resident = t.padded_qk / 16 * operand + t.padded_v / 2;
  const bool softmax = c.activation == Activation::softmax;
  const bool two_groups =
      resident <= (repeats || softmax ? 128 : 144) && !small_register_file(target);
  t.waves_per_simd = two_groups ? 8 : 4;
  // A lane fetches one unit of 4 chunks of 16 bytes, of K or of V, per step.
  t.tile_n = t.padded_qk + t.padded_v <= 128 ? 64 : t.padded_qk + t.padded_v <= 256 ? 32 : 16;
  if (two_groups && repeats && resident > 112 && softmax)
    t.tile_n = 16;  // its row maxima leave no registers for more
  // Every other operand of Q may wait in LDS; see templates/tile/rdna.h.
  const int room = !two_groups ? 176 : !repeats || t.tile_n > 16 ? 136 : 112;
  const int parked =
      std::min(t.padded_qk / 32, std::max(0, (resident - room + operand - 1) / operand));
  const int v_tiles = t.padded_v / 16;
  t.lds_bytes =
      2 * t.tile_n * (t.padded_qk + (t.tile_n == 16 ? padded(v_tiles, 2) : v_tiles) * 16) * 2 +
      t.waves * parked * 512;
  t.registers = resident - parked * operand + 16 + 8 + 16 + 16;
  t.why.push_back(fmt::format(
      "tile: {} waves of 16 query rows with 16x16x16 WMMA; Q and output ({}{}), logits and "
      "probabilities, operands and keys on their way take about {} of {} registers a lane",
      t.waves, resident - parked * operand,
      parked > 0 ? fmt::format("; {} of {} columns of Q wait in LDS", 16 * parked, t.padded_qk)
                 : "",
      t.registers, two_groups ? 192 : 256));
  t.why.push_back(fmt::format(
      "keys: {} a step, K and V^T double-buffered in LDS: {} of {} bytes; {} workgroup(s) a unit",
      t.tile_n, t.lds_bytes, target.lds_bytes, two_groups ? 2 : 1));
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

// sm_90a: persistent workgroups of one loading and two or three computing warpgroups with wgmma and
// the copy engine. Head dims up to 32 leave such a workgroup little to do and take the kernel of
// sm_80.
TileChoice hopper_tiles(const ForwardConfig& c, const Target& target) {
  TileChoice t;
  t.template_name = "attention/forward_hopper.hip";
  t.padded_qk = padded(c.head_dim_qk, 16);
  t.padded_v = padded(c.head_dim_v, 32);
  const int wide = widest(t);
  // 64 rows a warpgroup. Three warpgroups hide more latency, and share each key among more rows,
  // where 152 registers a thread hold logits, probabilities and output.
  // Under a narrow window memory is the limit: two are enough, with two steps each.
  t.apart = c.narrow;
  const int groups = wide <= (t.apart ? 64 : 128) ? 3 : 2;
  t.tile_m = 64 * groups;
  // A second query tile where it fits, and where output can then be written from the first.
  const bool staged = wide <= 128 && hopper_output_fits_queries(c.head_dim_qk, c.head_dim_v);
  t.q_buffers = staged ? 2 : 1;
  t.tile_n = t.apart ? kHopperApartKeys : wide <= 64 ? 128 : 64;
  t.stages = t.apart ? 2 * groups : wide <= 128 ? 4 : 2;
  if (t.apart && hopper_shared_bytes(t.tile_m, t.tile_n, c.head_dim_qk, c.head_dim_v, t.stages,
                                     t.q_buffers) > target.lds_bytes)
    t.stages = groups;
  t.short_first = true;
  t.waves = 4 * (groups + 1);
  t.waves_per_simd = groups + 1;
  t.registers = groups == 3 ? 152 : 224;
  t.lds_bytes =
      hopper_shared_bytes(t.tile_m, t.tile_n, c.head_dim_qk, c.head_dim_v, t.stages, t.q_buffers);
  t.dynamic_lds_bytes = t.lds_bytes;
  t.why.push_back(fmt::format(
      "tile: {} computing warpgroups of 64 query rows with wgmma and {} registers a thread, one "
      "warpgroup that loads; workgroups stay and draw tiles, the longest first",
      groups, t.registers));
  t.why.push_back(fmt::format(
      "keys: {} a step, {} steps of K and V and {} query tile(s) in shared memory by the copy "
      "engine: {} of {} bytes",
      t.tile_n, t.stages, t.q_buffers, t.lds_bytes, target.lds_bytes));
  if (t.apart)
    t.why.push_back(
        fmt::format("window: of at most {} keys, so 64 rows hardly need more than one step: each "
                    "warpgroup loads its own and waits for no other",
                    (kHopperApartKeys - 64) / (c.mask.causal ? 1 : 2)));
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
      return cdna_tiles(config, target);
    case MatrixUnit::mfma_gfx950:
      return cdna4_tiles(config, target);
    case MatrixUnit::wmma_gfx11:
    case MatrixUnit::wmma_gfx12:
      return rdna_tiles(config, target);
    case MatrixUnit::mma_sync:
      if (target.name == "sm_90a" && std::min(config.head_dim_qk, config.head_dim_v) > 32)
        return hopper_tiles(config, target);
      return nvidia_tiles(config, target);
    case MatrixUnit::amx:
    case MatrixUnit::none:
      return cpu_tiles(config, target);
  }
  return Error{ErrorKind::kInternal, "target without a tile table: " + target.name, "", ""};
}

}  // namespace hstu::jit
