// SPDX-License-Identifier: Apache-2.0
// Vector types of AMD machines. Take elements out with [] into a scalar before reinterpreting their
// bits: clang 19 to 21 read element 0 in __builtin_bit_cast(unsigned, v[1]).
#pragma once

namespace hstu::amd {

typedef unsigned Words2 __attribute__((ext_vector_type(2)));
typedef unsigned Words4 __attribute__((ext_vector_type(4)));  // 16 bytes: 8 elements of 16 bits
typedef float Floats2 __attribute__((ext_vector_type(2)));
typedef float Floats16 __attribute__((ext_vector_type(16)));

}  // namespace hstu::amd
