// SPDX-License-Identifier: Apache-2.0
// What goes into a bundle comes out; other programs agree on what it is.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/temp_dir.hpp"
#include "bundle_helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;
using nlohmann::json;

namespace {

// Bundles of these entries, in a folder that lives as long as this.
struct Place {
  hstu::jit::TempDir dir = folder();
  std::string path(const std::string& name) const { return dir.path() + "/" + name; }
  std::string make(const std::string& name, const std::vector<std::string>& entries,
                   const BundleNotes& with = notes()) const {
    const auto digest = write_bundle(path(name), entries, with);
    if (!digest.ok()) FAIL(digest.error().message);
    CHECK(*digest == open_bundle(path(name)).digest());
    return path(name);
  }
};

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> list;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) list.push_back(line);
  return list;
}

}  // namespace

TEST_CASE("a bundle answers for what was put into it") {
  const Place place;
  const Bundle bundle = open_bundle(place.make("k.hjb", kernels(5)));
  CHECK(bundle.path() == place.path("k.hjb"));
  CHECK(bundle.manifest().producer == "test 1");
  REQUIRE(bundle.manifest().entries.size() == 5);
  CHECK(bundle.manifest().requested.size() == 2);
  CHECK(json::parse(bundle.manifest().requested[0])["spec"]["heads"] == 2);
  REQUIRE(bundle.manifest().failed.size() == 1);
  CHECK(bundle.manifest().failed[0].spec == "ranking/large");
  CHECK(bundle.manifest().failed[0].reason == "no compiler\\nfor it");
  CHECK(bundle.verify().empty());
  for (int i = 0; i < 5; ++i) {
    const Artifact in = kernel(i);
    const Lookup found = bundle.lookup(in.key, false);
    REQUIRE(found.hit);
    CHECK(found.artifact.payload == in.payload);
    CHECK(found.artifact.metadata == in.metadata);
    CHECK(found.artifact.ingredients == in.ingredients);
  }
  const Lookup none = bundle.lookup(kernel(9).key, true);
  CHECK_FALSE(none.hit);
  CHECK(none.reason == MissReason::absent);
  CHECK_THAT(none.explanation, ContainsSubstring("k.hjb"));
  CHECK_FALSE(bundle.lookup({"", ""}, true).hit);
  CHECK_FALSE(bundle.lookup({kernel(0).key.request, "../../../../etc/passwd"}, true).hit);
}

TEST_CASE("other toolchains answer when they may") {
  const Place place;
  const Bundle bundle =
      open_bundle(place.make("k.hjb", {encoded(kernel(1, 'a')), encoded(kernel(1, 'b', 900))}));
  const std::string request = kernel(1).key.request;
  CHECK(bundle.lookup({request, std::string(64, 'b')}, true).artifact.payload.size() == 901);
  CHECK(bundle.lookup({request, std::string(64, 'b')}, true).explanation.empty());
  const Lookup other = bundle.lookup({request, std::string(64, 'd')}, true);
  CHECK(other.hit);
  CHECK(other.explanation == "made by another toolchain");
  CHECK(bundle.lookup({request, ""}, true).hit);
  CHECK(bundle.lookup({request, std::string(64, 'd')}, false).reason == MissReason::toolchain);
}

TEST_CASE("tar and sha256sum read a bundle, and tar writes the same bytes") {
  const Place place;
  std::vector<std::string> entries = kernels(4);
  const std::string path = place.make("k.hjb", entries);
  const Bundle bundle = open_bundle(path);

  std::vector<std::string> names = lines(output_of({"tar", "tf", path}));
  REQUIRE(names.size() == 5);
  CHECK(names[0] == "manifest.json");
  CHECK(std::is_sorted(names.begin() + 1, names.end()));
  const std::string verbose = output_of({"tar", "tvf", path, "--numeric-owner", "--utc"});
  for (const std::string& line : lines(verbose)) {
    CHECK(line.rfind("-rw-r--r-- 0/0 ", 0) == 0);
    CHECK_THAT(line, ContainsSubstring("1970-01-01 00:00"));
  }

  const std::string out = place.path("out");
  fs::create_directory(out);
  output_of({"tar", "xf", path, "-C", out, "--no-same-owner"});
  const json manifest = json::parse(get(out + "/manifest.json"));
  CHECK(manifest["schema"] == "hstu-jit/bundle/1");
  CHECK(output_of({"sha256sum", out + "/manifest.json"}).substr(0, 64) == bundle.digest());
  REQUIRE(manifest["entries"].size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const json& entry = manifest["entries"][i];
    const std::string file = out + "/" + names[i + 1];
    const std::string key = entry["key"], toolchain = entry["toolchain"];
    CHECK(names[i + 1] ==
          "objects/" + key.substr(0, 2) + "/" + key + "." + toolchain.substr(0, 12) + ".hko");
    CHECK(entry["size"] == fs::file_size(file));
    CHECK(output_of({"sha256sum", file}).substr(0, 64) == entry["sha256"]);
    // Byte for byte what a cache holds.
    CHECK(std::find(entries.begin(), entries.end(), get(file)) != entries.end());
    const DecodedEntry decoded = decode_entry(get(file));
    CHECK(decoded.artifact.ingredients[0].second == entry["target"]);
    CHECK(decoded.artifact.ingredients[1].second == entry["name"]);
  }

  std::vector<std::string> argv = {"tar",
                                   "--format=ustar",
                                   "--owner=0",
                                   "--group=0",
                                   "--mtime=@0",
                                   "--mode=0644",
                                   "-b",
                                   "1",
                                   "-C",
                                   out,
                                   "-cf",
                                   place.path("again"),
                                   "--numeric-owner"};
  argv.insert(argv.end(), names.begin(), names.end());
  output_of(argv);
  CHECK(get(place.path("again")) == get(path));
}

TEST_CASE("the same content gives the same bytes, in whatever order it came") {
  const Place place;
  std::vector<std::string> entries = kernels(6);
  BundleNotes some = notes();
  const std::string a = get(place.make("a.hjb", entries, some));
  std::reverse(entries.begin(), entries.end());
  entries.push_back(entries[2]);  // once more counts once
  std::reverse(some.requested.begin(), some.requested.end());
  some.requested.push_back(R"({ "target" : "gfx942" })");
  some.failed.push_back(some.failed[0]);
  CHECK(get(place.make("b.hjb", entries, some)) == a);
  some.producer = "test 2";
  CHECK(get(place.make("b.hjb", entries, some)) != a);  // replaced as well
}

TEST_CASE("an empty bundle is a bundle") {
  const Place place;
  const Bundle bundle = open_bundle(place.make("k.hjb", {}, {}));
  CHECK(bundle.manifest().entries.empty());
  CHECK(bundle.verify().empty());
  CHECK(output_of({"tar", "tf", bundle.path()}) == "manifest.json\n");
}

TEST_CASE("the writer refuses what is no entry, two for one name, and notes that are no text") {
  const Place place;
  const std::string path = place.path("k.hjb");
  const auto refused = [&](const std::vector<std::string>& entries, const BundleNotes& with,
                           const std::string& words) {
    const auto result = write_bundle(path, entries, with);
    REQUIRE_FALSE(result.ok());
    check_error(result.error(), path, words, hstu::jit::ErrorKind::kCache);
    CHECK(count_files(place.dir.path()) == 0);
  };
  refused({"no entry"}, notes(), "not whole");
  std::string bad = encoded(kernel(1));
  bad.back() = '!';
  refused({bad}, notes(), "digest");
  refused({encoded(kernel(1)), encoded(kernel(1, 'c', 900))}, notes(), "different bytes");
  // The same first twelve digits of the toolchain: one name for two.
  Artifact near = kernel(1);
  near.key.toolchain.back() = 'd';
  refused({encoded(kernel(1)), encoded(near)}, notes(), "different bytes");
  BundleNotes wrong = notes();
  wrong.requested = {"{"};
  refused({}, wrong, "not JSON");
  wrong.requested = {std::string(100, '[') + std::string(100, ']')};
  refused({}, wrong, "nested");
  wrong = notes();
  wrong.producer = "\xff";
  refused({}, wrong, "UTF-8");
  wrong = notes();
  wrong.failed[0].reason = "\xff\x1b[31m\n";  // the words of a compiler: shown, not refused
  const std::string shown = open_bundle(place.make("k.hjb", {}, wrong)).manifest().failed[0].reason;
  CHECK(shown == "\\xff\\x1b[31m\\n");
}

TEST_CASE("merging: union, order does not matter, once more changes nothing") {
  const Place place;
  const std::vector<std::string> all = kernels(6);
  BundleNotes first = notes(), second = notes();
  second.requested = {R"({"target":"sm_90a"})"};
  const Bundle a = open_bundle(place.make("a.hjb", {all[0], all[1], all[2], all[3]}, first));
  const Bundle b = open_bundle(place.make("b.hjb", {all[2], all[3], all[4], all[5]}, second));
  const auto merged = [&](const std::vector<const Bundle*>& list, const std::string& name) {
    const auto digest = merge_bundles(list, place.path(name), "test 1");
    if (!digest.ok()) FAIL(digest.error().message);
    return get(place.path(name));
  };
  const std::string ab = merged({&a, &b}, "ab.hjb");
  CHECK(merged({&b, &a}, "ba.hjb") == ab);
  CHECK(merged({&a, &a}, "aa.hjb") == get(a.path()));
  CHECK(merged({&a}, "a2.hjb") == get(a.path()));
  const Bundle c = open_bundle(place.path("ab.hjb"));
  CHECK(c.verify().empty());
  CHECK(c.manifest().entries.size() == 6);
  CHECK(c.manifest().requested.size() == 3);
  CHECK(c.manifest().failed.size() == 1);
  CHECK(merged({&c, &a, &b}, "abc.hjb") == ab);
  // As if it had been made in one go.
  first.requested.push_back(second.requested[0]);
  CHECK(get(place.make("once.hjb", all, first)) == ab);
  // One of its own parts may be replaced: it is open.
  CHECK(merged({&a, &b}, "a.hjb") == ab);
}

TEST_CASE("merging: other bytes for one key and toolchain need a choice") {
  const Place place;
  const Bundle a =
      open_bundle(place.make("a.hjb", {encoded(kernel(1, 'c', 100)), encoded(kernel(2))}));
  const Bundle b =
      open_bundle(place.make("b.hjb", {encoded(kernel(1, 'c', 200)), encoded(kernel(3))}));
  const std::string path = place.path("c.hjb");
  const auto refused = merge_bundles({&a, &b}, path, "test 1");
  REQUIRE_FALSE(refused.ok());
  check_error(refused.error(), path, "--prefer", hstu::jit::ErrorKind::kCache);
  CHECK_FALSE(fs::exists(path));
  for (const auto& [prefer, size] : {std::pair{Prefer::first, 101}, std::pair{Prefer::last, 201}}) {
    REQUIRE(merge_bundles({&a, &b}, path, "test 1", prefer).ok());
    const Bundle c = open_bundle(path);
    CHECK(c.manifest().entries.size() == 3);
    CHECK(c.lookup(kernel(1).key, false).artifact.payload.size() == static_cast<size_t>(size));
  }
}

TEST_CASE("pins") {
  const Place place;
  const std::string path = place.make("k.hjb", kernels(2));
  const std::string digest = open_bundle(path).digest();
  CHECK(open_bundle(path + "@sha256:" + digest).path() == path);
  std::string upper = digest;
  std::transform(upper.begin(), upper.end(), upper.begin(), ::toupper);
  CHECK(open_bundle(path + "@sha256:" + upper).digest() == digest);
  std::string other = digest;
  other[0] = other[0] == '0' ? '1' : '0';
  check_unusable(path + "@sha256:" + other, "the pin says sha256:" + other);
  for (const std::string pin : {"", "12", "xyz", "sha256:"}) {
    const auto bad = Bundle::open(path + "@sha256:" + pin);
    REQUIRE_FALSE(bad.ok());
    check_error(bad.error(), path, "64 hex digits", hstu::jit::ErrorKind::kUsage);
  }
  // An at sign in a name is a name.
  const std::string at = place.make("k@2.hjb", kernels(1));
  CHECK(open_bundle(at).path() == at);
}

TEST_CASE("the list of bundles splits at colons that belong to no pin") {
  using List = std::vector<std::string>;
  CHECK(split_bundle_list("") == List{});
  CHECK(split_bundle_list("a.hjb") == List{"a.hjb"});
  CHECK(split_bundle_list(":a:: b c:") == List{"a", " b c"});
  CHECK(split_bundle_list("a@sha256:12:b@sha256:34") == List{"a@sha256:12", "b@sha256:34"});
  CHECK(split_bundle_list("a@sha256:") == List{"a@sha256:"});
  CHECK(split_bundle_list("a@sha256") == List{"a@sha256"});
  CHECK(split_bundle_list("@sha256:b") == List{"@sha256", "b"});
}

TEST_CASE("a thousand kernels open and verify at once") {
  const Place place;
  std::vector<std::string> entries;
  for (int i = 0; i < 1000; ++i) {
    Artifact one = kernel(i, 'c', 20000);
    one.ingredients.emplace_back("template", std::string(9000, 'x'));
    one.key.request = request_digest(one.ingredients);
    entries.push_back(encoded(one));
  }
  const std::string path = place.make("k.hjb", entries);
  using Clock = std::chrono::steady_clock;
  const auto ms = [](Clock::duration d) {
    return std::chrono::duration<double, std::milli>(d).count();
  };
  double opened = 1e9, verified = 1e9, decoded = 1e9;
  for (int round = 0; round < 3; ++round) {
    const Clock::time_point start = Clock::now();
    const Bundle bundle = open_bundle(path);
    const Clock::time_point open = Clock::now();
    REQUIRE(bundle.verify(Bundle::Depth::digests).empty());
    const Clock::time_point digests = Clock::now();
    REQUIRE(bundle.verify().empty());
    opened = std::min(opened, ms(open - start));
    verified = std::min(verified, ms(digests - open));
    decoded = std::min(decoded, ms(Clock::now() - digests));
  }
  std::printf(
      "bundle of 1000 kernels, %.1f MB: opened in %.1f ms, digests verified in %.1f ms, "
      "every entry decoded as well in %.1f ms\n",
      static_cast<double>(fs::file_size(path)) / 1e6, opened, verified, decoded);
  // 100 ms on an idle machine; sanitizers and neighbours take their share.
  CHECK(opened + verified < 1500);
}
