# SPDX-License-Identifier: Apache-2.0
hstu_test(cache_bundle SOURCES bundle_faults_test.cpp bundle_hook_test.cpp bundle_hostile_test.cpp
                               bundle_test.cpp
          LINK hstu_kernel_cache nlohmann_json::nlohmann_json)
