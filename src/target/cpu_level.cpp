// SPDX-License-Identifier: Apache-2.0
#include "target/cpu_level.hpp"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace hstu::jit {
namespace {

enum class Family { x86, arm };

// What a processor must have for a level: a set of these bits.
enum Feature : uint32_t {
  kSse42 = 1,   // all of x86-64-v2
  kAvx2 = 2,    // all of x86-64-v3
  kAvx512 = 4,  // all of x86-64-v4
  kAvx512Bf16 = 8,
  kAmxBf16 = 16,  // AMX tiles and AVX512-FP16, with permission
  kNeon = 32,
  kNeonFp16 = 64,
};

struct Level {
  const char* name;
  Family family;
  uint32_t needs;
  const char* flags[6];  // null-terminated
};

// Both compilers spell these options alike. Within a family, weakest first.
constexpr Level kLevels[] = {
    {"x86-64-v2", Family::x86, kSse42, {"-march=x86-64-v2"}},
    {"x86-64-v3", Family::x86, kSse42 | kAvx2, {"-march=x86-64-v3"}},
    {"x86-64-v4", Family::x86, kSse42 | kAvx2 | kAvx512, {"-march=x86-64-v4"}},
    {"x86-64-v4+bf16",
     Family::x86,
     kSse42 | kAvx2 | kAvx512 | kAvx512Bf16,
     {"-march=x86-64-v4", "-mavx512bf16"}},
    {"x86-64-v4+amx",
     Family::x86,
     kSse42 | kAvx2 | kAvx512 | kAvx512Bf16 | kAmxBf16,
     {"-march=x86-64-v4", "-mavx512bf16", "-mavx512fp16", "-mamx-tile", "-mamx-bf16"}},
    {"armv8", Family::arm, kNeon, {"-march=armv8-a"}},
    {"armv8.2", Family::arm, kNeon | kNeonFp16, {"-march=armv8.2-a+fp16"}},
};

#if defined(__x86_64__)
constexpr bool has(uint32_t word, uint32_t mask) { return (word & mask) == mask; }
constexpr uint32_t bit(int n) { return uint32_t{1} << n; }

// XCR0: the register state the operating system saves.
uint64_t saved_state() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

uint32_t host_features() {
  uint32_t a = 0, b = 0, c = 0, d = 0, found = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT; LAHF is in the extended leaf.
  uint32_t ea = 0, eb = 0, ec = 0, ed = 0;
  __get_cpuid(0x80000001, &ea, &eb, &ec, &ed);
  if (!has(c, bit(0) | bit(9) | bit(13) | bit(19) | bit(20) | bit(23)) || !has(ec, bit(0)))
    return 0;
  found = kSse42;
  if (!has(c, bit(27))) return found;  // OSXSAVE
  const uint64_t state = saved_state();
  uint32_t a7 = 0, b7 = 0, c7 = 0, d7 = 0;
  if (!__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7)) return found;
  // AVX, F16C, FMA, MOVBE; LZCNT; BMI1, AVX2, BMI2.
  const bool avx2 = has(c, bit(28) | bit(29) | bit(12) | bit(22)) && has(ec, bit(5)) &&
                    has(b7, bit(3) | bit(5) | bit(8)) && (state & 6) == 6;
  if (!avx2) return found;
  found |= kAvx2;
  // AVX512 F, DQ, CD, BW, VL.
  if (!has(b7, bit(16) | bit(17) | bit(28) | bit(30) | bit(31)) || (state & 0xe6) != 0xe6)
    return found;
  found |= kAvx512;
  uint32_t a71 = 0, b71 = 0, c71 = 0, d71 = 0;
  if (a7 < 1 || !__get_cpuid_count(7, 1, &a71, &b71, &c71, &d71) || !has(a71, bit(5))) return found;
  found |= kAvx512Bf16;
  // AMX-BF16, AVX512-FP16, AMX-TILE; tile configuration and tile data in XCR0.
  if (has(d7, bit(22) | bit(23) | bit(24)) && (state & 0x60000) == 0x60000 && enable_amx())
    found |= kAmxBf16;
  return found;
}
constexpr Family kHostFamily = Family::x86;
#elif defined(__aarch64__)
uint32_t host_features() {
  constexpr unsigned long kFphp = 1ul << 9, kAsimdhp = 1ul << 10;
  const unsigned long capabilities = getauxval(AT_HWCAP);
  const bool half = (capabilities & kFphp) != 0 && (capabilities & kAsimdhp) != 0;
  return half ? kNeon | kNeonFp16 : kNeon;
}
constexpr Family kHostFamily = Family::arm;
#else
#error "no CPU level describes this processor family"
#endif

bool runs_here(const Level& level) {
  static const uint32_t host = host_features();
  return level.family == kHostFamily && (level.needs & ~host) == 0;
}

const Level* find_level(std::string_view name) {
  if (name.substr(0, 4) == "cpu:") name.remove_prefix(4);
  for (const Level& level : kLevels)
    if (name == level.name) return &level;
  return nullptr;
}

}  // namespace

std::vector<std::string> cpu_levels() {
  std::vector<std::string> names;
  for (const Level& level : kLevels) names.emplace_back(level.name);
  return names;
}

std::string detect_cpu_level() {
  const char* best = kHostFamily == Family::x86 ? "x86-64-v2" : "armv8";
  for (const Level& level : kLevels)
    if (runs_here(level)) best = level.name;
  return best;
}

std::vector<std::string> cpu_level_flags(std::string_view target_name) {
  std::vector<std::string> flags;
  if (const Level* level = find_level(target_name))
    for (const char* flag : level->flags)
      if (flag != nullptr) flags.emplace_back(flag);
  return flags;
}

bool cpu_level_runs_here(std::string_view target_name) {
  const Level* level = find_level(target_name);
  return level != nullptr && runs_here(*level);
}

bool enable_amx() {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace hstu::jit
