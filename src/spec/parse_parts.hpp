// SPDX-License-Identifier: Apache-2.0
// Readers of the objects inside a problem. Errors go to the reader's FirstError.
#pragma once

#include <string>

#include "spec/problem.hpp"
#include "spec/reader.hpp"

namespace hstu::jit {

// problem.mask, problem.groups and their fall-backs; reads the top level's scales before.
void read_mask(ObjectReader& top, Problem& problem);
void read_groups(ObjectReader& top, Problem& problem);
void read_data(ObjectReader& top, const std::string& folder, Problem& problem);
void read_validate(ObjectReader& top, Problem& problem);
void read_strides(ObjectReader& top, Problem& problem);
void read_benchmark(ObjectReader& top, Problem& problem);
void read_output(ObjectReader& top, const std::string& folder, Problem& problem);

}  // namespace hstu::jit
