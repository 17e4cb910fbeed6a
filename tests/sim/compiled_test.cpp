// SPDX-License-Identifier: Apache-2.0
// The same kernels by several compilers, run and compared with the host.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "base/file.hpp"
#include "catch.hpp"
#include "gpu.hpp"
#include "object/listing.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

struct Build {
  std::string label, target, object;
};

// Every compiler and target that is here, the kernels compiled once.
const std::vector<Build>& builds() {
  static const std::vector<Build> all = [] {
    const auto source = jit::read_file(HSTU_SIM_KERNELS);
    REQUIRE(source.ok());
    std::vector<Build> list;
    const auto add = [&](const std::string& label, const std::string& target,
                         const std::optional<std::string>& object) {
      const auto disassembler = jit::find_amd_disassembler(target);
      if (!object)
        skip("compiled kernels, " + label, "no such compiler");
      else if (!disassembler)
        skip("compiled kernels, " + label, disassembler.error().message);
      else
        list.push_back({label, target, *object});
    };
    for (const char* target : {"gfx90a", "gfx908"})
      add(std::string("hipRTC ") + target, target, hiprtc_kernel(target, *source));
    const auto clang = [&](const char* target, const char* level, const char* abi) {
      add(fmt::format("clang {} {} v{}", target, level, abi), target,
          clang_kernel(target, *source, {level, std::string("-mcode-object-version=") + abi}));
    };
    clang("gfx90a", "-O3", "5"), clang("gfx90a", "-O0", "4"), clang("gfx942", "-O3", "5");
    clang("gfx942", "-O0", "5"), clang("gfx942", "-O3", "4"), clang("gfx1100", "-O3", "5");
    clang("gfx1100", "-O0", "4"), clang("gfx1201", "-O3", "5");
    return list;
  }();
  return all;
}

void on_each(const std::function<void(Machine&, const Build&)>& test) {
  for (const Build& build : builds()) {
    INFO(build.label);
    Machine machine(build.target);
    test(machine, build);
  }
}

Shape shape(unsigned groups, unsigned threads, unsigned lds = 0) {
  Shape s;
  s.grid[0] = groups, s.block[0] = threads, s.dynamic_lds = lds;
  return s;
}

template <typename T>
std::vector<T> numbers(size_t count, int low, int high, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> pick(low, high);
  std::vector<T> values(count);
  for (T& v : values) v = static_cast<T>(pick(random));
  return values;
}

}  // namespace

TEST_CASE("simulator: compiled saxpy, with threads past the end") {
  const int n = 1000;
  const auto x = numbers<float>(n, -100, 100, 1), y = numbers<float>(1024, -100, 100, 2);
  std::vector<float> want = y;
  for (int i = 0; i < n; ++i) want[static_cast<size_t>(i)] += 2.5f * x[static_cast<size_t>(i)];
  on_each([&](Machine& m, const Build& build) {
    const uint64_t dx = m.upload(x), dy = m.upload(y);
    CHECK(m.launch(build.object, "saxpy", shape(4, 256),
                   Arguments().add(2.5f).add(dx).add(dy).add(n)) == "");
    CHECK(m.download<float>(dy, 1024) == want);
  });
}

TEST_CASE("simulator: compiled reduction, scan and transpose through LDS") {
  const auto x = numbers<float>(1000, -50, 50);
  std::vector<float> sums(4);
  for (size_t i = 0; i < x.size(); ++i) sums[i / 256] += x[i];
  const auto integers = numbers<int>(384, -50, 50);
  std::vector<int> scanned(384);
  for (size_t b = 0; b < 384; b += 128)
    std::partial_sum(integers.begin() + static_cast<long>(b),
                     integers.begin() + static_cast<long>(b) + 128,
                     scanned.begin() + static_cast<long>(b));
  const int width = 37, height = 21;
  std::vector<float> turned(static_cast<size_t>(width * height));
  for (int r = 0; r < height; ++r)
    for (int c = 0; c < width; ++c)
      turned[static_cast<size_t>(c * height + r)] = x[static_cast<size_t>(r * width + c)];
  on_each([&](Machine& m, const Build& build) {
    const uint64_t dx = m.upload(x), di = m.upload(integers);
    const uint64_t out = m.allocate(4096);
    CHECK(m.launch(build.object, "reduce", shape(4, 256), Arguments().add(dx).add(out).add(1000)) ==
          "");
    CHECK(m.download<float>(out, 4) == sums);
    CHECK(m.launch(build.object, "scan", shape(3, 128), Arguments().add(di).add(out)) == "");
    CHECK(m.download<int>(out, 384) == scanned);
    CHECK(m.launch(build.object, "transpose", shape(6, 256),
                   Arguments().add(dx).add(out).add(width).add(height)) == "");
    CHECK(m.download<float>(out, turned.size()) == turned);
  });
}

TEST_CASE("simulator: compiled histogram with atomics") {
  const auto x = numbers<uint32_t>(3000, 0, 1 << 20);
  std::vector<uint32_t> bins(64, 7);
  for (const uint32_t v : x) ++bins[v % 64];
  on_each([&](Machine& m, const Build& build) {
    const uint64_t dx = m.upload(x), db = m.upload(std::vector<uint32_t>(64, 7));
    CHECK(m.launch(build.object, "histogram", shape(12, 256),
                   Arguments().add(dx).add(db).add(3000)) == "");
    CHECK(m.download<uint32_t>(db, 64) == bins);
  });
}

TEST_CASE("simulator: compiled softmax") {
  const int columns = 200, rows = 3;
  std::vector<float> x;
  for (const int v : numbers<int>(static_cast<size_t>(columns * rows), -800, 800))
    x.push_back(static_cast<float>(v) / 100.0f);
  on_each([&](Machine& m, const Build& build) {
    const uint64_t dx = m.upload(x), dy = m.allocate(x.size() * 4);
    CHECK(m.launch(build.object, "softmax", shape(rows, 128),
                   Arguments().add(dx).add(dy).add(columns)) == "");
    const auto y = m.download<float>(dy, x.size());
    double worst = 0;
    for (size_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (size_t c = 0; c < columns; ++c) sum += std::exp(double{x[r * columns + c]});
      for (size_t c = 0; c < columns; ++c) {
        const double want = std::exp(double{x[r * columns + c]}) / sum;
        worst = std::max(worst, std::abs(y[r * columns + c] / want - 1));
      }
    }
    CHECK(worst < 2e-5);
  });
}

TEST_CASE("simulator: compiled division of integers and floats") {
  struct Quotients {
    int quotient, remainder;
    unsigned uquotient, uremainder;
    long long wide_quotient, wide_remainder;
    float ratio;
    int filler;
  };
  auto a = numbers<int>(256, -2147483647, 2147483647, 1), b = numbers<int>(256, -5000, 5000, 2);
  const auto wide = numbers<int>(128, -2147483647, 2147483647, 3);
  std::copy(wide.begin(), wide.end(), b.begin());
  a[0] = 2147483647, b[0] = 1, a[1] = -2147483647, b[1] = -1, a[2] = 5, b[2] = 7, a[3] = 0,
  b[3] = 9;
  for (int& v : b)
    if (v == 0) v = 3;
  on_each([&](Machine& m, const Build& build) {
    const uint64_t da = m.upload(a), db = m.upload(b);
    const uint64_t out = m.allocate(256 * sizeof(Quotients));
    CHECK(m.launch(build.object, "divide", shape(4, 64), Arguments().add(da).add(db).add(out)) ==
          "");
    const auto got = m.download<Quotients>(out, 256);
    int wrong = 0;
    for (size_t i = 0; i < 256; ++i) {
      const long long n = static_cast<long long>(a[i]) * 123456789 + b[i];
      const long long d = static_cast<long long>(b[i]) * 10007 + 1;
      const Quotients& q = got[i];
      const bool same = q.quotient == a[i] / b[i] && q.remainder == a[i] % b[i] &&
                        q.uquotient == static_cast<unsigned>(a[i]) / static_cast<unsigned>(b[i]) &&
                        q.uremainder == static_cast<unsigned>(a[i]) % static_cast<unsigned>(b[i]) &&
                        q.wide_quotient == n / d && q.wide_remainder == n % d &&
                        q.ratio == static_cast<float>(a[i]) / static_cast<float>(b[i]);
      if (same) continue;
      INFO(a[i] << " / " << b[i] << ": " << q.quotient << " " << q.remainder << " " << q.uquotient
                << " " << q.uremainder << " " << q.wide_quotient << " " << q.wide_remainder << " "
                << q.ratio);
      CHECK(same);
      if (++wrong == 3) break;
    }
  });
}

TEST_CASE("simulator: compiled double arithmetic") {
  std::vector<double> a, b;
  std::mt19937_64 random(4);
  for (int i = 0; i < 128; ++i) {
    a.push_back(
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 200) - 150));
    b.push_back(std::ldexp(static_cast<double>(random() >> 11) + 1,
                           static_cast<int>(random() % 200) - 150));
    if (i % 2) a.back() = -a.back();
  }
  a[0] = 0, a[1] = HUGE_VAL, a[2] = 1, b[2] = 3, a[3] = 0x1p-1060, b[3] = 3, a[4] = 1,
  b[4] = 0x1p-1070;
  std::vector<double> want;
  for (size_t i = 0; i < 128; ++i)
    want.insert(want.end(), {a[i] + b[i], a[i] * b[i], a[i] / b[i], std::fma(a[i], b[i], a[i])});
  on_each([&](Machine& m, const Build& build) {
    const uint64_t da = m.upload(a), db = m.upload(b), out = m.allocate(want.size() * 8);
    CHECK(m.launch(build.object, "doubles", shape(2, 64), Arguments().add(da).add(db).add(out)) ==
          "");
    CHECK(m.download<double>(out, want.size()) == want);
  });
}

TEST_CASE("simulator: compiled halves") {
  std::vector<uint16_t> a, b, want;
  for (const int v : numbers<int>(128, 0, 0xffff, 5))
    a.push_back(static_cast<uint16_t>(v & 0xbfff));
  for (const int v : numbers<int>(128, 0, 0xffff, 6))
    b.push_back(static_cast<uint16_t>(v & 0xbfff));
  for (size_t i = 0; i < 128; ++i) {
    want.push_back(static_cast<uint16_t>(from_f16(as_f16(a[i]) * as_f16(b[i]))));
    want.push_back(static_cast<uint16_t>(from_f16(as_f16(a[i]) + as_f16(b[i]))));
  }
  on_each([&](Machine& m, const Build& build) {
    const uint64_t da = m.upload(a), db = m.upload(b), out = m.allocate(want.size() * 2);
    CHECK(m.launch(build.object, "halves", shape(2, 64), Arguments().add(da).add(db).add(out)) ==
          "");
    CHECK(m.download<uint16_t>(out, want.size()) == want);
  });
}

TEST_CASE("simulator: compiled divergence") {
  const auto x = numbers<int>(192, 1, 400);
  std::vector<int> want(192, -77);
  for (size_t i = 0; i < x.size(); ++i) {
    unsigned v = static_cast<unsigned>(x[i]);
    int steps = 0;
    for (; v != 1 && steps < 60; ++steps) v = v % 2 ? 3 * v + 1 : v / 2;
    const int kind = x[i] % 7;
    if (kind == 0) want[i] = steps;
    if (kind == 1) want[i] = -steps;
    if (kind == 2 || kind == 3) {
      want[i] = 3 * steps;
      for (int k = 0; k < x[i] % 5; ++k) want[i] += k == 3 ? 0 : k;
    }
    if (kind == 4 && x[i] <= 50) want[i] = x[i];
    if (kind > 4) want[i] = 1000;
  }
  on_each([&](Machine& m, const Build& build) {
    const uint64_t dx = m.upload(x), out = m.upload(std::vector<int>(192, -77));
    CHECK(m.launch(build.object, "diverge", shape(3, 64), Arguments().add(dx).add(out)) == "");
    CHECK(m.download<int>(out, 192) == want);
  });
}

TEST_CASE("simulator: compiled private arrays and calls") {
  const auto x = numbers<int>(128, 0, 1000), table = numbers<int>(16, -9, 9, 3);
  std::vector<int> arrays, called;
  for (const int v : x) {
    uint32_t buffer[40], sum = 0;
    for (uint32_t k = 0; k < 40; ++k) buffer[k] = k * static_cast<uint32_t>(v);
    for (uint32_t k = 0; k < 100; ++k)
      buffer[(k * 13 + 5) % 40] += buffer[(k * 7 + static_cast<uint32_t>(v)) & 31] + k;
    for (const uint32_t element : buffer) sum = sum * 31 + element;
    arrays.push_back(static_cast<int>(sum));
    int chained = 0;
    for (int k = 0; k < 4; ++k) chained += 2 * (v + k) + table[static_cast<size_t>((v + k) & 15)];
    called.push_back(v % 3 == 0 ? -1 : chained);
  }
  on_each([&](Machine& m, const Build& build) {
    const uint64_t dx = m.upload(x), dt = m.upload(table), out = m.allocate(512);
    CHECK(m.launch(build.object, "local_array", shape(2, 64), Arguments().add(dx).add(out)) == "");
    CHECK(m.download<int>(out, 128) == arrays);
    CHECK(m.launch(build.object, "calls", shape(2, 64), Arguments().add(dx).add(out).add(dt)) ==
          "");
    CHECK(m.download<int>(out, 128) == called);
  });
}

TEST_CASE("simulator: compiled dynamic LDS") {
  const auto x = numbers<int>(5000, -1000, 1000);
  std::vector<int> want(x.rbegin(), x.rend());
  on_each([&](Machine& m, const Build& build) {
    const uint64_t dx = m.upload(x), out = m.allocate(20000);
    const Arguments arguments = Arguments().add(dx).add(out).add(5000);
    CHECK(m.launch(build.object, "dynamic_lds", shape(1, 64, 20000), arguments) == "");
    CHECK(m.download<int>(out, 5000) == want);
    // A byte less than it uses.
    CHECK(m.launch(build.object, "dynamic_lds", shape(1, 64, 19996), arguments) != "");
  });
}

TEST_CASE("simulator: compiled kernels know their place, with both argument layouts") {
  Shape s;
  s.grid[0] = 3, s.grid[1] = 2, s.grid[2] = 2;
  s.block[0] = 5, s.block[1] = 4, s.block[2] = 3;
  std::vector<int> want(720);
  for (int i = 0; i < 720; ++i) want[static_cast<size_t>(i)] = 15 * 1000 + 300 + i;
  on_each([&](Machine& m, const Build& build) {
    const uint64_t out = m.allocate(720 * 4);
    CHECK(m.launch(build.object, "places", s, Arguments().add(out).add(3).add(2)) == "");
    CHECK(m.download<int>(out, 720) == want);
  });
}

}  // namespace hstu::test
