// SPDX-License-Identifier: Apache-2.0
// Bundles somebody made by hand to hurt: refused whole, in one line, before anything is believed.
#include <nlohmann/json.hpp>

#include "base/digest.hpp"
#include "base/temp_dir.hpp"
#include "bundle_helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

using json = nlohmann::ordered_json;
using Bytes = std::string;

// A tar header as POSIX describes ustar, written here a second time on purpose.
Bytes header(const Bytes& name, const Bytes& size_field, char type = '0') {
  Bytes block(512, '\0');
  const auto put = [&](size_t at, const Bytes& text) { block.replace(at, text.size(), text); };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, size_field);
  put(136, "00000000000");
  put(148, "        ");
  block[156] = type;
  put(257, Bytes("ustar\00000", 8));
  put(329, "0000000");
  put(337, "0000000");
  return block;
}

Bytes octal(uint64_t size) {
  char text[16];
  std::snprintf(text, sizeof text, "%011llo", static_cast<unsigned long long>(size));
  return text;
}

// Sets the checksum, as someone who forges a header would.
Bytes summed(Bytes block) {
  block.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char text[8];
  std::snprintf(text, sizeof text, "%06o", sum);
  block.replace(148, 8, Bytes(text) + '\0' + ' ');
  return block;
}

Bytes member(const Bytes& name, const Bytes& content, char type = '0') {
  Bytes bytes = summed(header(name, octal(content.size()), type)) + content;
  bytes.resize((bytes.size() + 511) / 512 * 512, '\0');
  return bytes;
}

const Bytes kEnd(1024, '\0');

void patch(const std::string& path, size_t at, const Bytes& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  REQUIRE(file != nullptr);
  REQUIRE(std::fseek(file, static_cast<long>(at), SEEK_SET) == 0);
  REQUIRE(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
  REQUIRE(std::fclose(file) == 0);
}

struct Hostile {
  hstu::jit::TempDir dir = folder();
  std::string path = dir.path() + "/k.hjb";
  std::vector<Bytes> entries = kernels(3);
  Bytes good;
  std::vector<std::string> names;  // in the order of the archive

  Hostile() {
    REQUIRE(write_bundle(path, entries, notes()).ok());
    good = get(path);
    const Bundle bundle = open_bundle(path);
    for (const BundleEntry& entry : bundle.manifest().entries) {
      names.push_back(entry_name(entry.key));
    }
  }
  // Where the header of member `i` is: 0 is the manifest.
  size_t header_at(size_t i) const {
    const Bytes name = i == 0 ? "manifest.json" : names[i - 1];
    // The manifest names its entries by digests alone, so a name occurs in its header only.
    const size_t at = good.find(name);
    REQUIRE(at % 512 == 0);
    return at;
  }
  void refused(const Bytes& bytes, const std::string& words = "") const {
    put(path, bytes);
    check_unusable(path, words);
  }
  // The good bundle with the header of one member changed and its checksum right again.
  void header_refused(size_t i, size_t at, const Bytes& field, const std::string& words) const {
    Bytes bytes = good;
    const size_t start = header_at(i);
    Bytes block = bytes.substr(start, 512);
    block.replace(at, field.size(), field);
    bytes.replace(start, 512, summed(block));
    refused(bytes, words);
  }
  // An archive of this manifest and the good entries.
  Bytes archive(const Bytes& manifest_bytes) const {
    Bytes bytes = member("manifest.json", manifest_bytes);
    return bytes + good.substr(header_at(1));
  }
  // A manifest that is like the writer's but for the change.
  template <typename Change>
  Bytes changed(Change change) const {
    json copy = json::parse(good.substr(512, good.find('\0', 512) - 512));
    change(copy);
    return copy.dump();
  }
};

}  // namespace

TEST_CASE("the archive made by hand is one, before it is spoiled") {
  const Hostile h;
  put(h.path, h.archive(h.changed([](auto&) {})));
  CHECK(open_bundle(h.path).verify().empty());
  put(h.path, h.archive(h.changed([](auto& m) { m["comment"] = {{"any", {1, {{"x", "y"}}}}}; })));
  CHECK(open_bundle(h.path).verify().empty());  // unknown members are ignored
}

TEST_CASE("members that would lead elsewhere") {
  const Hostile h;
  for (const char* name : {"../../../../etc/cron.d/x", "/etc/passwd", "objects/../../x", "./k",
                           "objects/ab/x.hko", "", "MANIFEST.JSON"}) {
    Bytes field(100, '\0');
    field.replace(0, std::string(name).size(), name);
    h.header_refused(1, 0, field, "is where");
    h.header_refused(0, 0, field, "not a bundle");
  }
  h.header_refused(1, 345, "/etc", "not as bundles have it");  // the prefix of the name
  h.header_refused(1, 157, "/etc/passwd", "not as bundles have it");
}

TEST_CASE("members that are no regular files") {
  const Hostile h;
  const std::pair<char, const char*> kinds[] = {
      {'1', "a hard link"},     {'2', "a symbolic link"}, {'3', "a device"},   {'4', "a device"},
      {'5', "a folder"},        {'6', "a pipe"},          {'x', "a pax"},      {'g', "a pax"},
      {'L', "a GNU long name"}, {'K', "a GNU long name"}, {'S', "a sparse"},   {'7', "unknown"},
      {'\0', "unknown"},        {'M', "unknown"},         {'\xff', "unknown"},
  };
  for (const auto& [type, words] : kinds) {
    h.header_refused(2, 156, Bytes(1, type), words);
    h.header_refused(0, 156, Bytes(1, type), words);
  }
}

TEST_CASE("sizes that are none, or not the manifest's") {
  const Hostile h;
  const Bytes sizes[] = {
      Bytes("77777777777"),
      Bytes("-0000000001"),
      Bytes("00000000000"),
      Bytes("       1234"),
      Bytes("00000001234 "),
      Bytes("0000000000x"),
      Bytes("\x80\0\0\0\0\0\0\0\0\0\4\0", 12),                        // base 256
      Bytes("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12),        // the largest of it
      Bytes("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12),  // less than nothing
  };
  for (const Bytes& size : sizes) {
    h.header_refused(1, 124, size, "does not say");
    h.header_refused(0, 124, size, "");
  }
  h.header_refused(0, 124, octal(kMaxManifest), "cut");
  h.header_refused(0, 124, octal(kMaxManifest + 1), "64 MiB");
  h.header_refused(0, 124, octal(1000), "");
}

TEST_CASE("every byte of the headers is looked at") {
  const Hostile h;
  for (size_t i = 0; i < 2; ++i) {
    const size_t start = h.header_at(i);
    for (size_t at = 0; at < 512; ++at) {
      Bytes block = h.good.substr(start, 512);
      block[at] = static_cast<char>(block[at] ^ 0x10);
      patch(h.path, start, block);
      check_unusable(h.path, "");
      if (at < 148 || at >= 156) {  // and with the checksum of a forger
        patch(h.path, start, summed(block));
        check_unusable(h.path, "");
      }
    }
    patch(h.path, start, h.good.substr(start, 512));
  }
}

TEST_CASE("every byte of the manifest is looked at, and a pin leaves no choice") {
  const Hostile h;
  const std::string digest = hstu::jit::sha256_hex(*open_bundle(h.path).manifest_bytes());
  const size_t end = h.good.find('\0', 512);
  const BundleManifest intact = open_bundle(h.path).manifest();
  size_t refused = 0;
  for (size_t at = 512; at < end; ++at) {
    patch(h.path, at, Bytes(1, static_cast<char>(h.good[at] ^ 1)));
    CHECK_FALSE(Bundle::open(h.path + "@sha256:" + digest).ok());
    const auto bundle = Bundle::open(h.path);
    refused += !bundle.ok();
    // What opens all the same (a letter of a name, a digit of a digest) does not verify, unless the
    // letter was one of the notes.
    if (bundle.ok()) {
      const BundleManifest& m = bundle->manifest();
      const bool a_note = m.producer != intact.producer || m.requested != intact.requested ||
                          m.failed[0].spec != intact.failed[0].spec ||
                          m.failed[0].target != intact.failed[0].target ||
                          m.failed[0].reason != intact.failed[0].reason;
      CHECK(a_note == bundle->verify().empty());
    }
    patch(h.path, at, Bytes(1, h.good[at]));
  }
  CHECK(refused > (end - 512) / 3);
}

TEST_CASE("cut anywhere") {
  const Hostile h;
  for (size_t length = 0; length < h.good.size(); length += 512) {
    h.refused(h.good.substr(0, length));
    h.refused(h.good.substr(0, length + 1));
    h.refused(h.good.substr(0, length + 511));
  }
}

TEST_CASE("more than the manifest says") {
  const Hostile h;
  h.refused(h.good + Bytes(512, '\0'), "bytes, its manifest says");
  h.refused(h.good + "x", "bytes, its manifest says");
  h.refused(h.good + h.good, "bytes, its manifest says");
  const Bytes body = h.good.substr(0, h.good.size() - 1024);
  h.refused(body + member(h.names[0], "again") + kEnd, "bytes, its manifest says");
  h.refused(body + Bytes(512, '\0') + Bytes(512, 'x'), "stray bytes");
  // In the gap after a member.
  Bytes bytes = h.good;
  REQUIRE(bytes[h.header_at(2) - 1] == '\0');
  bytes[h.header_at(2) - 1] = 'x';
  h.refused(bytes, "stray bytes");
  bytes = h.good;
  bytes[h.header_at(1) - 1] = 'x';
  h.refused(bytes, "stray bytes");
}

TEST_CASE("members that come twice, in another order, or not at all") {
  const Hostile h;
  const auto part = [&](size_t i) {
    const size_t end = i == 3 ? h.good.size() - 1024 : h.header_at(i + 1);
    return h.good.substr(h.header_at(i), end - h.header_at(i));
  };
  put(h.path, part(0) + part(1) + part(2) + part(3) + kEnd);
  CHECK(open_bundle(h.path).manifest().entries.size() == 3);
  h.refused(part(0) + part(1) + part(1) + part(3) + kEnd, "is where");
  h.refused(part(0) + part(2) + part(1) + part(3) + kEnd, "is where");
  h.refused(part(0) + part(1) + part(2) + kEnd, "archive ends");
  h.refused(part(1) + part(0) + part(2) + part(3) + kEnd, "not a bundle");
  h.refused(part(1) + part(2) + part(3) + kEnd, "not a bundle");
  h.refused(part(0) + part(0) + part(1) + part(2) + part(3) + kEnd, "is where");
  h.refused(kEnd, "not a bundle");
}

TEST_CASE("manifests that lie about what is there") {
  const Hostile h;
  h.refused(h.archive(h.changed([](auto& m) { m["entries"].erase(1); })), "is where");
  h.refused(h.archive(h.changed([](auto& m) { m["entries"].clear(); })),
            "bytes, its manifest says");
  for (const int by : {-1, 1, 512}) {
    h.refused(h.archive(h.changed([&](auto& m) {
      m["entries"][0]["size"] = m["entries"][0]["size"].template get<int>() + by;
    })),
              "does not say");
  }
  h.refused(h.archive(h.changed([](auto& m) { m["entries"].push_back(m["entries"][2]); })),
            "twice or not in order");
  h.refused(h.archive(h.changed([](auto& m) { std::swap(m["entries"][0], m["entries"][1]); })),
            "twice or not in order");
  h.refused(h.archive(h.changed([](auto& m) {
    auto more = m["entries"][2];
    more["key"] = Bytes(64, 'f');
    m["entries"].push_back(more);
  })),
            "archive ends");
  // Two toolchains that share their first twelve digits share a name.
  h.refused(h.archive(h.changed([](auto& m) {
    auto more = m["entries"][0];
    more["toolchain"] = Bytes(63, 'c') + "d";
    m["entries"].insert(m["entries"].begin() + 1, more);
  })),
            "twice or not in order");

  // Digests, keys and names are lies that show when the entry is asked for.
  const auto lies = [&](const char* name, const json& value, const std::string& words) {
    put(h.path, h.archive(h.changed([&](auto& m) { m["entries"][0][name] = value; })));
    const Bundle bundle = open_bundle(h.path);
    const auto problems = bundle.verify();
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].entry == 0);
    CHECK_THAT(problems[0].reason, ContainsSubstring(words));
    return bundle.lookup(bundle.manifest().entries[0].key, true);
  };
  CHECK(lies("sha256", Bytes(64, '0'), "SHA-256").reason == MissReason::corrupt);
  CHECK(lies("toolchain", Bytes(63, 'c') + "d", "another key").reason == MissReason::corrupt);
  CHECK(lies("target", "gfx1", "another target").hit);
  CHECK(lies("name", "x", "another target or name").hit);
}

TEST_CASE("manifests that are none") {
  const Hostile h;
  const auto refused = [&](const Bytes& text, const std::string& words = "manifest is refused") {
    h.refused(h.archive(text), words);
  };
  for (const char* text : {"", "{}", "[]", "null", "{", "\"x\"", "1", "{\"schema\":1}", "[[", "{}x",
                           "{\"entries\":[]}", "\xff", "{\"schema\":\"hstu-jit/bundle/1\"}"}) {
    refused(text);
  }
  refused(Bytes(100000, '['));
  refused(Bytes(100000, '{'));
  refused("{\"schema\":\"hstu-jit/bundle/1\",\"x\":" + Bytes(1000000, '['), "nested");
  refused("{\"schema\":\"hstu-jit/bundle/1\",\"x\":" + Bytes(100, '[') + Bytes(100, ']') + "}",
          "nested");
  refused(h.changed([](auto& m) { m["schema"] = "hstu-jit/bundle/2"; }), "reads");
  for (const char* name : {"schema", "producer", "entries", "failed", "requested"}) {
    refused(h.changed([&](auto& m) { m.erase(name); }));
    for (const json& value :
         {json(), json(1), json(-1), json(1.5), json(true), json(json::object()),
          json::parse(R"([[["x"]]])"), json::parse(R"({"a": [{"key": 1}]})")}) {
      if (name == Bytes("requested") && value.is_array()) continue;  // any JSON may be requested
      INFO(name << " " << value.dump());
      refused(h.changed([&](auto& m) { m[name] = value; }));
    }
  }
  for (const char* list : {"entries", "failed"}) {
    for (const json& value :
         {json(), json(1), json("x"), json(json::array()), json(json::object())}) {
      INFO(list << " " << value.dump());
      refused(h.changed([&](auto& m) { m[list].push_back(value); }));
    }
    const size_t members = list == Bytes("entries") ? 6 : 3;
    for (size_t i = 0; i < members; ++i) {
      refused(h.changed([&](auto& m) {
        auto& one = m[list][0];
        one.erase(std::next(one.begin(), static_cast<long>(i)).key());
      }));
      for (const json& value : {json(), json(true), json(-5), json(1e300), json(json::array({5})),
                                json::parse(R"({"size": 800})")}) {
        refused(h.changed(
            [&](auto& m) { std::next(m[list][0].begin(), static_cast<long>(i)).value() = value; }));
      }
    }
  }
  const auto entry = [&](const char* name, const json& value, const std::string& words) {
    refused(h.changed([&](auto& m) { m["entries"][0][name] = value; }), words);
  };
  for (const json& value : {json(0), json(95), json(uint64_t{1} << 40), json(UINT64_MAX)}) {
    entry("size", value, "impossible size");
  }
  for (const char* name : {"key", "toolchain", "sha256"}) {
    for (const Bytes& value :
         {Bytes(), Bytes(63, 'a'), Bytes(64, 'A'), Bytes(64, 'g'),
          Bytes("../../../../../../../../../../../../../../../../../../../etc/x")}) {
      entry(name, value, "digest");
    }
  }
  // Repeated members: which one counts is nobody's guess.
  const Bytes text = h.changed([](auto&) {});
  Bytes twice = text;
  twice.insert(twice.find("\"sha256\""), "\"size\":800,\"size\":900,");
  refused(twice, "twice");
  twice = text;
  twice.insert(twice.find("\"entries\""), "\"entries\":[],");
  refused(twice, "twice");
  twice = text;
  twice.insert(1, "\"producer\":\"x\",");
  refused(twice, "first member");
}

TEST_CASE("what other kinds of tar make is refused, not misread") {
  const Hostile h;
  const std::string out = h.dir.path() + "/out";
  fs::create_directory(out);
  output_of({"tar", "xf", h.path, "-C", out, "--no-same-owner"});
  const auto packed = [&](std::vector<std::string> options) {
    std::vector<std::string> argv = {"tar", "-C", out, "-cf", h.path};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.emplace_back("manifest.json");
    argv.insert(argv.end(), h.names.begin(), h.names.end());
    output_of(argv);
  };
  packed({"--format=pax", "--pax-option=comment=x"});
  check_unusable(h.path, "pax extension");
  packed({"--format=gnu"});
  check_unusable(h.path, "ustar");
  packed({"--format=ustar"});  // with this user and the time of today
  check_unusable(h.path, "not as bundles have it");
  packed({"--format=v7"});
  check_unusable(h.path, "ustar");
  packed({"-z"});
  check_unusable(h.path, "not a bundle");
}
