// SPDX-License-Identifier: Apache-2.0
// From the arithmetic of one lane to an instruction. A table line is a function of plain types:
//
//   valu<[](u32 a, u32 b, u32 c) { return (a ^ b) + c; }>("v_xad_u32")
//
// Parameter types say how the printed sources are read, in order; the result type says what is
// written. Floats obey the denormal mode; integers of 64 bits and doubles are register pairs.
#pragma once

#include <bit>
#include <limits>
#include <type_traits>
#include <utility>

#include "sim/clones.hpp"
#include "sim/isa/lanes.hpp"

namespace hstu::jit::sim {

// ---- Parameter and result types beside i16 ... u64, float and double.
struct F16 {  // computes as float
  u16 bits = 0;
  F16() = default;
  explicit F16(float x) : bits(static_cast<u16>(f32_to_f16(x))) {}
  static F16 of(u32 bits) {
    F16 x;
    x.bits = static_cast<u16>(bits);
    return x;
  }
  operator float() const { return f16_to_f32(bits); }
};
struct BF16 {
  u16 bits = 0;
  BF16() = default;
  explicit BF16(float x) : bits(static_cast<u16>(f32_to_bf16(x))) {}
  static BF16 of(u32 bits) {
    BF16 x;
    x.bits = static_cast<u16>(bits);
    return x;
  }
  operator float() const { return bf16_to_f32(bits); }
};
// A float that the unit reads, or writes, with denormals flushed whatever MODE says.
struct Flushed {
  float value = 0;
  Flushed() = default;
  explicit Flushed(float x) : value(x) {}
  operator float() const { return value; }
};
struct Bits {  // 32 bits whose sign neg and abs may change
  u32 value;
  operator u32() const { return value; }
};
template <typename T>
struct Old {  // the destination as it was
  T value;
  operator T() const { return value; }
};
struct Bit {  // a lane's bit of a lane mask
  bool value;
  operator bool() const { return value; }
};
struct LaneIndex {  // not an operand
  int value;
  operator int() const { return value; }
};
struct Beside64 {  // a 32-bit integer source of an instruction whose other sources are doubles
  i32 value;
  operator i32() const { return value; }
};
template <typename T>
struct Exact {  // an integer before it is cut to T or, with clamp, saturated
  i64 value;
};
template <typename T>
struct WithMask {  // a result and a bit of the second destination; with clamp, `saturated`
  T value;
  bool mask;
  T saturated{};
};
template <typename T>
struct Kept {  // a 16-bit result that leaves the other half as it was on every target
  T value;
};

// ---- Reading: what the loop over lanes sees of a source.
template <typename T>
struct View;
template <typename T, WordKind kind>
struct WordView {
  const u32* lane;
  static constexpr int kOperands = 1;
  WordView(Lanes& lanes, int source, Row* scratch)
      : lane(lanes.word(source, 0, kind, scratch[0])) {}
  T operator[](int l) const { return std::bit_cast<T>(lane[l]); }
};
template <>
struct View<u32> : WordView<u32, WordKind::integer> {
  using WordView::WordView;
};
template <>
struct View<i32> : WordView<i32, WordKind::integer> {
  using WordView::WordView;
};
template <>
struct View<float> : WordView<float, WordKind::f32> {
  using WordView::WordView;
};
template <>
struct View<Bits> : WordView<Bits, WordKind::bits> {
  using WordView::WordView;
};
template <>
struct View<Flushed> : WordView<float, WordKind::flushed> {
  using WordView::WordView;
  Flushed operator[](int l) const { return Flushed(to_float(lane[l])); }
};
template <typename T, WordKind low_kind, WordKind high_kind>
struct PairView {
  const u32 *low, *high;
  static constexpr int kOperands = 1;
  PairView(Lanes& lanes, int source, Row* scratch)
      : low(lanes.word(source, 0, low_kind, scratch[0])),
        high(lanes.word(source, 1, high_kind, scratch[1])) {}
  T operator[](int l) const { return std::bit_cast<T>(low[l] | u64{high[l]} << 32); }
};
template <>
struct View<u64> : PairView<u64, WordKind::integer, WordKind::integer> {
  using PairView::PairView;
};
template <>
struct View<i64> : PairView<i64, WordKind::integer, WordKind::integer> {
  using PairView::PairView;
};
template <>
struct View<double> : PairView<double, WordKind::f64_low, WordKind::f64_high> {
  using PairView::PairView;
};
template <typename T, HalfKind kind>
struct HalfView {
  const u32* lane;
  static constexpr int kOperands = 1;
  HalfView(Lanes& lanes, int source, Row* scratch) : lane(lanes.half(source, kind, scratch[0])) {}
  T operator[](int l) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(lane[l]);
    } else {
      return T::of(lane[l]);
    }
  }
};
template <>
struct View<u16> : HalfView<u16, HalfKind::integer> {
  using HalfView::HalfView;
};
template <>
struct View<i16> : HalfView<i16, HalfKind::integer> {
  using HalfView::HalfView;
};
template <>
struct View<F16> : HalfView<F16, HalfKind::f16> {
  using HalfView::HalfView;
};
template <>
struct View<BF16> : HalfView<BF16, HalfKind::bf16> {
  using HalfView::HalfView;
};
template <typename T>
struct View<Old<T>> {
  const u32 *low, *high = nullptr;
  u32 shift = 0;
  static constexpr int kOperands = 0;
  View(Lanes& lanes, int, Row* scratch) : low(lanes.old_word(0, scratch[0])) {
    if constexpr (sizeof(T) == 8) high = lanes.old_word(1, scratch[1]);
    if constexpr (sizeof(T) == 2) {
      if (lanes.instruction.operand[0].high_half) shift = 16;
    }
  }
  Old<T> operator[](int l) const {
    if constexpr (sizeof(T) == 8) {
      return {std::bit_cast<T>(low[l] | u64{high[l]} << 32)};
    } else if constexpr (sizeof(T) == 4) {
      return {std::bit_cast<T>(low[l])};
    } else {
      return {std::bit_cast<T>(static_cast<u16>(low[l] >> shift))};
    }
  }
};
template <>
struct View<Bit> {
  u64 bits;
  static constexpr int kOperands = 1;
  View(Lanes& lanes, int source, Row*) : bits(lanes.mask(source)) {}
  Bit operator[](int l) const { return {(bits >> l & 1) != 0}; }
};
template <>
struct View<Beside64> : WordView<i32, WordKind::integer> {
  View(Lanes& lanes, int source, Row* scratch) : WordView(lanes, source, scratch) {
    // A literal was taken for the upper half of a double.
    const Operand& o = lanes.operand(source);
    if (o.kind == OperandKind::constant && static_cast<u32>(o.bits) == 0) {
      for (u32& x : scratch->lane) x = static_cast<u32>(o.bits >> 32);
      lane = scratch->lane;
    }
  }
  Beside64 operator[](int l) const { return {static_cast<i32>(lane[l])}; }
};
template <>
struct View<LaneIndex> {
  static constexpr int kOperands = 0;
  View(Lanes&, int, Row*) {}
  LaneIndex operator[](int l) const { return {l}; }
};

// ---- Writing.
template <typename T>
struct Out {  // u32, i32, float
  static constexpr int kDestinations = 1;
  Row row;
  void set(int l, T x) { row.lane[l] = std::bit_cast<u32>(x); }
  void finish(Lanes& lanes) {
    if constexpr (std::is_same_v<T, float>) lanes.finish_f32(row, false);
    lanes.write_word(0, row);
  }
};
template <>
struct Out<Flushed> {
  static constexpr int kDestinations = 1;
  Row row;
  void set(int l, Flushed x) { row.lane[l] = to_bits(x.value); }
  void finish(Lanes& lanes) {
    lanes.finish_f32(row, true);
    lanes.write_word(0, row);
  }
};
template <typename T>
struct PairOut {
  static constexpr int kDestinations = 1;
  Row low, high;
  void set(int l, T x) {
    const u64 bits = std::bit_cast<u64>(x);
    low.lane[l] = static_cast<u32>(bits);
    high.lane[l] = static_cast<u32>(bits >> 32);
  }
  void finish(Lanes& lanes) {
    if constexpr (std::is_same_v<T, double>) lanes.finish_f64(low, high);
    lanes.write_word(0, low);
    lanes.write_word(1, high);
  }
};
template <>
struct Out<u64> : PairOut<u64> {};
template <>
struct Out<i64> : PairOut<i64> {};
template <>
struct Out<double> : PairOut<double> {};
template <typename T, bool keep>
struct HalfOut {
  static constexpr int kDestinations = 1;
  Row row;
  void set(int l, T x) { row.lane[l] = std::bit_cast<u16>(x); }
  void finish(Lanes& lanes) {
    if constexpr (std::is_same_v<T, F16>) lanes.finish_f16(row);
    lanes.write_half(row, keep);
  }
};
template <>
struct Out<u16> : HalfOut<u16, false> {};
template <>
struct Out<i16> : HalfOut<i16, false> {};
template <>
struct Out<F16> : HalfOut<F16, false> {};
template <>
struct Out<BF16> : HalfOut<BF16, false> {};
template <typename T>
struct Out<Kept<T>> : HalfOut<T, true> {
  void set(int l, Kept<T> x) { HalfOut<T, true>::set(l, x.value); }
};
template <typename T>
struct Out<Exact<T>> {
  static constexpr int kDestinations = 1;
  Row row;
  bool clamp = false;
  void set(int l, Exact<T> x) {
    constexpr i64 kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
    const i64 saturated = x.value < kLow ? kLow : x.value > kHigh ? kHigh : x.value;
    row.lane[l] = static_cast<u32>(static_cast<T>(clamp ? saturated : x.value));
  }
  void finish(Lanes& lanes) {
    if constexpr (sizeof(T) == 2) {
      lanes.write_half(row, lanes.sources == 3);
    } else {
      lanes.write_word(0, row);
    }
  }
};
template <typename T>
struct Out<WithMask<T>> {
  static constexpr int kDestinations = 2;
  Out<T> out;
  bool clamp = false;
  uint8_t bit[kMaxLanes];
  void set(int l, const WithMask<T>& x) {
    out.set(l, clamp ? x.saturated : x.value);
    bit[l] = x.mask;
  }
  void finish(Lanes& lanes) {
    u64 mask = 0;
    for (int l = 0; l < kMaxLanes; ++l) mask |= u64{bit[l]} << l;
    out.finish(lanes);
    lanes.write_mask(mask);
  }
};

// ---- The instruction.
template <auto F, typename Result, typename... Views>
HSTU_SIM_CLONES void loop_over_lanes(Result& out, Views... source) {
  for (int l = 0; l < kMaxLanes; ++l) out.set(l, F(source[l]...));
}

template <auto F, typename R, typename... A, size_t... I>
void run_lanes(Wave& wave, const Instruction& instruction, std::index_sequence<I...>) {
  constexpr int kOperands[] = {View<A>::kOperands..., 0};
  constexpr auto source_of = [](size_t i) {
    int before = 0;
    for (size_t k = 0; k < i; ++k) before += kOperands[k];
    return before;
  };
  Lanes lanes(wave, instruction, Out<R>::kDestinations, source_of(sizeof...(A)));
  Row scratch[sizeof...(A) + 1][2];
  Out<R> out;
  if constexpr (requires { out.clamp; }) out.clamp = instruction.modifiers.clamp;
  loop_over_lanes<F>(out, View<A>(lanes, source_of(I), scratch[I])...);
  out.finish(lanes);
}

template <auto F, typename R, typename... A>
void run_as(Wave& wave, const Instruction& instruction, R (*)(A...)) {
  run_lanes<F, R, A...>(wave, instruction, std::index_sequence_for<A...>());
}
template <auto F>
void run(Wave& wave, const Instruction& instruction) {
  run_as<F>(wave, instruction, +F);
}

// How constants are encoded follows from the widest source.
template <typename R, typename... A>
constexpr ConstantType constants_of(R (*)(A...)) {
  const auto any = [](auto... type) { return (type || ...); };
  if (any(std::is_same_v<A, double>..., false)) return ConstantType::f64;
  if (any(std::is_same_v<A, u64>..., std::is_same_v<A, i64>..., false)) return ConstantType::b64;
  if (any(std::is_same_v<A, float>..., std::is_same_v<A, Flushed>..., false)) {
    return ConstantType::f32;
  }
  if (any(std::is_same_v<A, F16>..., false)) return ConstantType::f16;
  if (any(std::is_same_v<A, BF16>..., false)) return ConstantType::bf16;
  return ConstantType::b32;
}

template <auto F>
constexpr Opcode valu(const char* mnemonic, OpClass op_class = OpClass::valu) {
  return {mnemonic, run<F>, op_class, constants_of(+F)};
}
template <auto F>
constexpr Opcode transcendental(const char* mnemonic) {
  return valu<F>(mnemonic, OpClass::transcendental);
}

}  // namespace hstu::jit::sim
