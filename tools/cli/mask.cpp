// SPDX-License-Identifier: Apache-2.0
// hstu-jit mask: pictures of the mask.
#include <fmt/format.h>
#include <unistd.h>

#include "base/env.hpp"
#include "check/mask_picture.hpp"
#include "cli/commands.hpp"

namespace hstu::jit::cli {
namespace {

constexpr const char* kSchema = "hstu-jit/mask/1";

struct MaskOptions {
  std::string spec;
  std::string png;
  int64_t batch = 0;
  bool tiles = false;
  bool rows = false;
  std::string color = "auto";
};

int mask_command(const MaskOptions& o, const Common& common) {
  Result<ParsedSpec> spec = load_spec(o.spec);
  if (!spec) return report(spec.error(), common, kSchema);
  if (spec->problems.size() != 1)
    return report(Error{ErrorKind::kUsage,
                        fmt::format("{} holds {} problems; \"mask\" draws one", o.spec,
                                    spec->problems.size()),
                        "", ""},
                  common, kSchema);
  Problem& problem = spec->problems.front();
  apply_overrides(problem, common);
  Result<Geometry> geometry = make_geometry(problem);
  if (!geometry) return report(geometry.error(), common, kSchema);
  if (o.batch >= problem.batch)
    return report(Error{ErrorKind::kUsage,
                        fmt::format("--batch {}: the problem has {} sequences, counted from 0",
                                    o.batch, problem.batch),
                        "", ""},
                  common, kSchema);

  MaskPictureOptions picture;
  picture.batch_index = o.batch;
  if (o.tiles) {
    Result<Target> target = plan_target(problem, common);
    if (!target) return report(target.error(), common, kSchema);
    Result<Plan> plan = make_plan(problem, *geometry, *target);
    if (!plan) return report(plan.error(), common, kSchema);
    picture.tile_m = plan->config.tile_m;
    picture.tile_n = plan->config.tile_n;
  }
  picture.color = o.color == "always" ||
                  (o.color == "auto" && isatty(STDOUT_FILENO) != 0 && !get_env("NO_COLOR"));
  if (!o.png.empty())
    if (Status s = write_mask_png(*geometry, picture, o.png); !s)
      return report(s.error(), common, kSchema);

  std::string out;
  if (common.json) {
    out = mask_json(*geometry, o.rows) + "\n";
  } else {
    out = mask_text(*geometry, picture);
  }
  if (!o.png.empty() && !common.json) out += fmt::format("picture written to {}\n", o.png);
  Status s = print(out);
  return s ? 0 : report(s.error(), common, kSchema);
}

}  // namespace

void add_mask(CLI::App& app, Common& common, Action& action) {
  auto options = std::make_shared<MaskOptions>();
  CLI::App* c = app.add_subcommand("mask", "Draw which keys each query sees");
  c->add_option("spec", options->spec, "Spec file, or - for standard input")->required();
  c->add_option("--png", options->png, "Write a picture to this file");
  c->add_option("--batch", options->batch, "Which sequence of the batch (from 0)")
      ->check(at_least(0));
  c->add_flag("--tiles", options->tiles, "Overlay the kernel's tiles: skip, full, partial");
  c->add_flag("--rows", options->rows, "With --json: all rows, however many cells");
  c->add_option("--color", options->color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  c->footer("Example: hstu-jit mask tests/data/specs/quickstart.json --png mask.png --tiles");
  c->callback([options, &common, &action] {
    action = [options, &common] { return mask_command(*options, common); };
  });
}

}  // namespace hstu::jit::cli
