// SPDX-License-Identifier: Apache-2.0
// Source: AMD's ISA documents, DS_PERMUTE_B32, DS_BPERMUTE_B32, DS_SWIZZLE_B32.
#include "sim/isa/lds_permute.hpp"

#include "sim/isa/access.hpp"

namespace hstu::jit::sim {
namespace {

void finish(Wave& w, const Instruction& i, const uint32_t* value) {
  uint32_t loaded[kMaxLanes][4];
  for (int l = 0; l < kMaxLanes; ++l) loaded[l][0] = value[l];
  put_loaded(w, i.operand[0], shape_of(kB32), w.exec(), loaded, Queue::lds);
  w.issue(Queue::lds, i.operand[0].index, 1, false);
}

// Lanes are numbered by bytes; gfx10 and later move within halves of 32 on wave64.
template <bool inactive_too>
void gather(Wave& w, const Instruction& i) {
  Row address_row, data_row;
  const Row& address = w.read_row(i.operand[1], 0, address_row);
  const Row& data = w.read_row(i.operand[2], 0, data_row);
  const int span = w.machine().cdna() ? w.width() : 32;
  uint32_t value[kMaxLanes];
  for (int l = 0; l < kMaxLanes; ++l) {
    const auto offset = static_cast<uint32_t>(i.modifiers.offset);
    const int from = l / span * span + static_cast<int>((address.lane[l] + offset) / 4 % span);
    value[l] = inactive_too || (w.exec() >> from & 1) != 0 ? data.lane[from] : 0;
  }
  finish(w, i, value);
}

}  // namespace

void ds_bpermute(Wave& w, const Instruction& i) { gather<false>(w, i); }
void ds_bpermute_fetch(Wave& w, const Instruction& i) { gather<true>(w, i); }

// Pushes: of several lanes that name one, the highest wins; who is named by none gets 0.
void ds_permute(Wave& w, const Instruction& i) {
  Row address_row, data_row;
  const Row& address = w.read_row(i.operand[1], 0, address_row);
  const Row& data = w.read_row(i.operand[2], 0, data_row);
  const int span = w.machine().cdna() ? w.width() : 32;
  uint32_t value[kMaxLanes] = {};
  for (int l = 0; l < w.width(); ++l) {
    if ((w.exec() >> l & 1) == 0) continue;
    const auto offset = static_cast<uint32_t>(i.modifiers.offset);
    value[l / span * span + static_cast<int>((address.lane[l] + offset) / 4 % span)] = data.lane[l];
  }
  finish(w, i, value);
}

void ds_swizzle(Wave& w, const Instruction& i) {
  Row row;
  const Row& data = w.read_row(i.operand[1], 0, row);
  const auto code = static_cast<uint32_t>(i.modifiers.offset);
  uint32_t value[kMaxLanes];
  for (int l = 0; l < kMaxLanes; ++l) {
    int from = l;
    if ((code & 0xe000) == 0xe000) {
      return w.fail("the FFT mode of ds_swizzle is not simulated");
    }
    if ((code & 0xe000) == 0xc000) {  // rotate within 32 lanes by bits 9:5, masked by bits 4:0
      const int by = static_cast<int>(code >> 5 & 31), keep = static_cast<int>(code & 31);
      const int sum = (code >> 10 & 1) != 0 ? l - by : l + by;
      from = (l & 32) | (l & keep) | (sum & 31 & ~keep);
    } else if ((code & 0x8000) != 0) {  // quad permutation
      from = (l & ~3) | static_cast<int>(code >> (l & 3) * 2 & 3);
    } else {  // and, or, xor masks within 32 lanes
      const auto lane = static_cast<uint32_t>(l & 31);
      from = (l & 32) |
             static_cast<int>(((lane & (code & 31)) | (code >> 5 & 31)) ^ (code >> 10 & 31));
    }
    value[l] = from < w.width() && (w.exec() >> from & 1) != 0 ? data.lane[from] : 0;
  }
  finish(w, i, value);
}

}  // namespace hstu::jit::sim
