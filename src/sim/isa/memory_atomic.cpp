// SPDX-License-Identifier: Apache-2.0
// Atomics of flat, global and buffer memory: one table of operations, under every name that LLVM
// prints for them.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <deque>
#include <string>

#include "sim/isa/atomic.hpp"
#include "sim/isa/memory_space.hpp"
#include "sim/workgroup.hpp"

namespace hstu::jit::sim {

bool check_scratch(Wave& w, const Places& p, int lane, uint32_t at, uint32_t bytes, uint32_t size) {
  if (at > size || size - at < bytes) {
    w.fail(fmt::format("uses {} bytes of scratch at {}, a lane has {}; the address is {}", bytes,
                       at, size, p.source == nullptr ? "an offset" : w.origin(*p.source)),
           lane);
    return false;
  }
  if (at % 4 != 0 && at % 4 + bytes > 4) {
    w.fail(fmt::format("uses {} bytes of scratch at {}, which is not aligned", bytes, at), lane);
    return false;
  }
  return true;
}

template <typename T>
void run_atomic(Wave& w, const Instruction& i, const Operand& data, const Operand* result,
                const Places& p, uint64_t lds_lanes) {
  constexpr int kRegisters = sizeof(T) / 4;
  const int16_t op = i.opcode->argument;
  Row scratch[4];
  const Row* rows[4] = {};
  const int sources = op == kCompareSwap ? 2 * kRegisters : kRegisters;
  for (int r = 0; r < sources; ++r) rows[r] = &w.read_row(data, r, scratch[r]);
  const auto value = [&](int first, int lane) {
    T out = rows[first]->lane[lane];
    if constexpr (kRegisters == 2) out |= static_cast<T>(rows[first + 1]->lane[lane]) << 32;
    return out;
  };
  uint32_t old_value[kMaxLanes][4];
  for (uint64_t left = p.lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    const T source = value(0, l), compare = op == kCompareSwap ? value(kRegisters, l) : T{};
    T old{};
    if ((lds_lanes >> l & 1) != 0) {
      const auto at = static_cast<uint32_t>(p.address[l]);
      if (!use_lds(w, *p.source, l, LdsUse::atomic, at, sizeof(T))) return;
      std::memcpy(&old, w.group().lds().data() + at, sizeof(T));
      const T next = atomic_result<T>(op, old, source, compare);
      std::memcpy(w.group().lds().data() + at, &next, sizeof(T));
    } else if (!p.clipped || p.valid[l] >= kRegisters) {
      if (!check_global(w, p, l, p.address[l], sizeof(T), true)) return;
      if (p.address[l] % sizeof(T) != 0) {
        return w.fail(fmt::format("an atomic at {:#x}, which is not aligned", p.address[l]), l);
      }
      // Other workgroups run on other host threads.
      T* place = reinterpret_cast<T*>(p.address[l]);
      old = __atomic_load_n(place, __ATOMIC_RELAXED);
      while (!__atomic_compare_exchange_n(place, &old, atomic_result<T>(op, old, source, compare),
                                          false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
      }
    }
    old_value[l][0] = static_cast<uint32_t>(old);
    old_value[l][1] = static_cast<uint32_t>(static_cast<uint64_t>(old) >> 32);
  }
  const DataShape& shape = shape_of(kRegisters == 2 ? kB64 : kB32);
  count_global(w, p, shape, true);
  if (result != nullptr) put_loaded(w, *result, shape, p.lanes, old_value, Queue::vector);
  const bool store = result == nullptr && w.machine().separate_store_counter;
  w.issue(store ? Queue::store : Queue::vector, result == nullptr ? 0 : result->index,
          result == nullptr ? 0 : kRegisters, false);
}

template void run_atomic<uint32_t>(Wave&, const Instruction&, const Operand&, const Operand*,
                                   const Places&, uint64_t);
template void run_atomic<uint64_t>(Wave&, const Instruction&, const Operand&, const Operand*,
                                   const Places&, uint64_t);

namespace {

struct AtomicName {
  const char* name;
  AtomicOp op;
  bool wide;  // 64 bits
};
// After "global_atomic_": the names of gfx9 and gfx10, then those of gfx11 and gfx12.
constexpr AtomicName kNames[] = {
    {"swap", kSwap, false},
    {"swap_x2", kSwap, true},
    {"swap_b32", kSwap, false},
    {"swap_b64", kSwap, true},
    {"cmpswap", kCompareSwap, false},
    {"cmpswap_x2", kCompareSwap, true},
    {"cmpswap_b32", kCompareSwap, false},
    {"cmpswap_b64", kCompareSwap, true},
    {"add", kAdd, false},
    {"add_x2", kAdd, true},
    {"add_u32", kAdd, false},
    {"add_u64", kAdd, true},
    {"sub", kSub, false},
    {"sub_x2", kSub, true},
    {"sub_u32", kSub, false},
    {"sub_u64", kSub, true},
    {"csub", kSubClamp, false},
    {"csub_u32", kSubClamp, false},
    {"sub_clamp_u32", kSubClamp, false},
    {"cond_sub_u32", kCondSub, false},
    {"smin", kMinI, false},
    {"smin_x2", kMinI, true},
    {"min_i32", kMinI, false},
    {"min_i64", kMinI, true},
    {"umin", kMinU, false},
    {"umin_x2", kMinU, true},
    {"min_u32", kMinU, false},
    {"min_u64", kMinU, true},
    {"smax", kMaxI, false},
    {"smax_x2", kMaxI, true},
    {"max_i32", kMaxI, false},
    {"max_i64", kMaxI, true},
    {"umax", kMaxU, false},
    {"umax_x2", kMaxU, true},
    {"max_u32", kMaxU, false},
    {"max_u64", kMaxU, true},
    {"and", kAnd, false},
    {"and_x2", kAnd, true},
    {"and_b32", kAnd, false},
    {"and_b64", kAnd, true},
    {"or", kOr, false},
    {"or_x2", kOr, true},
    {"or_b32", kOr, false},
    {"or_b64", kOr, true},
    {"xor", kXor, false},
    {"xor_x2", kXor, true},
    {"xor_b32", kXor, false},
    {"xor_b64", kXor, true},
    {"inc", kIncrement, false},
    {"inc_x2", kIncrement, true},
    {"inc_u32", kIncrement, false},
    {"inc_u64", kIncrement, true},
    {"dec", kDecrement, false},
    {"dec_x2", kDecrement, true},
    {"dec_u32", kDecrement, false},
    {"dec_u64", kDecrement, true},
    {"add_f32", kAddFloat, false},
    {"add_f64", kAddFloat, true},
    {"min_f32", kMinFloat, false},
    {"min_f64", kMinFloat, true},
    {"max_f32", kMaxFloat, false},
    {"max_f64", kMaxFloat, true},
    {"fmin", kMinFloat, false},
    {"fmin_x2", kMinFloat, true},
    {"fmax", kMaxFloat, false},
    {"fmax_x2", kMaxFloat, true},
    {"min_num_f32", kMinFloat, false},
    {"max_num_f32", kMaxFloat, false},
    {"pk_add_f16", kAddPackedF16, false},
    {"pk_add_bf16", kAddPackedBf16, false},
};

}  // namespace

void add_atomic_opcodes(std::vector<Opcode>& list) {
  static std::deque<std::string> names;  // opcodes keep pointers to them
  struct Family {
    const char* prefix;
    Execute narrow, wide;
  };
  const Family families[] = {
      {"global_atomic_", global_atomic_32(), global_atomic_64()},
      {"flat_atomic_", flat_atomic_32(), flat_atomic_64()},
      {"buffer_atomic_", buffer_atomic_32(), buffer_atomic_64()},
  };
  for (const Family& family : families) {
    for (const AtomicName& name : kNames) {
      names.push_back(std::string(family.prefix) + name.name);
      list.push_back({names.back().c_str(), name.wide ? family.wide : family.narrow,
                      OpClass::global_atomic, ConstantType::b32, name.op});
    }
  }
}

}  // namespace hstu::jit::sim
