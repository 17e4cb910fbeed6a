// SPDX-License-Identifier: Apache-2.0
#include "source/source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "source/embedded.hpp"

namespace hstu::jit {
namespace {

constexpr std::string_view kConfigFile = "attention/config.h";

std::string config_text(const Plan& plan) {
  const ForwardConfig& c = plan.config;
  std::string out = "namespace hstu {\n\nstruct Config {\n";
  const auto number = [&](const char* name, int value) {
    out += fmt::format("  static constexpr int {} = {};\n", name, value);
  };
  const auto flag = [&](const char* name, bool value) {
    out += fmt::format("  static constexpr bool {} = {};\n", name, value);
  };
  out += fmt::format("  static constexpr Dtype dtype = Dtype::{};\n",
                     c.dtype == Dtype::fp16 ? "fp16" : "bf16");
  number("head_dim_qk", c.head_dim_qk);
  number("head_dim_v", c.head_dim_v);
  out += fmt::format("  static constexpr Activation activation = Activation::{};\n",
                     c.activation == Activation::silu ? "silu" : "softmax");
  flag("write_lse", c.write_lse);
  flag("jagged", c.jagged);
  flag("grouped", c.grouped);
  flag("causal", c.mask.causal);
  flag("cross", c.mask.cross);
  flag("local", c.mask.local);
  flag("context", c.mask.context);
  flag("minfull", c.mask.minfull);
  flag("targets", c.mask.targets);
  number("tile_m", c.tile_m);
  number("tile_n", c.tile_n);
  number("waves", c.waves);
  number("waves_per_simd", c.waves_per_simd);
  if (c.stages > 0) {
    number("stages", c.stages);
    number("q_buffers", c.q_buffers);
    flag("apart", c.apart);
  }
  out += "};\n\n}  // namespace hstu\n";
  return out;
}

// Appends `file` with every quoted include expanded in place, each file once. #line directives make
// compilers name the template a message is about.
Status expand(std::string_view file, const std::string& config, std::set<std::string>& seen,
              std::string& out) {
  const std::string_view text = template_text(file);
  if (text.empty())
    return Error{ErrorKind::kInternal, fmt::format("no template \"{}\" in this program", file), "",
                 ""};
  seen.insert(std::string(file));
  out += fmt::format("#line 1 \"templates/{}\"\n", file);
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    constexpr std::string_view include = "#include \"";
    if (line.substr(0, include.size()) == include) {
      const std::string_view rest = line.substr(include.size());
      const std::string name(rest.substr(0, rest.find('"')));
      if (seen.count(name) == 0) {
        if (name == kConfigFile) {
          seen.insert(name);
          // The generated configuration needs the same words as the default one.
          if (seen.count("base/types.h") == 0)
            if (Status s = expand("base/types.h", config, seen, out); !s) return s;
          out += "#line 1 \"configuration\"\n" + config;
        } else if (Status s = expand(name, config, seen, out); !s) {
          return s;
        }
        out += fmt::format("#line {} \"templates/{}\"\n", number + 1, file);
      } else {
        out += "\n";
      }
    } else if (line == "#pragma once") {
      out += "\n";
    } else {
      out += line;
      out += '\n';
    }
  }
  return {};
}

std::string comment(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += "// ";
    out += text.substr(at, end - at);
    // A backslash at the end of a line would carry the comment on into the code.
    if (out.back() == '\\') out += ' ';
    while (out.back() == ' ' && out[out.size() - 2] != '\\') out.pop_back();
    out += '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace

std::vector<std::string> template_files() {
  std::vector<std::string> names;
  for (int i = 0; i < kEmbeddedFileCount; ++i) names.emplace_back(kEmbeddedFiles[i].name);
  return names;
}

std::string_view template_text(std::string_view file) {
  for (int i = 0; i < kEmbeddedFileCount; ++i)
    if (file == kEmbeddedFiles[i].name) return kEmbeddedFiles[i].text;
  return {};
}

Result<Source> write_source(const Plan& plan, std::string_view spec_json) {
  Result<Source> source = write_body(plan);
  if (!source) return source;
  source->head = comment(fmt::format(
      "{}\nWritten by hstu-jit for {}. One self-contained file: configuration, then templates.\n\n"
      "Spec\n{}\n\nPlan\n{}",
      plan.entry, plan.target.name, spec_json, to_text(plan)));
  return source;
}

std::string source_seed(const Plan& plan) {
  return plan.template_name + "\n" + plan.entry + "\n" + config_text(plan);
}

Result<Source> write_body(const Plan& plan) {
  Source source;
  source.entry = plan.entry;
  // Nothing but what source_seed() holds may be looked at here. The entry's name follows from the
  // configuration; it is part of the body and so of the key.
  source.body = fmt::format("#define HSTU_ENTRY {}\n", plan.entry);
  std::set<std::string> seen;
  if (Status s = expand(plan.template_name, config_text(plan), seen, source.body); !s)
    return std::move(s).error();
  return source;
}

}  // namespace hstu::jit
