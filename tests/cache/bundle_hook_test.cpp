// SPDX-License-Identifier: Apache-2.0
// The operator's verify command: accepts, refuses, hangs, is not there.
#include "cache/bundle_hook.hpp"

#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "base/temp_dir.hpp"
#include "bundle_helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;
using hstu::jit::ErrorKind;

namespace {

struct Signed {
  hstu::jit::TempDir dir = folder();
  std::string path = dir.path() + "/k v.hjb";
  std::string log = dir.path() + "/log";
  Signed() { REQUIRE(write_bundle(path, kernels(2), notes()).ok()); }
  // A program of the operator.
  std::string script(const std::string& name, const std::string& text) const {
    const std::string file = dir.path() + "/" + name;
    REQUIRE(hstu::jit::write_file_atomic(file, "#!/bin/sh\n" + text, 0755).ok());
    return file;
  }
  hstu::jit::Status run(const std::string& command, int timeout_ms = 20000) const {
    return run_verify_command(open_bundle(path), command, timeout_ms);
  }
  void refused(const std::string& command, const std::string& words,
               ErrorKind kind = ErrorKind::kCache, int timeout_ms = 20000) const {
    const auto status = run(command, timeout_ms);
    INFO(command);
    REQUIRE_FALSE(status.ok());
    check_error(status.error(), kind == ErrorKind::kCache ? path : "", words, kind);
  }
};

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("a command is split as a shell would, without one") {
  CHECK(*split_command("a b  c") == Words{"a", "b", "c"});
  CHECK(*split_command(" 'a b' \"c d\" e\\ f ") == Words{"a b", "c d", "e f"});
  CHECK(*split_command(R"(a"b c"'d e')") == Words{"ab cd e"});
  CHECK(*split_command(R"("a\"b\\c\d" '\"' "")") == Words{R"(a"b\c\d)", R"(\")", ""});
  CHECK(*split_command("a;b $(c) `d` | e > f") == Words{"a;b", "$(c)", "`d`", "|", "e", ">", "f"});
  for (const char* bad : {"", "  ", "'a", "\"a", "a\\"}) {
    REQUIRE_FALSE(split_command(bad).ok());
    CHECK(split_command(bad).error().kind == ErrorKind::kUsage);
  }
  // What is put in may hold anything, even what looks like more words or places.
  CHECK(*fill_command("v {manifest} -s {bundle}.sig '{bundle} x' {other}", "/m n",
                      "a {manifest} 'b") ==
        Words{"v", "/m n", "-s", "a {manifest} 'b.sig", "a {manifest} 'b x", "{other}"});
  CHECK_THAT(fill_command("v {bundle}", "/m", "/b").error().message,
             ContainsSubstring("{manifest}"));
}

TEST_CASE("a command that accepts has seen the manifest and nothing is left of it") {
  const Signed s;
  const std::string check =
      s.script("check it.sh", "cat \"$1\" > \"$3\"; echo \"$1\" >> \"$2.seen\"; exit 0\n");
  REQUIRE(s.run("'" + check + "' {manifest} {bundle} '" + s.dir.path() + "/copy of it'").ok());
  CHECK(get(s.dir.path() + "/copy of it") == *open_bundle(s.path).manifest_bytes());
  std::string seen = get(s.path + ".seen");
  seen.pop_back();
  CHECK_FALSE(fs::exists(seen));
  CHECK_FALSE(fs::exists(fs::path(seen).parent_path()));
  // As the tools people have do it.
  const std::string digest = open_bundle(s.path).digest();
  put(s.path + ".sum", digest + "  -\n");
  CHECK(s.run("sh -c 'sha256sum -c \"$2\" < \"$1\"' sh {manifest} {bundle}.sum").ok());
  put(s.path + ".sum", std::string(64, '0') + "  -\n");
  s.refused("sh -c 'sha256sum -c \"$2\" < \"$1\"' sh {manifest} {bundle}.sum", "exit code 1");
}

TEST_CASE("a signature made and checked by openssl") {
  if (!hstu::jit::find_program("openssl")) {
    std::printf("SKIPPED: a signature made and checked by openssl: it is not installed\n");
    return;
  }
  const Signed s;
  const std::string base = s.dir.path() + "/";
  output_of({"openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-out", base + "key"});
  output_of({"openssl", "pkey", "-in", base + "key", "-pubout", "-out", base + "pub"});
  // The manifest as an operator gets at it.
  put(base + "manifest.json", output_of({"tar", "xOf", s.path, "manifest.json"}));
  output_of({"openssl", "dgst", "-sha256", "-sign", base + "key", "-out", s.path + ".sig",
             base + "manifest.json"});
  const std::string command =
      "openssl dgst -sha256 -verify '" + base + "pub' -signature {bundle}.sig {manifest}";
  CHECK(s.run(command).ok());
  // Another bundle under the same signature.
  REQUIRE(write_bundle(s.path, kernels(3), notes()).ok());
  s.refused(command, "exit code 1");
  // Another key.
  output_of({"openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-out", base + "key"});
  output_of({"openssl", "pkey", "-in", base + "key", "-pubout", "-out", base + "pub"});
  REQUIRE(write_bundle(s.path, kernels(2), notes()).ok());
  s.refused(command, "exit code 1");
}

TEST_CASE("commands that refuse, die, flood, hang, or are not there") {
  const Signed s;
  s.refused("false {manifest}", "exit code 1");
  s.refused(s.script("no.sh", "echo fine; echo 'Signature verification failed' >&2; exit 7\n") +
                " {manifest}",
            "exit code 7: Signature verification failed");
  s.refused(s.script("die.sh", "kill -9 $$\n") + " {manifest}", "signal 9");
  s.refused(
      s.script("flood.sh", "head -c 3000000 /dev/zero; printf '\\033[31mred\\n' >&2; exit 3\n") +
          " {manifest}",
      "exit code 3: \\x1b[31mred");
  s.refused("/no/such/program {manifest}", "cannot start");
  s.refused("no-such-program-anywhere {manifest}", "not found on PATH");
  s.refused(s.dir.path() + " {manifest}", "cannot start");
  s.refused("true", "{manifest}", ErrorKind::kUsage);
  s.refused("'true {manifest}", "quote", ErrorKind::kUsage);

  const auto start = std::chrono::steady_clock::now();
  const std::string pid_file = s.dir.path() + "/pid";
  s.refused(s.script("hang.sh", "sleep 300 & echo $! > '" + pid_file + "'; wait\n") + " {manifest}",
            "no answer within 400 ms", ErrorKind::kCache, 400);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  // Nor does what it started live on.
  const std::string pid = get(pid_file);
  bool gone = false;
  for (int i = 0; i < 100 && !gone; ++i) {
    gone = ::kill(std::atoi(pid.c_str()), 0) != 0;
    if (!gone) ::usleep(20000);
  }
  CHECK(gone);
}

TEST_CASE("HSTU_JIT_BUNDLE_VERIFY is asked once for a manifest, and again for another") {
  const Signed s;
  const std::string command = s.script("count.sh", "echo x >> '" + s.log + "'\n") + " {manifest}";
  const Environment environment("HSTU_JIT_BUNDLE_VERIFY", command.c_str());
  for (int i = 0; i < 3; ++i) REQUIRE(open_trusted_bundle(s.path).ok());
  CHECK(get(s.log) == "x\n");
  REQUIRE(write_bundle(s.path, kernels(3), notes()).ok());
  REQUIRE(open_trusted_bundle(s.path).ok());
  CHECK(get(s.log) == "x\nx\n");

  const Environment refusing("HSTU_JIT_BUNDLE_VERIFY", "false {manifest}");
  for (int i = 0; i < 2; ++i) {  // a refusal is not forgotten
    const auto bundle = open_trusted_bundle(s.path);
    REQUIRE_FALSE(bundle.ok());
    check_error(bundle.error(), s.path, "HSTU_JIT_BUNDLE_VERIFY", ErrorKind::kCache);
  }
  const Environment none("HSTU_JIT_BUNDLE_VERIFY", nullptr);
  CHECK(open_trusted_bundle(s.path).ok());
}
