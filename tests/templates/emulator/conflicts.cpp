// SPDX-License-Identifier: Apache-2.0
#include "conflicts.hpp"

#include <algorithm>
#include <tuple>

namespace emulator {
namespace {

// Cycles of one access instruction of `count` lanes; the others of the wave are off.
int cycles_of(const Access* lanes, int count, int width, const LdsRecorder& recorder) {
  constexpr int crossed[32] = {0,  1,  2,  3,  8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27,
                               12, 13, 14, 15, 4, 5, 6,  7,  28, 29, 30, 31, 20, 21, 22, 23};
  constexpr int crossed_wide[32] = {0,  1,  2,  3,  16, 17, 18, 19, 20, 21, 22, 23, 4,  5,  6,  7,
                                    24, 25, 26, 27, 8,  9,  10, 11, 12, 13, 14, 15, 28, 29, 30, 31};
  const int phase = recorder.banks * 4 / lanes[0].bytes, words = lanes[0].bytes / 4;
  int cycles = 0;
  std::vector<std::vector<int>> rows(recorder.banks);  // of each bank, in this phase
  for (int first = 0; first < width; first += phase) {
    for (auto& row : rows) row.clear();
    for (int i = 0; i < count; ++i) {
      const int l = lanes[i].lane;
      const int place = recorder.crossed && lanes[i].bytes == 16
                            ? l / 32 * 32 + (recorder.banks == 64 ? crossed_wide : crossed)[l % 32]
                            : l;
      if (place < first || place >= first + phase) continue;
      for (int w = 0; w < words; ++w) {
        const int word = lanes[i].offset / 4 + w;
        auto& row = rows[word % recorder.banks];
        if (std::find(row.begin(), row.end(), word) == row.end()) row.push_back(word);
      }
    }
    size_t most = 1;
    for (const auto& row : rows) most = std::max(most, row.size());
    cycles += static_cast<int>(most);
  }
  return cycles;
}

}  // namespace

void report_accesses(std::vector<Access>& accesses, int width, LdsRecorder& recorder) {
  const auto instruction = [](const Access& a) { return std::tie(a.wave, a.place, a.index); };
  std::sort(accesses.begin(), accesses.end(), [&](const Access& a, const Access& b) {
    return std::tuple_cat(instruction(a), std::tie(a.lane)) <
           std::tuple_cat(instruction(b), std::tie(b.lane));
  });
  for (size_t first = 0, end; first < accesses.size(); first = end) {
    const Access& a = accesses[first];
    for (end = first + 1; end < accesses.size() && instruction(accesses[end]) == instruction(a);)
      ++end;
    recorder.report.phases += width * a.bytes / (recorder.banks * 4);
    recorder.report.cycles += cycles_of(&a, static_cast<int>(end - first), width, recorder);
  }
  accesses.clear();
}

}  // namespace emulator
