// SPDX-License-Identifier: Apache-2.0
// Global, flat, buffer, scratch and LDS memory: widths, offsets, bounds of descriptors, atomics.
#include <fmt/format.h>

#include <algorithm>

#include "catch.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

using U = uint32_t;

// v96: 16 bytes per lane.
const std::string kSlots = "v_lshlrev_b32 v96, 4, v0; ";

Probe from_inputs(const std::string& code, int inputs, int outputs,
                  std::function<void(const U*, U*)> f) {
  return {code, std::vector<In>(static_cast<size_t>(inputs), In::u32), outputs,
          lanewise(std::move(f))};
}

void copy4(const U* in, U* out) { std::copy(in, in + 4, out); }

std::vector<Probe> global_probes(const std::string& target) {
  const std::string address =  // v[98:99]: the slot's 64-bit address
      is_wave32(target)
          ? "v_add_co_u32 v98, $vcc, s10, v96; v_add_co_ci_u32_e64 v99, $vcc, s11, 0, $vcc; "
          : "v_mov_b32 v99, s11; v_add_co_u32 v98, vcc, s10, v96; "
            "v_addc_co_u32 v99, vcc, 0, v99, vcc; ";
  std::vector<Probe> p = {
      from_inputs(kSlots + "global_store_dword v96, v8, s[10:11]; "
                           "global_store_dword v96, v9, s[10:11] offset:4; "
                           "global_store_dwordx2 v96, v[10:11], s[10:11] offset:8; $wait; "
                           "global_load_dwordx4 v[64:67], v96, s[10:11]; $wait",
                  4, 4, copy4),
      from_inputs(kSlots + "global_store_dwordx4 v96, v[8:11], s[10:11]; $wait; "
                           "global_load_dword v67, v96, s[10:11]; "
                           "global_load_dwordx3 v[64:66], v96, s[10:11] offset:4; $wait",
                  4, 4,
                  [](const U* in, U* out) {
                    out[0] = in[1], out[1] = in[2], out[2] = in[3], out[3] = in[0];
                  }),
      from_inputs(kSlots + "v_add3_u32 v97, v96, 32, 32; "
                           "global_store_dwordx3 v97, v[8:10], s[10:11] offset:-64; "
                           "global_store_dword v97, v11, s[10:11] offset:-52; $wait; "
                           "global_load_dwordx2 v[64:65], v96, s[10:11]; "
                           "global_load_dwordx2 v[66:67], v96, s[10:11] offset:8; $wait",
                  4, 4, copy4),
      from_inputs(kSlots + address +
                      "global_store_dwordx4 v[98:99], v[8:11], off; $wait; "
                      "flat_load_dwordx4 v[64:67], v[98:99]; $wait",
                  4, 4, copy4),
      from_inputs(kSlots + address +
                      "flat_store_dwordx2 v[98:99], v[8:9]; "
                      "flat_store_dwordx2 v[98:99], v[10:11] offset:8; $wait; "
                      "global_load_dwordx4 v[64:67], v[98:99], off; $wait",
                  4, 4, copy4),
      // Unaligned accesses are allowed.
      from_inputs(kSlots + "global_store_dwordx4 v96, v[8:11], s[10:11]; $wait; "
                           "global_load_dword v66, v96, s[10:11] offset:1; "
                           "global_load_dwordx2 v[64:65], v96, s[10:11] offset:6; $wait",
                  4, 3,
                  [](const U* in, U* out) {
                    out[0] = in[1] >> 16 | in[2] << 16;
                    out[1] = in[2] >> 16 | in[3] << 16;
                    out[2] = in[0] >> 8 | in[1] << 24;
                  }),
      from_inputs(kSlots + "global_store_dword v96, v8, s[10:11]; $wait; "
                           "global_load_ubyte v64, v96, s[10:11] offset:1; "
                           "global_load_sbyte v65, v96, s[10:11] offset:3; "
                           "global_load_ushort v66, v96, s[10:11] offset:2; "
                           "global_load_sshort v67, v96, s[10:11]; "
                           "global_load_short_d16 v68, v96, s[10:11] offset:2; "
                           "global_load_short_d16_hi v69, v96, s[10:11] offset:2; "
                           "global_load_ubyte_d16 v70, v96, s[10:11] offset:3; "
                           "global_load_sbyte_d16_hi v71, v96, s[10:11] offset:3; $wait",
                  1, 8,
                  [](const U* in, U* out) {
                    const U x = in[0], low = kUntouched & 0xffff, high = kUntouched & 0xffff0000;
                    out[0] = x >> 8 & 0xff;
                    out[1] = static_cast<U>(int{static_cast<int8_t>(x >> 24)});
                    out[2] = x >> 16;
                    out[3] = static_cast<U>(int{static_cast<int16_t>(x)});
                    out[4] = x >> 16 | high;
                    out[5] = (x & 0xffff0000) | low;
                    out[6] = x >> 24 | high;
                    out[7] = static_cast<U>(int{static_cast<int8_t>(x >> 24)}) << 16 | low;
                  }),
      from_inputs(kSlots + "global_store_dword v96, v8, s[10:11]; "
                           "global_store_byte v96, v9, s[10:11] offset:2; "
                           "global_store_dword v96, v8, s[10:11] offset:4; "
                           "global_store_short_d16_hi v96, v9, s[10:11] offset:4; "
                           "global_store_dword v96, v8, s[10:11] offset:8; "
                           "global_store_byte_d16_hi v96, v9, s[10:11] offset:9; "
                           "global_store_dword v96, v8, s[10:11] offset:12; "
                           "global_store_short v96, v9, s[10:11] offset:14; $wait; "
                           "global_load_dwordx4 v[64:67], v96, s[10:11]; $wait",
                  2, 4,
                  [](const U* in, U* out) {
                    out[0] = (in[0] & 0xff00ffff) | (in[1] & 0xff) << 16;
                    out[1] = (in[0] & 0xffff0000) | in[1] >> 16;
                    out[2] = (in[0] & 0xffff00ff) | (in[1] >> 16 & 0xff) << 8;
                    out[3] = (in[0] & 0xffff) | in[1] << 16;
                  }),
      // The flat aperture of the LDS.
      from_inputs(kSlots + "s_mov_b64 s[20:21], src_shared_base; v_mov_b32 v99, s21; "
                           "v_add_u32_e64 v98, 16, v96; flat_store_dwordx4 v[98:99], v[8:11]; "
                           "$wait; ds_read_b128 v[64:67], v96 offset:16; $wait",
                  4, 4, copy4),
      // Lanes that are off neither read nor write.
      {kSlots + "global_store_dword v96, v8, s[10:11]; $wait; s_mov_b32 exec_lo, 0xffff; "
                "global_store_dword v96, v9, s[10:11]; s_mov_b32 exec_lo, 0xfffff0ff; "
                "global_load_dword v64, v96, s[10:11]; $wait",
       {In::u32, In::u32},
       1,
       [](Wave& w) {
         for (size_t l = 0; l < static_cast<size_t>(w.width); ++l)
           if (l < 8 || l >= 12) w.out[0][l] = l < 16 || l >= 32 ? w.in[1][l] : w.in[0][l];
       }},
  };
  if (is_wave32(target))
    for (Probe& probe : p) {
      const size_t at = probe.code.find("v_add_u32_e64");
      if (at != std::string::npos) probe.code.replace(at, 13, "v_add_nc_u32_e64");
    }
  if (target == "gfx942" || is_wave32(target)) {
    // Private memory of the work-item, by offset and by address.
    p.push_back(
        from_inputs("v_mov_b32 v97, 32; scratch_store_dwordx2 off, v[8:9], off offset:16; "
                    "scratch_store_dwordx2 v97, v[10:11], off; $wait; "
                    "s_movk_i32 s20, 16; scratch_load_dwordx2 v[64:65], off, s20; "
                    "scratch_load_dwordx2 v[66:67], off, off offset:32; $wait",
                    4, 4, copy4));
  }
  return p;
}

// An atomic on one dword: memory afterwards, and what it returns (the value before).
struct Atomic {
  const char *gcn, *rdna;  // after "global_atomic_"
  U (*f)(U memory, U data);
};
constexpr Atomic kAtomics[] = {
    {"add", "add_u32", [](U m, U d) { return m + d; }},
    {"sub", "sub_u32", [](U m, U d) { return m - d; }},
    {"smin", "min_i32", [](U m, U d) { return static_cast<int>(m) < static_cast<int>(d) ? m : d; }},
    {"umin", "min_u32", [](U m, U d) { return std::min(m, d); }},
    {"smax", "max_i32", [](U m, U d) { return static_cast<int>(m) > static_cast<int>(d) ? m : d; }},
    {"umax", "max_u32", [](U m, U d) { return std::max(m, d); }},
    {"and", "and_b32", [](U m, U d) { return m & d; }},
    {"or", "or_b32", [](U m, U d) { return m | d; }},
    {"xor", "xor_b32", [](U m, U d) { return m ^ d; }},
    {"swap", "swap_b32", [](U, U d) { return d; }},
    {"inc", "inc_u32", [](U m, U d) { return m >= d ? 0 : m + 1; }},
    {"dec", "dec_u32", [](U m, U d) { return m == 0 || m > d ? d : m - 1; }},
};

std::vector<Probe> atomic_probes(const std::string& target) {
  const bool rdna = is_wave32(target);
  const std::string returning = target == "gfx942" ? " sc0"
                                : is_gfx12(target) ? " th:TH_ATOMIC_RETURN"
                                                   : " glc";
  const std::string store = kSlots + "global_store_dwordx2 v96, v[8:9], s[10:11]; $wait; ";
  std::vector<Probe> p;
  for (const Atomic& a : kAtomics) {
    const std::string op = std::string("global_atomic_") + (rdna ? a.rdna : a.gcn);
    const auto f = a.f;
    p.push_back(from_inputs(store + op + " v66, v96, v10, s[10:11]" + returning + "; $wait; " + op +
                                " v96, v10, s[10:11] offset:4; $wait; "
                                "global_load_dwordx2 v[64:65], v96, s[10:11]; $wait",
                            3, 3, [f](const U* in, U* out) {
                              out[0] = f(in[0], in[2]), out[1] = f(in[1], in[2]);
                              out[2] = in[0];
                            }));
  }
  // Compare (second register of the data) and swap.
  const std::string cas = rdna ? "global_atomic_cmpswap_b32" : "global_atomic_cmpswap";
  p.push_back(from_inputs(store + "v_mov_b32 v11, v8; " + cas + " v66, v96, v[10:11], s[10:11]" +
                              returning + "; " + cas +
                              " v96, v[10:11], s[10:11] offset:4; $wait; "
                              "global_load_dwordx2 v[64:65], v96, s[10:11]; $wait",
                          3, 3, [](const U* in, U* out) {
                            out[0] = in[2], out[1] = in[1] == in[0] ? in[2] : in[1];
                            out[2] = in[0];
                          }));
  const std::string add64 = rdna ? "global_atomic_add_u64" : "global_atomic_add_x2";
  p.push_back(from_inputs(store + add64 + " v[64:65], v96, v[10:11], s[10:11]" + returning +
                              "; $wait; global_load_dwordx2 v[66:67], v96, s[10:11]; $wait",
                          4, 4, [](const U* in, U* out) {
                            out[0] = in[0], out[1] = in[1];
                            put_u64(as_u64(in) + as_u64(in + 2), out + 2);
                          }));
  // Every lane on one address: the sum is exact whatever the order.
  p.push_back(
      {"v_mov_b32 v96, 0; v_mov_b32 v97, 5; global_store_dword v96, v97, s[10:11]; $wait; " +
           std::string(rdna ? "global_atomic_add_u32" : "global_atomic_add") +
           " v96, v0, s[10:11]; $wait; global_load_dword v64, v96, s[10:11]; $wait",
       {},
       1,
       [](Wave& w) { w.out[0].fill(static_cast<U>(5 + w.width * (w.width - 1) / 2)); }});
  if (target != "gfx908")
    p.push_back({store + "global_atomic_add_f32 v64, v96, v10, s[10:11]" + returning +
                     "; $wait; global_load_dword v65, v96, s[10:11]; $wait",
                 {In::unit, In::unit, In::unit},
                 2,
                 lanewise([](const U* in, U* out) {
                   out[0] = in[0], out[1] = from_f32(as_f32(in[0]) + as_f32(in[2]));
                 }),
                 same_f32});
  return p;
}

std::vector<Probe> buffer_probes(const std::string& target) {
  const bool rdna = is_wave32(target);
  // 4 KB of the workgroup's memory hold the dword's own number times 7; the descriptor has `size`
  // bytes (records, with a stride). Word 3: no swizzle, 32-bit; gfx11: raw bounds unless a stride
  // is given.
  const auto descriptor = [&](int size, int stride) {
    const std::string word3 = rdna ? stride == 0 ? "0x31016000" : "0x01016000" : "0x27000";
    return fmt::format(
        "s_mov_b32 s20, s10; s_and_b32 s21, s11, 0xffff; s_or_b32 s21, s21, {}; s_mov_b32 s22, {}; "
        "s_mov_b32 s23, {}; ",
        stride << 16, size, word3);
  };
  const std::string zero = is_gfx12(target) ? "null" : "0";
  const int width = rdna ? 32 : 64;
  std::string filled = fmt::format("v_mul_u32_u24 v97, 7, v0; s_movk_i32 s24, {}; ", 7 * width);
  for (int at = 0; at < 1024; at += width * 4)
    filled += fmt::format(
        "global_store_dword v1, v97, s[10:11] offset:{}; "
        "v_add3_u32 v97, v97, s24, 0; ",
        at);
  filled += "$wait; ";
  std::vector<Probe> p;
  // Lane l reads the dwords at 4 l + 16: the last lanes are out of a buffer of 24 lanes and 16
  // bytes, and read 0.
  p.push_back({filled + descriptor(16 + 24 * 4, 0) + "buffer_load_dword v64, v1, s[20:23], " +
                   zero + " offen offset:16; $wait",
               {},
               1,
               [](Wave& w) {
                 for (U l = 0; l < 64; ++l) w.out[0][l] = l < 24 ? 7 * (l + 4) : 0;
               }});
  // Whole 16-byte accesses in and out.
  p.push_back({filled + kSlots + descriptor(20 * 16, 0) +
                   "buffer_load_dwordx4 v[64:67], v96, s[20:23], " + zero + " offen; $wait",
               {},
               4,
               [](Wave& w) {
                 for (U l = 0; l < 64; ++l)
                   for (U k = 0; k < 4; ++k) w.out[k][l] = l < 20 ? 7 * (4 * l + k) : 0;
               }});
  // A scalar offset moves everything; bounds hold without it.
  p.push_back({filled + descriptor(1024, 0) +
                   "s_movk_i32 s25, 0x40; "
                   "buffer_load_dwordx2 v[64:65], v1, s[20:23], s25 offen offset:4; $wait",
               {},
               2,
               [](Wave& w) {
                 for (U l = 0; l < 64; ++l)
                   for (U k = 0; k < 2; ++k) w.out[k][l] = 7 * (l + k + 17);
               }});
  // Stores past the end are dropped.
  p.push_back({filled + descriptor(10 * 4, 0) + "buffer_store_dword v8, v1, s[20:23], " + zero +
                   " offen; $wait; global_load_dword v64, v1, s[10:11]; $wait",
               {In::u32},
               1,
               [](Wave& w) {
                 for (U l = 0; l < 64; ++l) w.out[0][l] = l < 10 ? w.in[0][l] : 7 * l;
               }});
  // By index: stride 16, field at 8. Indices past the last record read 0. (Documents disagree
  // whether an unswizzled buffer counts records or bytes: lanes past 11 are far out of both.)
  const std::string index =
      "v_lshlrev_b32 v98, 4, v0; v_cmp_gt_u32 $vcc, 12, v0; v_cndmask_b32 v98, v98, v0, $vcc; ";
  p.push_back({filled + descriptor(12 * 16, 16) + index + "buffer_load_dword v64, v98, s[20:23], " +
                   zero + " idxen offset:8; $wait",
               {},
               1,
               [](Wave& w) {
                 for (U l = 0; l < 64; ++l) w.out[0][l] = l < 12 ? 7 * (4 * l + 2) : 0;
               }});
  // By index and offset.
  p.push_back({filled + descriptor(12 * 16, 16) + index +
                   "v_mov_b32 v99, 4; buffer_load_dwordx2 v[64:65], v[98:99], "
                   "s[20:23], " +
                   zero + " idxen offen offset:4; $wait",
               {},
               2,
               [](Wave& w) {
                 for (U l = 0; l < 64; ++l)
                   for (U k = 0; k < 2; ++k) w.out[k][l] = l < 12 ? 7 * (4 * l + 2 + k) : 0;
               }});
  // Small types.
  p.push_back({filled + descriptor(1024, 0) + "buffer_load_ubyte v64, v1, s[20:23], " + zero +
                   " offen; buffer_load_ushort v65, v1, s[20:23], " + zero +
                   " offen offset:2; buffer_load_short_d16_hi v66, v1, s[20:23], " + zero +
                   " offen; $wait",
               {},
               3,
               [](Wave& w) {
                 for (U l = 0; l < 64; ++l) {
                   w.out[0][l] = 7 * l & 0xff, w.out[1][l] = 7 * l >> 16;
                   w.out[2][l] = (7 * l & 0xffff) << 16 | (kUntouched & 0xffff);
                 }
               }});
  if (!rdna) {
    // Straight into the LDS: M0 is the base, lanes follow each other; lanes out of range bring 0.
    p.push_back({filled + descriptor(40 * 4, 0) +
                     "v_mov_b32 v97, -1; ds_write_b32 v1, v97 offset:256; s_movk_i32 m0, 0x100; "
                     "$wait; buffer_load_dword v1, s[20:23], 0 offen lds; $wait; "
                     "ds_read_b32 v64, v1 offset:256; $wait",
                 {},
                 1,
                 [](Wave& w) {
                   for (U l = 0; l < 64; ++l) w.out[0][l] = l < 40 ? 7 * l : 0;
                 }});
  }
  if (target == "gfx942")
    p.push_back({filled + "s_movk_i32 m0, 0x200; v_xor_b32 v96, 4, v1; "
                          "global_load_lds_dword v96, s[10:11]; $wait; "
                          "ds_read_b32 v64, v1 offset:512; $wait",
                 {},
                 1,
                 [](Wave& w) {
                   for (U l = 0; l < 64; ++l) w.out[0][l] = 7 * (l ^ 1);
                 }});
  return p;
}

std::vector<Probe> lds_probes(const std::string& target) {
  const bool rdna = is_wave32(target);
  std::vector<Probe> p = {
      from_inputs(kSlots + "ds_write_b32 v96, v8; ds_write_b32 v96, v9 offset:4; "
                           "ds_write_b64 v96, v[10:11] offset:8; $wait; "
                           "ds_read_b128 v[64:67], v96; $wait",
                  4, 4, copy4),
      from_inputs(kSlots + "ds_write_b128 v96, v[8:11] offset:1024; $wait; "
                           "ds_read_b64 v[64:65], v96 offset:1024; "
                           "ds_read_b32 v66, v96 offset:1032; ds_read_b32 v67, v96 offset:1036; "
                           "$wait",
                  4, 4, copy4),
      from_inputs(kSlots + "ds_write_b96 v96, v[8:10]; ds_write_b32 v96, v11 offset:12; $wait; "
                           "ds_read_b32 v64, v96; ds_read_b96 v[66:68], v96; "
                           "ds_read_b32 v65, v96 offset:12; $wait",
                  4, 5,
                  [](const U* in, U* out) {
                    out[0] = in[0], out[1] = in[3];
                    out[2] = in[0], out[3] = in[1], out[4] = in[2];
                  }),
      // Offsets of the paired forms count elements, of the st64 forms 64 elements.
      from_inputs("v_lshlrev_b32 v97, 3, v0; ds_write2_b32 v97, v8, v9 offset0:1 offset1:0; $wait; "
                  "ds_read2_b32 v[64:65], v97 offset0:0 offset1:1; $wait",
                  2, 2, [](const U* in, U* out) { out[0] = in[1], out[1] = in[0]; }),
      from_inputs(kSlots + "ds_write2_b64 v96, v[8:9], v[10:11] offset0:0 offset1:1; $wait; "
                           "ds_read2_b64 v[64:67], v96 offset0:1 offset1:0; $wait",
                  4, 4,
                  [](const U* in, U* out) {
                    out[0] = in[2], out[1] = in[3], out[2] = in[0], out[3] = in[1];
                  }),
      from_inputs("ds_write2st64_b32 v1, v8, v9 offset0:1 offset1:3; $wait; "
                  "ds_read_b32 v64, v1 offset:256; ds_read_b32 v65, v1 offset:768; "
                  "ds_read2st64_b32 v[66:67], v1 offset0:3 offset1:1; $wait",
                  2, 4,
                  [](const U* in, U* out) {
                    out[0] = in[0], out[1] = in[1], out[2] = in[1], out[3] = in[0];
                  }),
      from_inputs("v_lshlrev_b32 v97, 3, v0; "
                  "ds_write2st64_b64 v97, v[8:9], v[10:11] offset0:0 offset1:2; $wait; "
                  "ds_read_b64 v[64:65], v97; ds_read_b64 v[66:67], v97 offset:1024; $wait",
                  4, 4, copy4),
      from_inputs(kSlots + "ds_write_b32 v96, v8; ds_write_b8 v96, v9 offset:1; "
                           "ds_write_b32 v96, v8 offset:4; ds_write_b16 v96, v9 offset:6; "
                           "ds_write_b32 v96, v8 offset:8; ds_write_b16_d16_hi v96, v9 offset:8; "
                           "ds_write_b32 v96, v8 offset:12; ds_write_b8_d16_hi v96, v9 offset:15; "
                           "$wait; ds_read_b128 v[64:67], v96; $wait",
                  2, 4,
                  [](const U* in, U* out) {
                    out[0] = (in[0] & 0xffff00ff) | (in[1] & 0xff) << 8;
                    out[1] = (in[0] & 0xffff) | in[1] << 16;
                    out[2] = (in[0] & 0xffff0000) | in[1] >> 16;
                    out[3] = (in[0] & 0xffffff) | (in[1] >> 16 & 0xff) << 24;
                  }),
      from_inputs("ds_write_b32 v1, v8; $wait; ds_read_u8 v64, v1 offset:2; "
                  "ds_read_i8 v65, v1 offset:3; ds_read_u16 v66, v1 offset:2; ds_read_i16 v67, v1; "
                  "ds_read_u16_d16 v68, v1 offset:2; ds_read_u16_d16_hi v69, v1; "
                  "ds_read_u8_d16 v70, v1; ds_read_i8_d16_hi v71, v1 offset:1; $wait",
                  1, 8,
                  [](const U* in, U* out) {
                    const U x = in[0], low = kUntouched & 0xffff, high = kUntouched & 0xffff0000;
                    out[0] = x >> 16 & 0xff;
                    out[1] = static_cast<U>(int{static_cast<int8_t>(x >> 24)});
                    out[2] = x >> 16;
                    out[3] = static_cast<U>(int{static_cast<int16_t>(x)});
                    out[4] = x >> 16 | high;
                    out[5] = x << 16 | low;
                    out[6] = (x & 0xff) | high;
                    out[7] = static_cast<U>(int{static_cast<int8_t>(x >> 8)}) << 16 | low;
                  }),
      // Lanes on one address: all add, all but the largest lose.
      {"v_mov_b32 v96, 64; v_mov_b32 v97, 9; ds_write_b32 v96, v97; ds_write_b32 v96, v97 "
       "offset:4; "
       "$wait; ds_add_u32 v96, v0; ds_max_u32 v96, v0 offset:4; $wait; "
       "ds_read_b64 v[64:65], v96; $wait",
       {},
       2,
       [](Wave& w) {
         w.out[0].fill(static_cast<U>(9 + w.width * (w.width - 1) / 2));
         w.out[1].fill(static_cast<U>(w.width - 1));
       }},
  };
  struct Rtn {
    const char* op;
    U (*f)(U, U);
  };
  const Rtn rtns[] = {{"add_rtn_u32", kAtomics[0].f},
                      {"sub_rtn_u32", kAtomics[1].f},
                      {"min_rtn_i32", kAtomics[2].f},
                      {"min_rtn_u32", kAtomics[3].f},
                      {"max_rtn_i32", kAtomics[4].f},
                      {"and_rtn_b32", kAtomics[6].f},
                      {"or_rtn_b32", kAtomics[7].f},
                      {"xor_rtn_b32", kAtomics[8].f},
                      {rdna ? "storexchg_rtn_b32" : "wrxchg_rtn_b32", kAtomics[9].f},
                      {"inc_rtn_u32", kAtomics[10].f},
                      {"dec_rtn_u32", kAtomics[11].f}};
  for (const Rtn& r : rtns) {
    const auto f = r.f;
    p.push_back(
        from_inputs("ds_write_b32 v1, v8; $wait; ds_" + std::string(r.op) +
                        " v64, v1, v9; $wait; ds_read_b32 v65, v1; $wait",
                    2, 2, [f](const U* in, U* out) { out[0] = in[0], out[1] = f(in[0], in[1]); }));
  }
  // Compare and store: gfx11 swapped the two data operands.
  p.push_back(from_inputs(
      "ds_write_b32 v1, v8; $wait; " +
          std::string(rdna ? "ds_cmpstore_rtn_b32 v64, v1, v10, v9"
                           : "ds_cmpst_rtn_b32 v64, v1, v9, v10") +
          "; $wait; ds_read_b32 v65, v1; $wait",
      3, 2, [](const U* in, U* out) { out[0] = in[0], out[1] = in[0] == in[1] ? in[2] : in[0]; }));
  p.push_back(
      {"ds_write_b32 v1, v8; $wait; ds_add_rtn_f32 v64, v1, v9; $wait; "
       "ds_add_f32 v1, v9; $wait; ds_read_b32 v65, v1; $wait",
       {In::unit, In::unit},
       2,
       lanewise([](const U* in, U* out) {
         out[0] = in[0];
         out[1] = from_f32(as_f32(in[0]) + as_f32(in[1]) + as_f32(in[1]));
       }),
       same_f32});
  p.push_back(
      from_inputs("v_lshlrev_b32 v97, 3, v0; ds_write_b64 v97, v[8:9]; $wait; "
                  "ds_add_rtn_u64 v[64:65], v97, v[10:11]; $wait; "
                  "ds_read_b64 v[66:67], v97; $wait",
                  4, 4, [](const U* in, U* out) {
                    out[0] = in[0], out[1] = in[1];
                    put_u64(as_u64(in) + as_u64(in + 2), out + 2);
                  }));
  return p;
}

}  // namespace

TEST_CASE("simulator: global and flat memory") {
  KernelForm form;
  form.scratch = 64;
  for (const char* target : kSimTargets) {
    if (!can_probe(target, "global memory")) continue;
    const bool scratch = std::string(target) == "gfx942" || is_wave32(target);
    run_probes(target, global_probes(target), scratch ? form : KernelForm());
  }
}

TEST_CASE("simulator: global atomics") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "atomics")) run_probes(target, atomic_probes(target));
}

TEST_CASE("simulator: buffers and their bounds") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "buffers")) run_probes(target, buffer_probes(target));
}

TEST_CASE("simulator: LDS") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "LDS")) run_probes(target, lds_probes(target));
}

}  // namespace hstu::test
