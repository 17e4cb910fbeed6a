// SPDX-License-Identifier: Apache-2.0
// Comparisons into lane masks. A predicate's code is its truth table, as in the encoding of the
// hardware: bit 0 less, bit 1 equal, bit 2 greater, bit 3 unordered.
#include <string>

#include "sim/isa/lanes_math.hpp"
#include "sim/isa/tables.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

struct Predicate {
  const char* name;
  int code;
};
constexpr Predicate kFloatPredicates[] = {
    {"f", 0},    {"lt", 1},   {"eq", 2},   {"le", 3},   {"gt", 4},   {"lg", 5},
    {"ge", 6},   {"o", 7},    {"u", 8},    {"nge", 9},  {"nlg", 10}, {"ngt", 11},
    {"nle", 12}, {"neq", 13}, {"nlt", 14}, {"tru", 15}, {"t", 15},
};
constexpr Predicate kIntegerPredicates[] = {
    {"f", 0}, {"lt", 1}, {"eq", 2}, {"le", 3}, {"gt", 4}, {"ne", 5}, {"ge", 6}, {"t", 7},
};

template <typename T>
HSTU_SIM_CLONES void compare_lanes(uint8_t* truth, View<T> a, View<T> b, u32 code) {
  for (int l = 0; l < kMaxLanes; ++l) {
    const T x = a[l], y = b[l];
    const u32 relation = x < y ? 1u : x == y ? 2u : x > y ? 4u : 8u;
    truth[l] = (relation & code) != 0;
  }
}

// What a float is, as the bit that v_cmp_class tests.
template <typename Word, int mantissa, int exponent>
u32 class_of(Word bits) {
  constexpr Word kExponent = ((Word{1} << exponent) - 1) << mantissa;
  constexpr Word kMantissa = (Word{1} << mantissa) - 1;
  const Word fraction = bits & kMantissa, power = bits & kExponent;
  const bool negative = bits >> (mantissa + exponent) & 1;
  if (power == kExponent && fraction != 0) return fraction >> (mantissa - 1) ? 1u << 1 : 1u << 0;
  if (power == kExponent) return negative ? 1u << 2 : 1u << 9;
  if (power != 0) return negative ? 1u << 3 : 1u << 8;
  if (fraction != 0) return negative ? 1u << 4 : 1u << 7;
  return negative ? 1u << 5 : 1u << 6;
}

// `exec` too for v_cmpx. Its destination is not printed where it has no other (gfx10 and later).
void write_truth(Lanes& lanes, const uint8_t* truth, bool to_exec) {
  u64 mask = 0;
  for (int l = 0; l < kMaxLanes; ++l) mask |= u64{truth[l]} << l;
  mask &= lanes.active;
  if (lanes.destinations == 1) lanes.wave.write_mask(lanes.instruction.operand[0], mask);
  if (to_exec) lanes.wave.set_exec(mask);
}

bool has_sources(Wave& wave, const Instruction& instruction) {
  if (instruction.operands == 2 || instruction.operands == 3) return true;
  wave.fail("a comparison has two sources and at most one result");
  return false;
}

template <typename T, bool to_exec>
void compare(Wave& wave, const Instruction& instruction) {
  if (!has_sources(wave, instruction)) return;
  Lanes lanes(wave, instruction, instruction.operands - 2, 2);
  Row scratch[2][2];
  uint8_t truth[kMaxLanes];
  const View<T> a(lanes, 0, scratch[0]), b(lanes, 1, scratch[1]);
  compare_lanes<T>(truth, a, b, static_cast<u32>(instruction.opcode->argument));
  write_truth(lanes, truth, to_exec);
}

template <typename T, bool to_exec>
void compare_class(Wave& wave, const Instruction& instruction) {
  if (!has_sources(wave, instruction)) return;
  Lanes lanes(wave, instruction, instruction.operands - 2, 2);
  Row scratch[2][2];
  uint8_t truth[kMaxLanes];
  const View<Beside64> wanted(lanes, 1, scratch[1]);
  if constexpr (std::is_same_v<T, double>) {
    const View<double> a(lanes, 0, scratch[0]);
    for (int l = 0; l < kMaxLanes; ++l) {
      truth[l] = (class_of<u64, 52, 11>(to_bits(a[l])) & wanted[l]) != 0;
    }
  } else if constexpr (std::is_same_v<T, float>) {
    const View<Bits> a(lanes, 0, scratch[0]);
    for (int l = 0; l < kMaxLanes; ++l) truth[l] = (class_of<u32, 23, 8>(a[l]) & wanted[l]) != 0;
  } else {
    const View<u16> a(lanes, 0, scratch[0]);
    for (int l = 0; l < kMaxLanes; ++l) {
      truth[l] = (class_of<u32, 10, 5>(a[l]) & wanted[l]) != 0;
    }
  }
  write_truth(lanes, truth, to_exec);
}

struct Comparison {
  const char* type;
  bool is_float;
  ConstantType constants;
  Execute to_mask, to_exec;
};
template <typename T>
constexpr Comparison comparison(const char* type, bool is_float, ConstantType constants) {
  return {type, is_float, constants, compare<T, false>, compare<T, true>};
}
constexpr Comparison kComparisons[] = {
    comparison<F16>("f16", true, ConstantType::f16),
    comparison<float>("f32", true, ConstantType::f32),
    comparison<double>("f64", true, ConstantType::f64),
    comparison<i16>("i16", false, ConstantType::b32),
    comparison<u16>("u16", false, ConstantType::b32),
    comparison<i32>("i32", false, ConstantType::b32),
    comparison<u32>("u32", false, ConstantType::b32),
    comparison<i64>("i64", false, ConstantType::b64),
    comparison<u64>("u64", false, ConstantType::b64),
};
constexpr Opcode kClasses[] = {
    {"v_cmp_class_f16", compare_class<F16, false>, OpClass::valu, ConstantType::f16},
    {"v_cmp_class_f32", compare_class<float, false>, OpClass::valu, ConstantType::f32},
    {"v_cmp_class_f64", compare_class<double, false>, OpClass::valu, ConstantType::f64},
    {"v_cmpx_class_f16", compare_class<F16, true>, OpClass::valu, ConstantType::f16},
    {"v_cmpx_class_f32", compare_class<float, true>, OpClass::valu, ConstantType::f32},
    {"v_cmpx_class_f64", compare_class<double, true>, OpClass::valu, ConstantType::f64},
};

// "v_cmp_" and "v_cmpx_", predicate, type. Names live as long as the program.
struct ComparisonTable {
  std::vector<std::string> names;
  std::vector<Opcode> lines;

  ComparisonTable() {
    names.reserve(2 * std::size(kComparisons) * std::size(kFloatPredicates));
    for (const Comparison& c : kComparisons) {
      const auto predicates = c.is_float ? std::span<const Predicate>(kFloatPredicates)
                                         : std::span<const Predicate>(kIntegerPredicates);
      for (const Predicate& p : predicates) {
        add("v_cmp_", p, c, c.to_mask);
        add("v_cmpx_", p, c, c.to_exec);
      }
    }
    lines.insert(lines.end(), std::begin(kClasses), std::end(kClasses));
  }
  void add(const char* start, const Predicate& p, const Comparison& c, Execute execute) {
    names.push_back(std::string(start) + p.name + "_" + c.type);
    lines.push_back(
        {names.back().c_str(), execute, OpClass::valu, c.constants, static_cast<int16_t>(p.code)});
  }
};

}  // namespace

std::span<const Opcode> vector_compare_opcodes() {
  static const ComparisonTable kTable;
  return kTable.lines;
}

}  // namespace hstu::jit::sim
