// SPDX-License-Identifier: Apache-2.0
#include "probe.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>

#include "catch.hpp"
#include "gpu.hpp"
#include "object/listing.hpp"

namespace hstu::test {
namespace {

constexpr int kFirstInput = 8, kFirstOutput = 64;
constexpr int kMemoryBytes = 65536;  // per workgroup
constexpr int kLdsBytes = 8192;

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

std::string wait_text(const std::string& target) {
  if (is_gfx12(target)) {
    return "s_wait_loadcnt 0x0\n  s_wait_dscnt 0x0\n  s_wait_kmcnt 0x0\n  s_wait_storecnt 0x0";
  }
  if (is_wave32(target)) {
    return "s_waitcnt vmcnt(0) lgkmcnt(0)\n  s_waitcnt_vscnt null, 0x0";
  }
  return "s_waitcnt vmcnt(0) lgkmcnt(0)";
}

std::string expand(std::string code, const std::string& target) {
  const bool wave32 = is_wave32(target);
  replace_all(code, "$wait", wait_text(target));
  replace_all(code, "$vcc", wave32 ? "vcc_lo" : "vcc");
  replace_all(code, "$exec", wave32 ? "exec_lo" : "exec");
  for (int n = 20; n < 40; n += 2)
    replace_all(code, fmt::format("$m{}", n),
                wave32 ? fmt::format("s{}", n) : fmt::format("s[{}:{}]", n, n + 1));
  replace_all(code, "; ", "\n  ");
  return code;
}

int registers_of(In kind) {
  return kind == In::u64 || kind == In::f64 || kind == In::f64_q ? 2 : 1;
}

int registers_of(const Probe& probe) {
  int count = 0;
  for (const In kind : probe.in) count += registers_of(kind);
  return count;
}

// Steps of at most eight registers, so that offsets stay small on every target.
std::string transfer(const std::string& instruction, bool store, int first, int count, int width,
                     int base) {
  std::string text;
  for (int k = 0; k < count; ++k) {
    if (k > 0 && k % 8 == 0)
      text += fmt::format("  s_add_u32 s{0}, s{0}, {2}\n  s_addc_u32 s{1}, s{1}, 0\n", base,
                          base + 1, 8 * width * 4);
    const int offset = k % 8 * width * 4;
    text += store ? fmt::format("  {} v1, v{}, s[{}:{}] offset:{}\n", instruction, first + k, base,
                                base + 1, offset)
                  : fmt::format("  {} v{}, v1, s[{}:{}] offset:{}\n", instruction, first + k, base,
                                base + 1, offset);
  }
  const int rest = count == 0 ? 0 : count - (count - 1) / 8 * 8;
  if (rest > 0)
    text += fmt::format("  s_add_u32 s{0}, s{0}, {2}\n  s_addc_u32 s{1}, s{1}, 0\n", base, base + 1,
                        rest * width * 4);
  return text;
}

std::string body_of(const std::string& target, const std::vector<const Probe*>& probes,
                    size_t in_bytes, size_t out_bytes) {
  const int width = is_wave32(target) ? 32 : 64;
  const std::string workgroup = is_gfx12(target) ? "ttmp9" : "s2";
  const std::string wait = "  " + wait_text(target) + "\n";
  std::string text =
      fmt::format(R"(  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[10:11], s[0:1], 0x10
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
{}  s_mul_i32 s8, {}, {}
  s_add_u32 s4, s4, s8
  s_addc_u32 s5, s5, 0
  s_mul_i32 s8, {}, {}
  s_add_u32 s6, s6, s8
  s_addc_u32 s7, s7, 0
  s_mul_i32 s8, {}, {}
  s_add_u32 s10, s10, s8
  s_addc_u32 s11, s11, 0
)",
                  wait, workgroup, in_bytes, workgroup, out_bytes, workgroup, kMemoryBytes);
  for (const Probe* probe : probes) {
    text += transfer("global_load_dword", false, kFirstInput, registers_of(*probe), width, 4);
    for (int k = 0; k < probe->out; ++k)
      text += fmt::format("  v_mov_b32 v{}, 0x{:x}\n", kFirstOutput + k, kUntouched);
    text += wait + "  " + expand(probe->code, target) + "\n";
    text += width == 32 ? "  s_mov_b32 exec_lo, -1\n" : "  s_mov_b64 exec, -1\n";
    text += wait;
    text += transfer("global_store_dword", true, kFirstOutput, probe->out, width, 6);
  }
  return text;
}

template <typename T>
uint32_t bits_of(T value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

constexpr uint32_t kF32[] = {
    0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x3f000000, 0xbfc00000, 0x40200000, 0x40490fdb,
    0xc02aaaab, 0x00000001, 0x80400000, 0x00800000, 0x80800001, 0x7f7fffff, 0xff7fffff, 0x7f800000,
    0xff800000, 0x4f000000, 0xcf000000, 0x4f800000, 0x477fe000, 0x477ff000, 0x33800000, 0x5f3504f3,
    0x1f800001, 0x3effffff, 0x4effffff, 0x7fc00000, 0xffc12345, 0x7fa00001};
constexpr int kF32NaNs = 3, kF32Signalling = 1;  // at the end of the list
constexpr uint16_t kF16[] = {0x0000, 0x8000, 0x3c00, 0xbc00, 0x3800, 0xbe00, 0x4100, 0x4248,
                             0xc155, 0x0001, 0x83ff, 0x0400, 0x8401, 0x7bff, 0xfbff, 0x7c00,
                             0xfc00, 0x2e66, 0x5640, 0x6800, 0x7e00, 0xfe12, 0x7d01};
constexpr int kF16NaNs = 3, kF16Signalling = 1;
constexpr uint64_t kF64[] = {
    0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000, 0xbff0000000000000,
    0x3fe0000000000000, 0x400921fb54442d18, 0xc005555555555555, 0x0000000000000001,
    0x800fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0x7ff0000000000000,
    0xfff0000000000000, 0x41dfffffffc00000, 0xc1e0000000000000, 0x47efffffe0000000,
    0x3690000000000000, 0x7ff8000000000000, 0x7ff4000000000001};
constexpr int kF64NaNs = 2, kF64Signalling = 1;
constexpr uint32_t kU32[] = {0,          1,          2,          0xffffffff, 0x80000000,
                             0x7fffffff, 0x80000001, 0x0000ffff, 0xffff0000, 0x00010000,
                             0x0000001f, 0x00000020, 0x00000021, 0x0000003f, 0x12345678,
                             0x89abcdef, 0xaaaaaaaa, 0x000000ff};

template <typename T, size_t N>
T pick(const T (&list)[N], std::mt19937& random, int leave_out = 0) {
  return list[random() % (N - static_cast<size_t>(leave_out))];
}

uint32_t random_f32(std::mt19937& random) {
  // Magnitudes around 1, now and then far from it.
  const int exponent = random() % 8 == 0 ? static_cast<int>(random() % 254) + 1
                                         : 127 + static_cast<int>(random() % 17) - 8;
  return (random() & 0x807fffffu) | static_cast<uint32_t>(exponent) << 23;
}

uint16_t random_f16(std::mt19937& random) {
  const uint32_t exponent = 10 + random() % 12;
  return static_cast<uint16_t>((random() & 0x83ffu) | exponent << 10);
}

void fill(Wave& wave, const std::vector<In>& kinds, std::mt19937& random) {
  for (const In kind : kinds) {
    for (int r = 0; r < registers_of(kind); ++r) wave.in.emplace_back(Lanes{});
    Lanes& low = wave.in[wave.in.size() - static_cast<size_t>(registers_of(kind))];
    Lanes& high = wave.in.back();
    for (int lane = 0; lane < wave.width; ++lane) {
      const bool special = random() % 4 != 0;
      const size_t l = static_cast<size_t>(lane);
      const int f32_out = kind == In::f32_n ? kF32NaNs : kind == In::f32_q ? kF32Signalling : 0;
      const int f16_out = kind == In::f16_n ? kF16NaNs : kind == In::f16_q ? kF16Signalling : 0;
      switch (kind) {
        case In::u32:
          low[l] = special ? pick(kU32, random) : random();
          break;
        case In::u64:
          low[l] = special ? pick(kU32, random) : random();
          high[l] = special ? pick(kU32, random) : random();
          break;
        case In::f32:
        case In::f32_q:
        case In::f32_n:
          low[l] = special ? pick(kF32, random, f32_out) : random_f32(random);
          break;
        case In::f16:
        case In::f16_q:
        case In::f16_n: {
          uint32_t value = 0;
          for (int half = 0; half < 2; ++half) {
            const bool from_list = random() % 4 != 0;
            value |=
                static_cast<uint32_t>(from_list ? pick(kF16, random, f16_out) : random_f16(random))
                << 16 * half;
          }
          low[l] = value;
          break;
        }
        case In::f32_m:
          do {
            low[l] = special ? pick(kF32, random) : random_f32(random);
          } while ((low[l] & 0x7f800000) == 0 && (low[l] & 0x7fffff) != 0);
          break;
        case In::f64:
        case In::f64_q: {
          uint64_t value = pick(kF64, random, kind == In::f64_q ? kF64Signalling : 0);
          if (!special) {
            value = (uint64_t{random()} << 32 | random()) & 0x800fffffffffffffull;
            value |= uint64_t{1000 + random() % 48} << 52;
          }
          low[l] = static_cast<uint32_t>(value);
          high[l] = static_cast<uint32_t>(value >> 32);
          break;
        }
        case In::unit:  // [-1, 1)
          low[l] = bits_of(static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f);
          break;
        case In::lane:
          low[l] = static_cast<uint32_t>(lane);
          break;
      }
    }
  }
}

std::string registers_text(const std::vector<Lanes>& registers, int lane) {
  std::string text;
  for (size_t k = 0; k < registers.size() && k < 10; ++k)
    text += fmt::format(" {:08x}", registers[k][static_cast<size_t>(lane)]);
  return text;
}

// What one launch of `probes` gave: a fault, or one text per probe, empty where all is right.
struct Outcome {
  std::string fault;
  std::vector<std::string> wrong;
};

class Runner {
 public:
  Runner(std::string target, KernelForm form) : target_(std::move(target)), form_(form) {
    form_.lds = kLdsBytes;
    width_ = is_wave32(target_) ? 32 : 64;
  }

  Outcome run(const std::vector<const Probe*>& probes) {
    Outcome outcome;
    std::vector<std::vector<Wave>> waves;  // per probe, per workgroup
    size_t in_words = 0, out_words = 0;
    for (const Probe* probe : probes) {
      waves.push_back(prepare(*probe));
      in_words += static_cast<size_t>(registers_of(*probe) * width_);
      out_words += static_cast<size_t>(probe->out * width_);
    }
    const auto object =
        assemble(target_, body_of(target_, probes, in_words * 4, out_words * 4), form_);
    REQUIRE(object.has_value());

    Machine machine(target_);
    std::vector<uint32_t> input(in_words * kWorkgroups);
    size_t at = 0;
    for (int group = 0; group < kWorkgroups; ++group)
      for (const auto& probe_waves : waves)
        for (const Lanes& lanes : probe_waves[static_cast<size_t>(group)].in)
          for (int lane = 0; lane < width_; ++lane) input[at++] = lanes[static_cast<size_t>(lane)];
    if (input.empty()) input.resize(1);
    const uint64_t in = machine.upload(input);
    const uint64_t out = machine.upload(std::vector<uint32_t>(out_words * kWorkgroups, 0x55555555));
    const uint64_t memory =
        machine.upload(std::vector<uint8_t>(static_cast<size_t>(kMemoryBytes * kWorkgroups)));
    Shape shape;
    shape.grid[0] = kWorkgroups;
    shape.block[0] = static_cast<unsigned>(width_);
    outcome.fault =
        machine.launch(*object, "probe", shape, Arguments().add(in).add(out).add(memory));
    if (!outcome.fault.empty()) return outcome;

    const auto output = machine.download<uint32_t>(out, out_words * kWorkgroups);
    outcome.wrong.resize(probes.size());
    at = 0;
    for (int group = 0; group < kWorkgroups; ++group)
      for (size_t p = 0; p < probes.size(); ++p) {
        const Wave& wave = waves[p][static_cast<size_t>(group)];
        std::vector<Lanes> got(wave.out.size());
        for (Lanes& lanes : got)
          for (int lane = 0; lane < width_; ++lane) lanes[static_cast<size_t>(lane)] = output[at++];
        if (outcome.wrong[p].empty()) outcome.wrong[p] = difference(*probes[p], wave, got);
      }
    return outcome;
  }

 private:
  std::vector<Wave> prepare(const Probe& probe) const {
    std::mt19937 random(static_cast<uint32_t>(probe.code.size()) * 7919u + 1u);
    std::vector<Wave> waves;
    for (int group = 0; group < kWorkgroups; ++group) {
      Wave& wave = waves.emplace_back();
      wave.width = width_;
      wave.workgroup = group;
      fill(wave, probe.in, random);
      Lanes untouched;
      untouched.fill(kUntouched);
      wave.out.assign(static_cast<size_t>(probe.out), untouched);
      probe.expect(wave);
    }
    return waves;
  }

  std::string difference(const Probe& probe, const Wave& wave, const std::vector<Lanes>& got) {
    for (int lane = 0; lane < width_; ++lane)
      for (size_t k = 0; k < got.size(); ++k) {
        const size_t l = static_cast<size_t>(lane);
        if (probe.same(got[k][l], wave.out[k][l])) continue;
        return fmt::format("workgroup {} lane {} output {}: in{} gave{} and must give{}",
                           wave.workgroup, lane, k, registers_text(wave.in, lane),
                           registers_text(got, lane), registers_text(wave.out, lane));
      }
    return "";
  }

  std::string target_;
  KernelForm form_;
  int width_ = 64;
};

using Tell = std::function<void(const Probe&, const std::string& wrong)>;

// Together, or when that is a fault in halves, until each faulty probe is alone.
void run_halves(Runner& runner, const std::vector<const Probe*>& probes, int& launches,
                const Tell& tell) {
  constexpr int kMostLaunches = 100;
  const Outcome outcome = runner.run(probes);
  if (outcome.fault.empty() || probes.size() == 1 || ++launches > kMostLaunches) {
    for (size_t p = 0; p < probes.size(); ++p)
      tell(*probes[p], outcome.fault.empty() ? outcome.wrong[p] : outcome.fault);
    return;
  }
  const auto middle = probes.begin() + static_cast<std::ptrdiff_t>(probes.size() / 2);
  run_halves(runner, {probes.begin(), middle}, launches, tell);
  run_halves(runner, {middle, probes.end()}, launches, tell);
}

float f32(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace

bool same_bits(uint32_t got, uint32_t want) { return got == want; }

bool same_f32(uint32_t got, uint32_t want) {
  return got == want || (std::isnan(f32(got)) && std::isnan(f32(want)));
}

bool same_f16x2(uint32_t got, uint32_t want) {
  const auto nan = [](uint32_t h) { return (h & 0x7fff) > 0x7c00; };
  for (const int shift : {0, 16}) {
    const uint32_t g = got >> shift & 0xffff, w = want >> shift & 0xffff;
    if (g != w && !(nan(g) && nan(w))) return false;
  }
  return true;
}

bool near_f32(uint32_t got, uint32_t want) {
  if (same_f32(got, want)) return true;
  const float g = f32(got), w = f32(want);
  if (std::abs(w) < 0x1p-126f && std::abs(g) < 0x1p-126f) return true;
  if (std::signbit(g) != std::signbit(w)) return false;
  return std::abs(static_cast<int64_t>(got) - static_cast<int64_t>(want)) <= 2;
}

bool rough_f32(uint32_t got, uint32_t want) {
  if (same_f32(got, want)) return true;
  const float g = f32(got), w = f32(want);
  return std::abs(g - w) <= std::max(1e-5f, std::abs(w) * 0x1p-12f);
}

std::function<void(Wave&)> lanewise(std::function<void(const uint32_t*, uint32_t*)> f) {
  return [f = std::move(f)](Wave& wave) {
    std::vector<uint32_t> in(wave.in.size()), out(wave.out.size());
    for (size_t lane = 0; lane < static_cast<size_t>(wave.width); ++lane) {
      for (size_t k = 0; k < in.size(); ++k) in[k] = wave.in[k][lane];
      for (size_t k = 0; k < out.size(); ++k) out[k] = wave.out[k][lane];
      f(in.data(), out.data());
      for (size_t k = 0; k < out.size(); ++k) wave.out[k][lane] = out[k];
    }
  };
}

std::function<void(Wave&)> each(std::function<uint32_t(const uint32_t*)> f) {
  return lanewise([f = std::move(f)](const uint32_t* in, uint32_t* out) { out[0] = f(in); });
}

Probe table(const std::string& code, std::vector<Row> rows, Same same) {
  Probe probe;
  probe.code = code;
  probe.in.assign(rows[0].in.size(), In::u32);
  probe.out = static_cast<int>(rows[0].out.size());
  probe.same = same;
  probe.expect = [rows = std::move(rows)](Wave& wave) {
    for (int lane = 0; lane < wave.width; ++lane) {
      const Row& row = rows[static_cast<size_t>(wave.tuple(lane)) % rows.size()];
      for (size_t k = 0; k < row.in.size(); ++k) wave.in[k][static_cast<size_t>(lane)] = row.in[k];
      for (size_t k = 0; k < row.out.size(); ++k)
        wave.out[k][static_cast<size_t>(lane)] = row.out[k];
    }
  };
  return probe;
}

bool can_probe(const std::string& target, const std::string& test) {
  static std::map<std::string, std::string> reasons;
  const auto known = reasons.find(target);
  if (known == reasons.end()) {
    std::string& reason = reasons[target];
    const auto disassembler = jit::find_amd_disassembler(target);
    if (!disassembler) reason = disassembler.error().message;
    if (!assemble(target, "", KernelForm())) reason = "no assembler (clang-19)";
  }
  if (reasons[target].empty()) return true;
  skip(test + " on " + target, reasons[target]);
  return false;
}

std::vector<std::string> wrong_probes(const std::string& target, const std::vector<Probe>& probes,
                                      KernelForm form) {
  REQUIRE_FALSE(probes.empty());
  std::vector<const Probe*> all;
  for (const Probe& probe : probes) all.push_back(&probe);
  Runner runner(target, form);
  int launches = 0;
  std::vector<std::string> texts;
  run_halves(runner, all, launches, [&](const Probe& probe, const std::string& wrong) {
    if (!wrong.empty())
      texts.push_back(
          fmt::format("{}: {}: {}", target, probe.name.empty() ? probe.code : probe.name, wrong));
  });
  return texts;
}

void run_probes(const std::string& target, const std::vector<Probe>& probes, KernelForm form) {
  const std::vector<std::string> texts = wrong_probes(target, probes, form);
  for (const std::string& text : texts) CHECK(text == "");
  CHECK(texts.size() < probes.size());
}

}  // namespace hstu::test
