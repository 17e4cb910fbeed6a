// SPDX-License-Identifier: Apache-2.0
// Text, digests, environment, log lines.
#include "base/text.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "base/env.hpp"
#include "base/log.hpp"
#include "catch.hpp"

using namespace hstu::jit;

TEST_CASE("SHA-256 answers the published examples") {
  // FIPS 180-4, examples of the standard.
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("a suggestion is near, and none is made from far away") {
  const std::vector<std::string> names{"softmax", "silu", "gfx90a", "gfx942"};
  CHECK(nearest("sofmax", names) == "softmax");
  CHECK(nearest("SILU", names) == "silu");
  CHECK(nearest("gfx924", names) == "gfx942");
  CHECK(nearest("banana", names).empty());
  CHECK(nearest("", names).empty());
  CHECK(nearest(std::string(100000, 'x'), names).empty());
}

TEST_CASE("a printable text is one line of bounded width") {
  CHECK(printable("plain") == "plain");
  CHECK(printable("a\nb\tc\x1b[31m") == "a\\nb\\tc\\x1b[31m");
  CHECK(printable("Grüße") == "Grüße");
  CHECK(printable("\xff\xfe") == "\\xff\\xfe");
  CHECK(printable("\xe2\x80\xae"
                  "abc") == "\\u{202e}abc");     // would turn the line around
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");  // overlong "/"
  CHECK(printable(std::string(60, 'a')) == std::string(60, 'a'));
  CHECK(printable(std::string(61, 'a')) == std::string(57, 'a') + "...");
  CHECK(printable(std::string("\0x", 2)) == "\\x00x");
  CHECK(printable(std::string(100, '\n')).size() <= 60);
}

TEST_CASE("unknown HSTU_JIT_ variables are told with the nearest known name") {
  ::setenv("HSTU_JIT_CAHCE_DIR", "/x", 1);
  ::setenv("HSTU_JIT_CACHE_DIR", "/x", 1);
  const std::vector<std::string> warnings = unknown_environment_warnings();
  ::unsetenv("HSTU_JIT_CAHCE_DIR");
  ::unsetenv("HSTU_JIT_CACHE_DIR");
  bool found = false;
  for (const std::string& line : warnings) {
    CHECK(line.find("HSTU_JIT_CACHE_DIR has no meaning") == std::string::npos);
    if (line.find("HSTU_JIT_CAHCE_DIR") == std::string::npos) continue;
    found = true;
    CHECK_THAT(line, ContainsSubstring("did you mean HSTU_JIT_CACHE_DIR?"));
  }
  CHECK(found);
}

TEST_CASE("an empty variable counts as unset") {
  ::setenv("HSTU_JIT_DUMP", "", 1);
  CHECK_FALSE(get_env("HSTU_JIT_DUMP").has_value());
  ::setenv("HSTU_JIT_DUMP", "/d", 1);
  CHECK(get_env("HSTU_JIT_DUMP") == std::optional<std::string>("/d"));
  ::unsetenv("HSTU_JIT_DUMP");
}

TEST_CASE("log lines obey the level and reach the sink") {
  std::vector<std::string> lines;
  set_log_sink([](LogLevel, std::string_view line,
                  void* user) { static_cast<std::vector<std::string>*>(user)->emplace_back(line); },
               &lines);
  ::setenv("HSTU_JIT_LOG", "info", 1);
  log_warn("one");
  log_info("two");
  log_debug("three");
  ::unsetenv("HSTU_JIT_LOG");
  log_info("four");
  set_log_sink(nullptr, nullptr);
  CHECK(lines == std::vector<std::string>{"one", "two"});
}
