// SPDX-License-Identifier: Apache-2.0
#include "check/mask_picture.hpp"

#include <png.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/temp_dir.hpp"
#include "check/test_problems.hpp"

using namespace hstu::jit;

namespace {

Geometry geometry_of(const Problem& p) {
  auto geometry = make_geometry(p);
  REQUIRE(geometry.ok());
  return *geometry;
}

Problem one_sequence(int uih, int context, int targets, int local, bool causal = true) {
  Problem p;
  p.heads = 2;
  p.head_dim_qk = p.head_dim_v = 16;
  p.batch = 1;
  p.uih_q = p.uih_kv = {uih};
  p.num_targets = {targets};
  p.causal = causal;
  p.mask.context_len = context;
  p.mask.local_len = local;
  return p;
}

struct Image {
  int width = 0, height = 0;
  std::vector<Color> pixels;
  Color at(int x, int y) const { return pixels.at(static_cast<size_t>(y) * width + x); }
};

Image decode(const std::string& path) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_file(&png, path.c_str()));
  png.format = PNG_FORMAT_RGB;
  Image image{static_cast<int>(png.width), static_cast<int>(png.height), {}};
  image.pixels.resize(PNG_IMAGE_SIZE(png) / 3);
  REQUIRE(png_image_finish_read(&png, nullptr, image.pixels.data(), 0, nullptr));
  return image;
}

Image draw(const Geometry& geometry, const MaskPictureOptions& options) {
  auto folder = TempDir::create("hstu-png-test");
  REQUIRE(folder.ok());
  const std::string path = folder->path() + "/mask.png";
  const Status status = write_mask_png(geometry, options, path);
  INFO((status.ok() ? std::string() : status.error().message));
  REQUIRE(status.ok());
  return decode(path);
}

}  // namespace

TEST_CASE("mask rows reproduce the worked examples") {
  std::ifstream file(std::string(HSTU_TEST_DATA) + "/mask_examples.json");
  REQUIRE(file.good());
  int seen = 0;
  const auto examples = nlohmann::json::parse(file);
  for (const auto& example : examples["examples"]) {
    const auto& params = example["params"];
    Problem p = one_sequence(params["uih_q"], params["context_len"], params["targets"],
                             params["local_len"], params["causal"] == 1);
    p.mask.minfull_len = params["minfull_len"];
    p.cross = params["is_cross"];
    if (p.cross) p.uih_kv = {params["uih_kv"].get<int>()};
    const Geometry geometry = geometry_of(p);
    CHECK(mask_rows(geometry, 0) == example["rows"].get<std::vector<std::string>>());
    const auto json = nlohmann::json::parse(mask_json(geometry, false));
    CHECK(json["schema"] == "hstu-jit/mask/1");
    REQUIRE(json["batches"].size() == 1);
    const auto& batch = json["batches"][0];
    CHECK(batch["rows"] == example["rows"]);
    CHECK(batch["visible_pairs"] == example["visible_pairs"]);
    CHECK(batch["seqlen_q"] == params["phys_seqlen_q"]);
    CHECK(batch["seqlen_kv"] == params["phys_seqlen_kv"]);
    ++seen;
  }
  CHECK(seen >= 6);
}

TEST_CASE("JSON leaves the rows of large masks out unless asked") {
  const Geometry geometry = geometry_of(one_sequence(2001, 0, 0, 5));
  const auto plain = nlohmann::json::parse(mask_json(geometry, false));
  CHECK(!plain["batches"][0].contains("rows"));
  CHECK_THAT(plain["note"].get<std::string>(), ContainsSubstring("4004001"));
  const auto forced = nlohmann::json::parse(mask_json(geometry, true));
  CHECK(forced["batches"][0]["rows"].size() == 2001);
  const auto exact =
      nlohmann::json::parse(mask_json(geometry_of(one_sequence(2000, 0, 0, 5)), false));
  CHECK(exact["batches"][0]["rows"].size() == 2000);
  Problem none = one_sequence(1, 0, 0, 0);
  none.batch = 0;
  none.uih_q = none.uih_kv = none.num_targets = {};
  CHECK(nlohmann::json::parse(mask_json(geometry_of(none), false))["batches"].empty());
}

TEST_CASE("text shows regions by letters") {
  const Geometry geometry = geometry_of(one_sequence(3, 2, 2, 0));
  const std::string text = mask_text(geometry, {});
  INFO(text);
  CHECK_THAT(text, ContainsSubstring("7 queries (rows) x 7 keys, 34 visible pairs"));
  CHECK_THAT(text, ContainsSubstring("context   0 cc|hhh|..\n"));
  CHECK_THAT(text, ContainsSubstring("          1 cc|hhh|..\n"));
  CHECK_THAT(text, ContainsSubstring("history   2 cc|h..|..\n"));
  CHECK_THAT(text, ContainsSubstring("target    5 cc|hhh|t.\n"));
  CHECK_THAT(text, ContainsSubstring("          6 cc|hhh|.t\n"));
  CHECK(text.find('\x1b') == std::string::npos);
  const std::string colored = mask_text(geometry, {.color = true});
  // Without its colours it is the same text.
  std::string stripped;
  for (size_t n = 0; n < colored.size(); ++n) {
    if (colored[n] == '\x1b')
      n = colored.find('m', n);
    else
      stripped += colored[n];
  }
  CHECK(stripped == text);
  CHECK(colored != text);
}

TEST_CASE("text shows tile classes on request") {
  const Geometry geometry = geometry_of(one_sequence(8, 0, 0, 0));
  const std::string text = mask_text(geometry, {.tile_m = 4, .tile_n = 2});
  INFO(text);
  CHECK_THAT(text, ContainsSubstring(" 0 ppss\n"));
  CHECK_THAT(text, ContainsSubstring(" 4 ffpp\n"));
}

TEST_CASE("text of a long sequence is drawn in blocks") {
  const Geometry geometry = geometry_of(one_sequence(1000, 0, 0, 0));
  const std::string text = mask_text(geometry, {});
  INFO(text);
  CHECK_THAT(text, ContainsSubstring("10 x 10 pairs"));
  CHECK_THAT(text, ContainsSubstring("990 " + std::string(99, '#') + "5\n"));
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    CHECK(end - at < 125);
  CHECK_THAT(mask_text(geometry, {.batch_index = 7}), ContainsSubstring("no sequence 7"));
}

TEST_CASE("a PNG of a short mask has one cell a pair in the region's colour") {
  const Geometry geometry = geometry_of(one_sequence(9, 3, 2, 4, false));
  const Image image = draw(geometry, {});
  const MaskPngLayout layout = mask_png_layout(14, 14);
  CHECK(image.width == layout.width);
  CHECK(image.height == layout.height);
  CHECK(layout.block == 1);
  CHECK(layout.scale >= 8);
  const std::vector<std::string> rows = mask_rows(geometry, 0);
  const auto region = [](int n) {
    return n < 3 ? kContextColor : n < 12 ? kHistoryColor : kTargetColor;
  };
  int wrong = 0;
  for (int i = 0; i < 14; ++i)
    for (int j = 0; j < 14; ++j) {
      const Color want = rows[i][j] == '1' ? region(j) : kHiddenColor;
      const int x = layout.origin + j * layout.scale, y = layout.origin + i * layout.scale;
      wrong += image.at(x, y) != want;
      wrong += image.at(x + layout.scale - 2, y + layout.scale - 2) != want;
    }
  CHECK(wrong == 0);
  for (int n = 0; n < 14; ++n) {
    const int at = layout.origin + n * layout.scale + layout.scale / 2;
    CHECK(image.at(at, 2) == region(n));
    CHECK(image.at(2, at) == region(n));
  }
}

TEST_CASE("a PNG of a long mask is small, and as dark as the mask is dense") {
  const Geometry geometry = geometry_of(one_sequence(20000, 0, 0, 0));
  const Image image = draw(geometry, {});
  const MaskPngLayout layout = mask_png_layout(20000, 20000);
  CHECK(layout.scale == 1);
  CHECK(layout.block == 11);
  CHECK(image.width <= kMaskPngLimit);
  CHECK(image.width > kMaskPngLimit / 2);
  const auto at = [&](int i, int j) {
    return image.at(layout.origin + j / layout.block, layout.origin + i / layout.block);
  };
  CHECK(at(15000, 3) == kHistoryColor);
  CHECK(at(3, 15000) == kHiddenColor);
  // On the diagonal 66 of 121 pairs are visible.
  const double share = 66.0 / 121;
  const Color diagonal = at(11000, 11000);
  CHECK(diagonal.r == Approx(238 + share * (kHistoryColor.r - 238)).margin(0.6));
  CHECK(diagonal.b == Approx(238 + share * (kHistoryColor.b - 238)).margin(0.6));
}

TEST_CASE("the PNG overlay frames tiles by class") {
  const Geometry geometry = geometry_of(one_sequence(16, 0, 0, 0));
  const Image image = draw(geometry, {.tile_m = 4, .tile_n = 4});
  const MaskPngLayout layout = mask_png_layout(16, 16);
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 4; ++x) {
      const Color want = x > y ? kSkipColor : x < y ? kFullColor : kPartialColor;
      const int left = layout.origin + 4 * x * layout.scale;
      const int top = layout.origin + 4 * y * layout.scale;
      const int far = 4 * layout.scale - 2;
      CHECK(image.at(left, top) == want);
      CHECK(image.at(left + far, top + far) == want);
      CHECK(image.at(left + 4, top + 4) == (x < y   ? kHistoryColor
                                            : x > y ? kHiddenColor
                                                    : kHistoryColor));
    }
}

TEST_CASE("PNG requests that cannot be served are errors") {
  const Geometry geometry = geometry_of(one_sequence(4, 0, 0, 0));
  const auto kind = [&](const Geometry& g, int64_t b, const char* path) {
    const Status status = write_mask_png(g, {.batch_index = b}, path);
    REQUIRE(!status.ok());
    return status.error().kind;
  };
  CHECK(kind(geometry, 1, "x.png") == ErrorKind::kUsage);
  CHECK(kind(geometry, -1, "x.png") == ErrorKind::kUsage);
  CHECK(kind(geometry_of(one_sequence(0, 0, 0, 0)), 0, "x.png") == ErrorKind::kUsage);
  CHECK(kind(geometry, 0, "/nonexistent-folder/x.png") == ErrorKind::kFailed);
}

TEST_CASE("the saved mask is padded, and the same for every head") {
  Problem p = one_sequence(5, 1, 0, 2);
  p.batch = 2;
  p.uih_q = p.uih_kv = {5, 3};
  p.num_targets = {1, 2};
  const Geometry geometry = geometry_of(p);
  const int64_t n = geometry.max_seqlen_q;
  REQUIRE(n == 5 + 2 + 1);
  auto folder = TempDir::create("hstu-mask-test");
  REQUIRE(folder.ok());
  const std::string path = folder->path() + "/mask.dat";
  REQUIRE(write_mask_file(p, geometry, path).ok());
  const auto bytes = read_file(path);
  REQUIRE(bytes.ok());
  REQUIRE(static_cast<int64_t>(bytes->size()) == 2 * 2 * n * n);
  int64_t wrong = 0, ones = 0;
  for (int64_t b = 0; b < 2; ++b) {
    const auto rows = mask_rows(geometry, b);
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) {
          const auto length = static_cast<int64_t>(rows.size());
          const char want = i < length && j < length && rows[i][j] == '1';
          wrong += (*bytes)[((b * 2 + h) * n + i) * n + j] != want;
          ones += want;
        }
  }
  CHECK(wrong == 0);
  CHECK(ones == 2 * visible_pairs(geometry));
  // Nothing but the file, and an error that says how much it would be.
  CHECK(std::distance(std::filesystem::directory_iterator(folder->path()), {}) == 1);
  const Problem large = one_sequence(60000, 0, 0, 0);
  const Status refused = write_mask_file(large, geometry_of(large), path);
  REQUIRE(!refused.ok());
  CHECK_THAT(refused.error().message, ContainsSubstring("7200000000 bytes"));
  CHECK(!write_mask_file(p, geometry, "/nonexistent-folder/mask.dat").ok());
}
