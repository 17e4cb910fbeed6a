// SPDX-License-Identifier: Apache-2.0
// How scalar instructions run: operands read, a function applied, the result written, SCC set.
#pragma once

#include <cstdint>

#include "sim/wave.hpp"

namespace hstu::jit::sim::scalar {

using U = uint32_t;
using U64 = uint64_t;
using I = int32_t;
using I64 = int64_t;

// What happens to SCC.
enum class Scc { keep, nonzero };

template <typename T>
T read(Wave& w, const Operand& o) {
  if constexpr (sizeof(T) == 8) return static_cast<T>(w.read_scalar64(o));
  return static_cast<T>(w.read_scalar(o));
}
template <typename T>
void write(Wave& w, const Operand& o, T value) {
  if constexpr (sizeof(T) == 8) {
    w.write_scalar64(o, static_cast<U64>(value));
  } else {
    w.write_scalar(o, static_cast<U>(value));
  }
}

template <typename T, T (*F)(T), Scc scc = Scc::keep>
void unary(Wave& w, const Instruction& i) {
  const T result = F(read<T>(w, i.operand[1]));
  write<T>(w, i.operand[0], result);
  if constexpr (scc == Scc::nonzero) w.set_scc(result != 0);
}

template <typename T, T (*F)(T, T), Scc scc = Scc::keep>
void binary(Wave& w, const Instruction& i) {
  const T result = F(read<T>(w, i.operand[1]), read<T>(w, i.operand[2]));
  write<T>(w, i.operand[0], result);
  if constexpr (scc == Scc::nonzero) w.set_scc(result != 0);
}

// A 64-bit value and a 32-bit one.
template <U64 (*F)(U64, U), Scc scc = Scc::keep>
void binary64_32(Wave& w, const Instruction& i) {
  const U64 result = F(read<U64>(w, i.operand[1]), read<U>(w, i.operand[2]));
  write<U64>(w, i.operand[0], result);
  if constexpr (scc == Scc::nonzero) w.set_scc(result != 0);
}

// From 64 bits to 32.
template <U (*F)(U64), Scc scc = Scc::keep>
void narrow(Wave& w, const Instruction& i) {
  const U result = F(read<U64>(w, i.operand[1]));
  write<U>(w, i.operand[0], result);
  if constexpr (scc == Scc::nonzero) w.set_scc(result != 0);
}

constexpr OpClass kSalu = OpClass::salu;
constexpr ConstantType k64 = ConstantType::b64;

}  // namespace hstu::jit::sim::scalar
