/* SPDX-License-Identifier: Apache-2.0
 * The public header is C: this file only has to compile as C. */
#include <hstu_jit/hstu_jit.h>

size_t hstu_test_forward_size(void) { return sizeof(hstu_forward); }
