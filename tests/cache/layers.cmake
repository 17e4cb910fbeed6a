# SPDX-License-Identifier: Apache-2.0
hstu_test(cache_layers SOURCES layers_test.cpp LINK hstu_kernel_cache)
