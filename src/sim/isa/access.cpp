// SPDX-License-Identifier: Apache-2.0
#include "sim/isa/access.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "sim/workgroup.hpp"

namespace hstu::jit::sim {
namespace {

// In the order of `Data`.
constexpr DataShape kShapes[] = {
    {1, 1, false, DataShape::whole},  {1, 1, true, DataShape::whole},
    {2, 1, false, DataShape::whole},  {2, 1, true, DataShape::whole},
    {4, 1, false, DataShape::whole},  {8, 2, false, DataShape::whole},
    {12, 3, false, DataShape::whole}, {16, 4, false, DataShape::whole},
    {1, 1, false, DataShape::low},    {1, 1, true, DataShape::low},
    {2, 1, false, DataShape::low},    {1, 1, false, DataShape::high},
    {1, 1, true, DataShape::high},    {2, 1, false, DataShape::high},
};

template <typename F>
void each_lane(uint64_t lanes, const F& f) {
  for (uint64_t left = lanes; left != 0; left &= left - 1) f(std::countr_zero(left));
}

// The value of a narrow load as a register shows it.
uint32_t extended(const DataShape& shape, uint32_t raw) {
  if (!shape.sign || shape.bytes >= 4) return raw;
  return shape.bytes == 1 ? static_cast<uint32_t>(static_cast<int8_t>(raw))
                          : static_cast<uint32_t>(static_cast<int16_t>(raw));
}

uint32_t dwords(const DataShape& shape) { return std::max<uint32_t>(1, shape.bytes / 4); }

// Lane by lane through host memory; whole rows of 16 bytes are the common case.
bool read_lane(Wave& w, const Places& p, const DataShape& shape, int lane, uint32_t* value) {
  const uint64_t at = p.address[lane];
  if (!p.clipped && p.dword_stride == 4) {
    if (!check_global(w, p, lane, at, shape.bytes, false)) return false;
    std::memcpy(value, reinterpret_cast<const void*>(at), shape.bytes);
    return true;
  }
  const uint32_t bytes = std::min<uint32_t>(shape.bytes, 4);
  for (uint32_t d = 0; d < p.valid[lane]; ++d) {
    const uint64_t place = at + uint64_t{d} * p.dword_stride;
    if (!check_global(w, p, lane, place, bytes, false)) return false;
    std::memcpy(value + d, reinterpret_cast<const void*>(place), bytes);
  }
  return true;
}

}  // namespace

const DataShape& shape_of(int16_t data) { return kShapes[data]; }

bool check_global(Wave& w, const Places& p, int lane, uint64_t address, uint32_t bytes,
                  bool write) {
  Workgroup& group = w.group();
  const MemoryRange* range = group.last_range;
  if (address - range->begin < range->end - range->begin && range->end - address >= bytes &&
      (range->writable || !write)) [[likely]] {
    return true;
  }
  const MemoryMap& memory = group.dispatch().memory;
  range = memory.find(address);
  if (range == nullptr) range = group.own_range(address);
  if (range != nullptr && range->end - address >= bytes && (range->writable || !write)) {
    group.last_range = range;
    return true;
  }
  const MemoryRange* near = range != nullptr ? range : memory.before(address);
  std::string where = "no buffer is near";
  if (range != nullptr) {
    where = range->end - address < bytes
                ? fmt::format("it runs past the end of a {} of {} bytes at offset {}", range->what,
                              range->end - range->begin, address - range->begin)
                : fmt::format("the {} there may not be written", range->what);
  } else if (near != nullptr && address - near->end < (uint64_t{1} << 32)) {
    where = fmt::format("{} bytes past the end of a {} of {} bytes", address - near->end,
                        near->what, near->end - near->begin);
  }
  w.fail(fmt::format("{} {} bytes at {:#x}, outside every buffer: {}; the address is {}",
                     write ? "writes" : "reads", bytes, address, where,
                     p.source == nullptr ? std::string("scalar") : w.origin(*p.source)),
         lane);
  return false;
}

// Lines touched by one instruction, each counted once.
void count_global(Wave& w, const Places& p, const DataShape& shape, bool write) {
  const auto line_bytes = static_cast<uint64_t>(w.machine().line_bytes);
  uint64_t lines[2 * kMaxLanes];
  int count = 0;
  uint64_t bytes = 0;
  const auto touch = [&](uint64_t line) {
    for (int k = count; k-- > 0;) {
      if (lines[k] == line) return;
    }
    if (count < 2 * kMaxLanes) lines[count++] = line;
  };
  each_lane(p.lanes, [&](int l) {
    const uint32_t width = p.clipped && shape.bytes >= 4  ? p.valid[l] * 4u
                           : p.clipped && p.valid[l] == 0 ? 0u
                                                          : shape.bytes;
    if (width == 0) return;
    bytes += width;
    touch(p.address[l] / line_bytes);
    touch((p.address[l] + width - 1) / line_bytes);
  });
  GlobalTally& tally = write ? w.group().tally().global_write : w.group().tally().global_read;
  tally.bytes += bytes;
  tally.lines += static_cast<uint64_t>(count);
  tally.minimum += (bytes + line_bytes - 1) / line_bytes;
}

void put_loaded(Wave& w, const Operand& data, const DataShape& shape, uint64_t lanes,
                const uint32_t (*value)[4], Queue queue) {
  for (int r = 0; r < shape.registers; ++r) {
    Row& row = w.claim_load(queue, data.index + r, lanes);
    if (shape.bytes >= 4 && lanes == w.all_lanes()) {
      for (int l = 0; l < w.width(); ++l) row.lane[l] = value[l][r];
    } else if (shape.half == DataShape::whole) {
      each_lane(lanes, [&](int l) { row.lane[l] = extended(shape, value[l][r]); });
    } else {
      const int shift = shape.half == DataShape::high ? 16 : 0;
      each_lane(lanes, [&](int l) {
        const uint32_t half = extended(shape, value[l][r]) & 0xffff;
        row.lane[l] = (row.lane[l] & ~(0xffffu << shift)) | half << shift;
      });
    }
  }
}

void load_memory(Wave& w, const Operand& data, const DataShape& shape, const Places& p,
                 Queue queue) {
  uint32_t value[kMaxLanes][4];
  for (uint64_t left = p.lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    value[l][0] = value[l][1] = value[l][2] = value[l][3] = 0;
    if (!read_lane(w, p, shape, l, value[l])) return;
  }
  put_loaded(w, data, shape, p.lanes, value, queue);
  count_global(w, p, shape, false);
}

void store_memory(Wave& w, const Operand& data, const DataShape& shape, const Places& p) {
  Row scratch[4];
  const Row* rows[4];
  for (int r = 0; r < shape.registers; ++r) rows[r] = &w.read_row(data, r, scratch[r]);
  const int shift = shape.half == DataShape::high ? 16 : 0;
  const uint32_t bytes = std::min<uint32_t>(shape.bytes, 4);
  for (uint64_t left = p.lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    if (!p.clipped && p.dword_stride == 4) {
      uint32_t value[4];
      for (int r = 0; r < shape.registers; ++r) value[r] = rows[r]->lane[l] >> shift;
      if (!check_global(w, p, l, p.address[l], shape.bytes, true)) return;
      std::memcpy(reinterpret_cast<void*>(p.address[l]), value, shape.bytes);
      continue;
    }
    for (uint32_t d = 0; d < p.valid[l]; ++d) {
      const uint64_t place = p.address[l] + uint64_t{d} * p.dword_stride;
      const uint32_t value = rows[d]->lane[l] >> shift;
      if (!check_global(w, p, l, place, bytes, true)) return;
      std::memcpy(reinterpret_cast<void*>(place), &value, bytes);
    }
  }
  count_global(w, p, shape, true);
}

void load_to_lds(Wave& w, const DataShape& shape, const Places& p, uint32_t lds_base) {
  Lds& lds = w.group().lds();
  // Narrow data arrives as whole dwords.
  const uint32_t size = dwords(shape) * 4;
  Outstanding& entry = w.issue(Queue::vector, 0, 0, false);
  entry.touch = {0, static_cast<uint16_t>(size), true, false, true, 0, {}};
  Operand m0;
  m0.kind = OperandKind::scalar;
  m0.index = kM0;
  for (uint64_t left = p.lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    uint32_t value[4] = {};
    if (!read_lane(w, p, shape, l, value)) return;
    value[0] = extended(shape, value[0]);
    const uint32_t at = lds_base + static_cast<uint32_t>(l) * size;
    if (!use_lds(w, m0, l, LdsUse::write, at, size)) return;
    lds.arriving(at, size, w.number());
    entry.touch.address[l] = at;
    entry.touch.lanes |= uint64_t{1} << l;
    std::memcpy(lds.data() + at, value, size);
  }
  count_global(w, p, shape, false);
}

// ---- LDS.

bool use_lds(Wave& w, const Operand& source, int lane, LdsUse how, uint64_t address,
             uint32_t bytes) {
  Lds& lds = w.group().lds();
  const LdsProblem problem = lds.use(how, address, bytes, w.number());
  if (problem == LdsProblem::none) [[likely]]
    return true;
  const char* verb = how == LdsUse::read ? "reads" : how == LdsUse::write ? "writes" : "changes";
  std::string what;
  if (problem == LdsProblem::outside) {
    what = fmt::format("the workgroup has {} bytes", lds.size());
  } else if (problem == LdsProblem::uninitialised) {
    what = "nothing has written a byte there";
  } else {
    const int other = lds.conflicting_wave(how, address, bytes, w.number());
    what = other == w.number() ? "this wave loads a byte there and did not wait for it"
                               : fmt::format("race: {} used a byte there with no barrier between",
                                             other < 0 ? std::string("other waves")
                                                       : fmt::format("wave {}", other));
  }
  w.fail(fmt::format("{} {} bytes of LDS at {}: {}; the address is {}", verb, bytes, address, what,
                     w.origin(source)),
         lane);
  return false;
}

void count_lds(Wave& w, const uint32_t* address, uint64_t lanes, int bytes, LdsUse how) {
  const LdsPhases phases =
      count_lds_phases(address, lanes, w.width(), bytes, w.machine().lds_banks);
  Tally& tally = w.group().tally();
  LdsWidth& width = how == LdsUse::read    ? tally.lds_read[lds_width_index(bytes)]
                    : how == LdsUse::write ? tally.lds_write[lds_width_index(bytes)]
                                           : tally.lds_write[kLdsAtomicIndex];
  ++width.accesses;
  width.phases += phases.taken;
  width.minimum += phases.minimum;
}

namespace {

// Lane by lane; the width is a constant so that each access is a handful of moves. False after a
// fault.
template <uint32_t bytes>
bool read_lds_lanes(Wave& w, const uint32_t* address, uint64_t lanes, const Operand& source,
                    uint32_t (*value)[4]) {
  Lds& lds = w.group().lds();
  for (uint64_t left = lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    if constexpr (bytes >= 4) {
      if (!lds.use_own<bytes>(LdsUse::read, address[l], w.number()) &&
          !use_lds(w, source, l, LdsUse::read, address[l], bytes)) {
        return false;
      }
    } else {
      value[l][0] = 0;
      if (!use_lds(w, source, l, LdsUse::read, address[l], bytes)) return false;
    }
    std::memcpy(value[l], lds.data() + address[l], bytes);
  }
  return true;
}

template <uint32_t bytes>
bool write_lds_lanes(Wave& w, const uint32_t* address, uint64_t lanes, const Operand& source,
                     const Row* const* rows, int shift) {
  Lds& lds = w.group().lds();
  for (uint64_t left = lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    bool fine = false;
    if constexpr (bytes >= 4) fine = lds.use_own<bytes>(LdsUse::write, address[l], w.number());
    if (!fine && !use_lds(w, source, l, LdsUse::write, address[l], bytes)) return false;
    uint32_t value[4];
    for (uint32_t r = 0; r < (bytes + 3) / 4; ++r) value[r] = rows[r]->lane[l] >> shift;
    std::memcpy(lds.data() + address[l], value, bytes);
  }
  return true;
}

// Calls `f` with the width as a constant.
template <typename F>
bool with_width(int bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(std::integral_constant<uint32_t, 1>());
    case 2:
      return f(std::integral_constant<uint32_t, 2>());
    case 4:
      return f(std::integral_constant<uint32_t, 4>());
    case 8:
      return f(std::integral_constant<uint32_t, 8>());
    case 12:
      return f(std::integral_constant<uint32_t, 12>());
    default:
      return f(std::integral_constant<uint32_t, 16>());
  }
}

}  // namespace

bool read_lds(Wave& w, const uint32_t* address, uint64_t lanes, int bytes, const Operand& source,
              uint32_t (*value)[4]) {
  return with_width(
      bytes, [&](auto width) { return read_lds_lanes<width()>(w, address, lanes, source, value); });
}

void load_lds(Wave& w, const Operand& data, const DataShape& shape, const uint32_t* address,
              uint64_t lanes, const Operand& source, Queue queue) {
  uint32_t value[kMaxLanes][4];
  if (!read_lds(w, address, lanes, shape.bytes, source, value)) return;
  count_lds(w, address, lanes, shape.bytes, LdsUse::read);
  put_loaded(w, data, shape, lanes, value, queue);
}

void store_lds(Wave& w, const Operand& data, const DataShape& shape, const uint32_t* address,
               uint64_t lanes, const Operand& source) {
  Row scratch[4];
  const Row* rows[4];
  for (int r = 0; r < shape.registers; ++r) rows[r] = &w.read_row(data, r, scratch[r]);
  const int shift = shape.half == DataShape::high ? 16 : 0;
  if (!with_width(shape.bytes, [&](auto width) {
        return write_lds_lanes<width()>(w, address, lanes, source, rows, shift);
      })) {
    return;
  }
  count_lds(w, address, lanes, shape.bytes, LdsUse::write);
}

}  // namespace hstu::jit::sim
