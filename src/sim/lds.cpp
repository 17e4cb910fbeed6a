// SPDX-License-Identifier: Apache-2.0
#include "sim/lds.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "sim/outstanding.hpp"

namespace hstu::jit::sim {
namespace {

constexpr uint8_t kAtomic = 0x80, kArriving = 0x40, kSeveral = 0xff, kPoisonByte = 0xb5;

// Whether a byte that `other` wrote may be used so by wave code `me`.
bool writer_allows(LdsUse how, uint8_t other, uint8_t me) {
  if (other == 0 || other == me || other == (kAtomic | me)) return true;
  return how == LdsUse::atomic && (other & kAtomic) != 0;
}
bool reader_allows(LdsUse how, uint8_t other, uint8_t me) {
  return how == LdsUse::read || other == 0 || other == me;
}

// A word whose every byte is `byte`.
template <typename Word>
constexpr Word filled(uint8_t byte) {
  return static_cast<Word>(static_cast<Word>(~Word{0}) / 0xff * byte);
}

}  // namespace

void Lds::reset(uint32_t bytes) {
  size_ = bytes;
  bytes_.assign(bytes, kPoisonByte);
  writer_.assign(bytes, 0);
  reader_.assign(bytes, 0);
  written_.assign(bytes, 0);
}

void Lds::new_epoch() {
  std::fill(writer_.begin(), writer_.end(), 0);
  std::fill(reader_.begin(), reader_.end(), 0);
}

// Words of 2, 4 or 8 bytes whose bytes were all touched by this wave or by nobody, as nearly all
// are, take one comparison; others go byte by byte.
template <typename Word>
LdsProblem Lds::use_word(LdsUse how, uint32_t at, int wave) {
  const auto me = static_cast<uint8_t>(wave + 1);
  Word writer, reader, written;
  std::memcpy(&writer, &writer_[at], sizeof(Word));
  std::memcpy(&reader, &reader_[at], sizeof(Word));
  const Word mine = filled<Word>(me);
  if (how == LdsUse::read) {
    std::memcpy(&written, &written_[at], sizeof(Word));
    if (written != filled<Word>(0xff)) return LdsProblem::uninitialised;
    if ((writer == 0 || writer == mine) && (reader == 0 || reader == mine)) {
      std::memcpy(&reader_[at], &mine, sizeof(Word));
      return LdsProblem::none;
    }
  } else if (how == LdsUse::write) {
    if ((writer == 0 || writer == mine) && (reader == 0 || reader == mine)) {
      std::memcpy(&writer_[at], &mine, sizeof(Word));
      written = filled<Word>(0xff);
      std::memcpy(&written_[at], &written, sizeof(Word));
      return LdsProblem::none;
    }
  }
  for (uint32_t b = at; b < at + sizeof(Word); ++b) {
    if (how != LdsUse::write && written_[b] == 0) return LdsProblem::uninitialised;
    if (!writer_allows(how, writer_[b], me) || !reader_allows(how, reader_[b], me)) {
      return LdsProblem::race;
    }
    if (how == LdsUse::read) {
      reader_[b] = reader_[b] == 0 || reader_[b] == me ? me : kSeveral;
    } else if (how == LdsUse::write) {
      writer_[b] = me;
    } else {
      const auto code = static_cast<uint8_t>(kAtomic | me);
      if (writer_[b] == 0 || writer_[b] == code) {
        writer_[b] = code;
      } else if (writer_[b] != me) {
        writer_[b] = kSeveral;
      }
    }
    if (how != LdsUse::read) written_[b] = 0xff;
  }
  return LdsProblem::none;
}

LdsProblem Lds::use(LdsUse how, uint64_t address, uint32_t bytes, int wave) {
  if (address > size_ || size_ - address < bytes) return LdsProblem::outside;
  auto at = static_cast<uint32_t>(address);
  LdsProblem problem = LdsProblem::none;
  for (uint32_t left = bytes; left > 0 && problem == LdsProblem::none;) {
    const uint32_t step = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    problem = step == 8   ? use_word<uint64_t>(how, at, wave)
              : step == 4 ? use_word<uint32_t>(how, at, wave)
              : step == 2 ? use_word<uint16_t>(how, at, wave)
                          : use_word<uint8_t>(how, at, wave);
    at += step;
    left -= step;
  }
  return problem;
}

int Lds::conflicting_wave(LdsUse how, uint64_t address, uint32_t bytes, int wave) const {
  const auto me = static_cast<uint8_t>(wave + 1);
  for (uint64_t b = address; b < std::min<uint64_t>(address + bytes, size_); ++b) {
    uint8_t other = 0;
    if (!writer_allows(how, writer_[b], me)) other = writer_[b];
    if (!reader_allows(how, reader_[b], me)) other = reader_[b];
    if (other != 0) return other == kSeveral ? -1 : (other & ~(kAtomic | kArriving)) - 1;
  }
  return -1;
}

void Lds::carry_over(const LdsTouch& touch, int wave) {
  const auto me = static_cast<uint8_t>(wave + 1);
  for (uint64_t left = touch.lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    for (int part = 0; part < (touch.second != 0 ? 2 : 1); ++part) {
      const uint64_t begin = touch.address[lane] + (part == 1 ? touch.second : 0);
      for (uint64_t b = begin; b < std::min<uint64_t>(begin + touch.bytes, size_); ++b) {
        uint8_t& who = touch.write ? writer_[b] : reader_[b];
        const auto code = static_cast<uint8_t>(touch.atomic     ? kAtomic | me
                                               : touch.arriving ? kArriving | me
                                                                : me);
        who = who == 0 || who == code ? code : kSeveral;
      }
    }
  }
}

void Lds::arriving(uint32_t address, uint32_t bytes, int wave) {
  std::memset(&writer_[address], kArriving | (wave + 1), bytes);
}

void Lds::arrived(const LdsTouch& touch, int wave) {
  const auto me = static_cast<uint8_t>(wave + 1), code = static_cast<uint8_t>(kArriving | me);
  for (uint64_t left = touch.lanes; left != 0; left &= left - 1) {
    uint8_t* writer = &writer_[touch.address[std::countr_zero(left)]];
    for (uint32_t b = 0; b < touch.bytes; ++b) writer[b] = writer[b] == code ? me : writer[b];
  }
}

// ---- Banks.

namespace {

// Lane numbers in the order of their phases.
using LaneOrder = std::array<uint8_t, 64>;
constexpr LaneOrder in_sequence() {
  LaneOrder order{};
  for (int i = 0; i < 64; ++i) order[i] = static_cast<uint8_t>(i);
  return order;
}
constexpr LaneOrder interleaved_b128() {
  constexpr uint8_t kHalf[32] = {0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27,
                                 4, 5, 6, 7, 8,  9,  10, 11, 16, 17, 18, 19, 28, 29, 30, 31};
  LaneOrder order{};
  for (int i = 0; i < 64; ++i) order[i] = static_cast<uint8_t>(kHalf[i % 32] + i / 32 * 32);
  return order;
}
constexpr LaneOrder kSequence = in_sequence(), kInterleaved = interleaved_b128();

// The most different words that meet in one bank.
uint32_t worst_bank(const uint32_t* words, int count, uint32_t banks) {
  std::array<uint8_t, 64> load{};
  std::array<std::array<uint32_t, 64>, 64> seen;
  uint32_t worst = 0;
  for (int i = 0; i < count; ++i) {
    const uint32_t bank = words[i] % banks;
    bool known = false;
    for (int k = 0; k < load[bank] && !known; ++k) known = seen[bank][k] == words[i];
    if (known || load[bank] == 64) continue;
    seen[bank][load[bank]++] = words[i];
    worst = std::max<uint32_t>(worst, load[bank]);
  }
  return worst;
}

}  // namespace

LdsPhases count_lds_phases(const uint32_t* address, uint64_t lanes, int width, int bytes,
                           int banks) {
  const int words = std::max(1, bytes / 4);
  // 64 banks serve 128-bit accesses; narrower ones are issued 32 lanes at a time.
  const int group = words == 1 ? 32 : std::max(1, std::min(32, banks / words));
  const LaneOrder& order = words == 4 && banks == 64 && width == 64 ? kInterleaved : kSequence;
  LdsPhases phases;
  for (int first = 0; first < width; first += group) {
    uint64_t busy = 0;
    bool clash = false, any = false;
    for (int i = first; i < std::min(first + group, width); ++i) {
      const int lane = order[i];
      if ((lanes >> lane & 1) == 0) continue;
      any = true;
      const uint32_t bank = address[lane] / 4 % static_cast<uint32_t>(banks);
      uint64_t mask = ((uint64_t{1} << words) - 1) << bank;
      if (bank + words > static_cast<uint32_t>(banks)) mask |= (uint64_t{1} << words) - 1;
      clash = clash || (busy & mask) != 0;
      busy |= mask;
    }
    if (!any) continue;
    ++phases.minimum;
    if (!clash) {
      ++phases.taken;
      continue;
    }
    uint32_t list[32 * 4];
    int count = 0;
    for (int i = first; i < std::min(first + group, width); ++i) {
      const int lane = order[i];
      if ((lanes >> lane & 1) == 0) continue;
      for (int w = 0; w < words && count < 128; ++w) list[count++] = address[lane] / 4 + w;
    }
    phases.taken += worst_bank(list, count, static_cast<uint32_t>(banks));
  }
  return phases;
}

}  // namespace hstu::jit::sim
