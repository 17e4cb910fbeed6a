// SPDX-License-Identifier: Apache-2.0
// Which compiler serves a target, and the memory of the answer: asking costs a worker and a
// compile, so a warm start only looks at files.
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/fork_mutex.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "compile/client.hpp"
#include "compile/identity.hpp"
#include "compile/locate.hpp"
#include "target/cpu_level.hpp"

namespace hstu::jit {
namespace {

using nlohmann::json;

// Its object stands for what no build id shows, as the header hidden in hipRTC.
constexpr const char* kProbeGpu = R"(#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define HSTU_PROBE extern "C" __global__
#else
#define HSTU_PROBE extern "C" __attribute__((global))
#endif
HSTU_PROBE void hstu_probe(float* p, int n) {
  for (int i = 1; i < n; ++i) p[i] = p[i] * p[i - 1] + 0.5f;
}
)";
constexpr const char* kProbeHost = R"(extern "C" void hstu_probe(float* p, int n) {
  for (int i = 0; i < n; ++i) p[i] = p[i] * p[i] + 0.5f;
}
)";

struct Choice {
  Driver driver;
  std::string library;
};

std::vector<Choice> choices(const Target& target) {
  std::vector<Driver> drivers;
  switch (target.vendor) {
    case Vendor::amd:
      drivers = {Driver::hiprtc, Driver::clang};
      break;
    case Vendor::nvidia:
      drivers = {Driver::nvrtc};
      break;
    case Vendor::cpu:
      drivers = {Driver::host};
      break;
  }
  std::vector<Choice> list;
  for (Driver driver : drivers) {
    for (std::string& library : compiler_candidates(driver)) {
      list.push_back({driver, std::move(library)});
    }
  }
  return list;
}

struct Memo {
  Toolchain toolchain;
  std::vector<std::string> stamps;  // file_stamp of every file the compiler consists of
};

// What was asked: a compiler that appears or disappears asks anew.
std::string question(const Target& target, const std::vector<Choice>& list) {
  std::string text = "hstu-jit/toolchain/1\n" + target.name + "\n";
  for (const Choice& choice : list) {
    text += fmt::format("{} {}", driver_name(choice.driver), choice.library);
    for (const std::string& option : canonical_options(target, choice.driver, CompileOptions{})) {
      text += " " + option;
    }
    text += "\n";
  }
  return sha256_hex(text);
}

bool still_true(const Memo& memo) {
  for (const std::string& stamp : memo.stamps) {
    // Paths may hold spaces: the path is what comes before the last three fields.
    size_t end = stamp.size();
    for (int field = 0; field < 3 && end != std::string::npos; ++field) {
      end = end == 0 ? std::string::npos : stamp.rfind(' ', end - 1);
    }
    if (end == std::string::npos || file_stamp(stamp.substr(0, end)) != stamp) return false;
  }
  return !memo.stamps.empty();
}

std::string encode_memo(const std::string& asked, const Memo& memo) {
  json head{{"question", asked},
            {"driver", driver_name(memo.toolchain.driver)},
            {"library", memo.toolchain.library},
            {"id", memo.toolchain.id},
            {"version", memo.toolchain.version},
            {"stamps", memo.stamps}};
  const std::string text = head.dump(-1, ' ', false, json::error_handler_t::replace);
  return sha256_hex(text) + "\n" + text + "\n";
}

// The library must be one of the choices: a file on disk may not name what is loaded.
std::optional<Memo> decode_memo(const std::string& bytes, const std::string& asked,
                                const std::vector<Choice>& list) {
  if (bytes.size() < 66 || bytes[64] != '\n' || bytes.back() != '\n') return std::nullopt;
  const std::string text = bytes.substr(65, bytes.size() - 66);
  if (sha256_hex(text) != bytes.substr(0, 64)) return std::nullopt;
  const json head = json::parse(text, nullptr, false);
  if (!head.is_object()) return std::nullopt;
  const auto member = [&](const char* name) {
    const auto found = head.find(name);
    return found != head.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  Memo memo;
  memo.toolchain.id = member("id");
  memo.toolchain.version = member("version");
  memo.toolchain.library = member("library");
  const auto stamps = head.find("stamps");
  if (member("question") != asked || memo.toolchain.id.size() != 64 || stamps == head.end() ||
      !stamps->is_array()) {
    return std::nullopt;
  }
  for (const json& stamp : *stamps) {
    if (!stamp.is_string()) return std::nullopt;
    memo.stamps.push_back(stamp.get<std::string>());
  }
  for (const Choice& choice : list) {
    if (choice.library != memo.toolchain.library) continue;
    if (member("driver") != driver_name(choice.driver)) continue;
    memo.toolchain.driver = choice.driver;
    return still_true(memo) ? std::optional<Memo>(std::move(memo)) : std::nullopt;
  }
  return std::nullopt;
}

std::string memo_path(const std::string& state_dir, const std::string& asked) {
  return state_dir.empty()
             ? std::string()
             : fmt::format("{}/v1/toolchains/{}.json", state_dir, asked.substr(0, 32));
}

std::optional<Memo> load_memo(const std::string& path, const std::string& asked,
                              const std::vector<Choice>& list) {
  if (path.empty()) return std::nullopt;
  // Who could plant an identity here would have kernels served as another compiler's.
  const Result<std::string> bytes = read_trusted_file(path, 1 << 20);
  return bytes.ok() ? decode_memo(*bytes, asked, list) : std::nullopt;
}

void save_memo(const std::string& path, const std::string& asked, const Memo& memo) {
  if (path.empty()) return;
  const std::string folder = path.substr(0, path.rfind('/'));
  Status status = make_directories(folder, 0755);
  if (status.ok()) status = replace_file_atomic(path, encode_memo(asked, memo), 0644);
  // Only costs the next start some time.
  if (!status.ok())
    log_debug("the compiler's identity is not remembered: " + status.error().message);
}

// The same within this process, per folder ("": none).
struct Memory {
  ForkMutex mutex;
  std::map<std::string, Memo> memos;
};
Memory& memory() {
  static Memory* instance = new Memory;
  return *instance;
}

Error no_compiler(const Target& target, const std::string& tried, const std::string& advice) {
  return Error{ErrorKind::kCompile,
               fmt::format("no compiler for target {} here{}{}; {}", printable(target.name),
                           tried.empty() ? "" : ": ", tried, advice),
               "", ""};
}

std::string advice(const Target& target, bool have_some) {
  switch (target.vendor) {
    case Vendor::amd:
      if (have_some) {
        return "a newer ROCm or clang with lld is needed (HSTU_JIT_HIPRTC and HSTU_JIT_CLANG name "
               "them)";
      }
      return how_to_get(Driver::hiprtc) + "; or " + how_to_get(Driver::clang);
    case Vendor::nvidia:
      return how_to_get(Driver::nvrtc);
    case Vendor::cpu:
      return how_to_get(Driver::host);
  }
  return {};
}

Result<Memo> ask(const Target& target, const std::vector<Choice>& list) {
  const Result<CompileOptions> limits = compile_options_from_environment();
  if (!limits.ok()) return limits.error();
  if (!compile_in_process()) {  // else each compiler in turn would be blamed for it
    if (Result<std::string> worker = find_worker(); !worker.ok()) return std::move(worker).error();
  }
  std::string tried;
  for (const Choice& choice : list) {
    Job job;
    job.probe = true;
    job.driver = choice.driver;
    job.library = choice.library;
    job.target = target.name;
    job.options = canonical_options(target, choice.driver, CompileOptions{});
    job.source = target.vendor == Vendor::cpu ? kProbeHost : kProbeGpu;
    Call call = call_worker(job, limits->timeout);
    if (call.answered && call.answer.outcome == Outcome::ok) {
      Memo memo;
      std::string identity = std::string(driver_name(choice.driver)) + "\n";
      for (const std::string& part : call.answer.parts) identity += part + "\n";
      identity += sha256_hex(call.answer.object);
      memo.toolchain = {choice.driver, choice.library, sha256_hex(identity), call.answer.version};
      memo.stamps.push_back(file_stamp(choice.library));
      for (const std::string& file : call.answer.files) {
        if (std::string stamp = file_stamp(file); !stamp.empty()) {
          memo.stamps.push_back(std::move(stamp));
        }
      }
      return memo;
    }
    std::string reason = call.answered ? call.answer.message : call.problem;
    if (call.answered && call.answer.outcome == Outcome::diagnostics && !call.answer.log.empty()) {
      reason += " (" + printable(call.answer.log, 200) + ")";
    }
    tried += (tried.empty() ? "" : "; ") + printable(reason, 500);
  }
  return no_compiler(target, tried, advice(target, true));
}

struct Question {
  std::vector<Choice> choices;
  std::string asked;  // digest
  std::string key;    // in the memory
  std::string path;   // of the memo, may be ""
};

Result<Question> question_of(const Target& target, const std::string& state_dir) {
  if (target.vendor == Vendor::cpu && cpu_level_flags(target.name).empty()) {
    return no_compiler(target, "the level is unknown", "hstu-jit targets lists those there are");
  }
  Question made;
  made.choices = choices(target);
  if (made.choices.empty()) return no_compiler(target, "", advice(target, false));
  made.asked = question(target, made.choices);
  made.key = made.asked + state_dir;
  made.path = memo_path(state_dir, made.asked);
  return made;
}

void remember(const Question& question, const Memo& memo) {
  const std::lock_guard<ForkMutex> lock(memory().mutex);
  memory().memos[question.key] = memo;
}

// The files are looked at without the lock.
std::optional<Toolchain> recall(const Question& question) {
  std::optional<Memo> memo;
  {
    const std::lock_guard<ForkMutex> lock(memory().mutex);
    const auto found = memory().memos.find(question.key);
    if (found != memory().memos.end()) memo = found->second;
  }
  if (memo && still_true(*memo)) return std::move(memo->toolchain);
  memo = load_memo(question.path, question.asked, question.choices);
  if (!memo) return std::nullopt;
  remember(question, *memo);
  return std::move(memo->toolchain);
}

}  // namespace

std::optional<Toolchain> remembered_toolchain(const Target& target, const std::string& state_dir) {
  const Result<Question> question = question_of(target, state_dir);
  return question.ok() ? recall(*question) : std::nullopt;
}

bool has_compiler_candidates(const Target& target) { return question_of(target, "").ok(); }

Result<Toolchain> find_toolchain(const Target& target, const std::string& state_dir) {
  const Result<Question> question = question_of(target, state_dir);
  if (!question.ok()) return question.error();
  if (std::optional<Toolchain> known = recall(*question)) return std::move(*known);
  Result<Memo> answer = ask(target, question->choices);
  if (!answer.ok()) return std::move(answer).error();
  save_memo(question->path, question->asked, *answer);
  remember(*question, *answer);
  return answer->toolchain;
}

}  // namespace hstu::jit
