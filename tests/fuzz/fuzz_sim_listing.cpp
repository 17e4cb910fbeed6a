// SPDX-License-Identifier: Apache-2.0
// Any listing decodes to instructions that stay inside the register files, and executing one ends
// well or in a fault of one line. An input is lines of mnemonic number (two bytes) and operands: of
// the bytes of operands those from 0x80 on stand for what disassemblers print, others for
// themselves. The first byte names the machine.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/isa/decode.hpp"
#include "sim/isa/tables.hpp"
#include "sim/workgroup.hpp"

namespace {

using namespace hstu::jit;
using namespace hstu::jit::sim;

void expect(bool holds, const char* what, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s\n", what, text.c_str());
  std::abort();
}

constexpr std::string_view kTokens[] = {", ",
                                        " ",
                                        "v0",
                                        "v1",
                                        "v255",
                                        "v[0:1]",
                                        "v[2:3]",
                                        "v[4:7]",
                                        "v[0:7]",
                                        "v[8:15]",
                                        "v[0:15]",
                                        "v[16:31]",
                                        "v[0:31]",
                                        "v[254:255]",
                                        "v[240:255]",
                                        "v1.l",
                                        "v2.h",
                                        "a0",
                                        "a255",
                                        "a[0:1]",
                                        "a[0:3]",
                                        "a[0:15]",
                                        "a[0:31]",
                                        "a[240:255]",
                                        "a[254:255]",
                                        "s0",
                                        "s2",
                                        "s[0:1]",
                                        "s[4:7]",
                                        "s[8:15]",
                                        "s[16:31]",
                                        "s[100:101]",
                                        "s105",
                                        "ttmp[0:15]",
                                        "ttmp15",
                                        "vcc",
                                        "vcc_lo",
                                        "vcc_hi",
                                        "exec",
                                        "exec_lo",
                                        "m0",
                                        "null",
                                        "scc",
                                        "vccz",
                                        "execz",
                                        "flat_scratch",
                                        "xnack_mask_hi",
                                        "src_shared_base",
                                        "src_private_limit",
                                        "off",
                                        "lds",
                                        "0",
                                        "1",
                                        "-1",
                                        "64",
                                        "0x80000000",
                                        "0xffffffffffffffff",
                                        "1.0",
                                        "-4.0",
                                        "0.15915494",
                                        "nan",
                                        "1e999",
                                        "lit(0x1)",
                                        "lit64(-1)",
                                        "-v1",
                                        "|v1|",
                                        "-|v2|",
                                        "neg(abs(sext(v1)))",
                                        "hwreg(HW_REG_MODE)",
                                        "hwreg(HW_REG_MODE, 4, 2)",
                                        "hwreg(20, 31, 32)",
                                        "sendmsg(MSG_INTERRUPT)",
                                        "vmcnt(0)",
                                        "lgkmcnt(63)",
                                        "expcnt(7)",
                                        " & ",
                                        " :: v_dual_mov_b32 ",
                                        " :: v_dual_add_f32 v1, v2, v3",
                                        " op_sel:[1,0,1,1]",
                                        " op_sel_hi:[0,1,1]",
                                        " neg_lo:[1,1,1]",
                                        " neg_hi:[0,0,1]",
                                        " neg:[1,0,0]",
                                        " clamp",
                                        " mul:2",
                                        " div:2",
                                        " quad_perm:[3,2,1,0]",
                                        " row_shl:15",
                                        " row_shr:1",
                                        " row_ror:255",
                                        " row_bcast:31",
                                        " row_newbcast:15",
                                        " row_share:99",
                                        " row_xmask:15",
                                        " row_mirror",
                                        " wave_shl:1",
                                        " dpp8:[7,6,5,4,3,2,1,0]",
                                        " row_mask:0xf",
                                        " bank_mask:0x5",
                                        " bound_ctrl:1",
                                        " fi:1",
                                        " dst_sel:WORD_1",
                                        " src0_sel:BYTE_3",
                                        " src1_sel:WORD_1",
                                        " dst_unused:UNUSED_PRESERVE",
                                        " cbsz:4",
                                        " abid:15",
                                        " blgp:7",
                                        " offset:4095",
                                        " offset:-4096",
                                        " offset0:255",
                                        " offset1:255",
                                        " offset:swizzle(SWAP,16)",
                                        " offset:swizzle(BITMASK_PERM,\"01pip\")",
                                        " offset:swizzle(QUAD_PERM,3,2,1,0)",
                                        " offset:swizzle(BROADCAST,32,31)",
                                        " offset:swizzle(REVERSE,0)",
                                        " offen",
                                        " idxen",
                                        " glc",
                                        " sc0",
                                        " nt",
                                        " gds",
                                        " tfe",
                                        " th:TH_ATOMIC_RETURN",
                                        " scope:SCOPE_SYS",
                                        " bitop3:0xff",
                                        " byte_sel:3"};
static_assert(std::size(kTokens) <= 128);

const std::vector<std::string_view>& mnemonics() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> list = {"", "v_dual_mov_b32", "v_dual_fmac_f32", "s_code_end"};
    for (const auto table :
         {scalar_opcodes(), scalar_memory_opcodes(), vector_float_opcodes(),
          vector_integer_opcodes(), vector_compare_opcodes(), vector_packed_opcodes(),
          cross_lane_opcodes(), matrix_opcodes(), memory_opcodes(), lds_opcodes()}) {
      for (const Opcode& opcode : table) list.push_back(opcode.mnemonic);
    }
    return list;
  }();
  return all;
}

Listing read_listing(std::string_view text) {
  Listing listing;
  while (text.size() >= 2 && listing.instructions.size() < 32) {
    ListedInstruction line;
    line.address = 8 * listing.instructions.size();
    line.bytes = 8;
    const size_t number = static_cast<uint8_t>(text[0]) | static_cast<uint8_t>(text[1]) << 8;
    line.mnemonic = mnemonics()[number % mnemonics().size()];
    text.remove_prefix(2);
    while (!text.empty() && text[0] != '\n' && line.operands.size() < 400) {
      const auto byte = static_cast<uint8_t>(text[0]);
      if (byte < 0x80) {
        line.operands += text[0];
      } else {
        line.operands += kTokens[(byte - 0x80) % std::size(kTokens)];
      }
      text.remove_prefix(1);
    }
    if (!text.empty()) text.remove_prefix(1);
    // A mnemonic of the input's own.
    if (line.mnemonic.empty()) {
      line.mnemonic = line.operands.substr(0, line.operands.find(' '));
      line.operands.erase(0, line.mnemonic.size() + 1);
    }
    listing.instructions.push_back(std::move(line));
  }
  return listing;
}

void check(const Instruction& i, size_t lines) {
  expect(i.opcode != nullptr && i.execute != nullptr, "cannot be executed", i.text);
  expect(i.operands <= std::size(i.operand), "too many operands", i.text);
  expect(i.target < lines, "branches out of the listing", i.text);
  for (int o = 0; o < i.operands; ++o) {
    const Operand& operand = i.operand[o];
    const int last = operand.index + operand.registers;
    if (operand.kind == OperandKind::vector) expect(last <= kVectorRegisters, "register", i.text);
    if (operand.kind == OperandKind::scalar) expect(last <= kScalarRegisters, "register", i.text);
  }
  if (i.second) check(*i.second, lines);
}

// One workgroup of two waves, one of which executes.
struct Bench {
  KernelEntry kernel;
  Dispatch dispatch;
  Tally tally{0};
  std::unique_ptr<Workgroup> group;
  std::unique_ptr<Wave> wave;
  Row addresses{};

  explicit Bench(const Machine& machine) {
    kernel.wave_width = machine.cdna() ? 64 : 32;
    kernel.scratch_bytes = 64;
    dispatch.code = Code::empty(machine);
    dispatch.kernel = &kernel;
    dispatch.grid = {1, 1, 1};
    dispatch.block = {2 * static_cast<uint32_t>(kernel.wave_width), 1, 1};
    group = std::make_unique<Workgroup>(dispatch, tally);
    group->lds().reset(4096);
    wave = std::make_unique<Wave>(*group, 0, kernel.wave_width);
    for (int l = 0; l < kernel.wave_width; ++l) addresses.lane[l] = static_cast<uint32_t>(l * 4);
  }
  void execute(const std::vector<Instruction>& code) {
    wave->reset(0x5555ffffffffu, 0xf0, {32, 32, 106});
    // Addresses and numbers in the registers that operands mostly name.
    for (int r = 0; r < 16; ++r) wave->preset_vector(r) = addresses;
    for (int r = 0; r < kVcc; ++r) wave->preset_scalar(r, static_cast<uint32_t>(r * 4));
    for (const Instruction& i : code) {
      wave->set_current(i);
      i.execute(*wave, i);
      if (!wave->failed()) continue;
      expect(!wave->fault().empty() && wave->fault().find('\n') == std::string::npos,
             "a fault that is not one line", i.text);
      return;
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static std::vector<std::unique_ptr<Bench>> benches;
  if (benches.empty()) {
    for (const Machine& machine : machines()) benches.push_back(std::make_unique<Bench>(machine));
  }
  const size_t which = data[0] % machines().size();
  const Listing listing = read_listing({reinterpret_cast<const char*>(data) + 1, size - 1});
  const std::vector<Instruction> code = decode(listing, machines()[which]);
  expect(code.size() == listing.instructions.size(), "lines were lost", "");
  for (const Instruction& i : code) check(i, code.size());
  benches[which]->execute(code);
  return 0;
}
