# SPDX-License-Identifier: Apache-2.0
# The remote layer against servers that the tests are themselves.
hstu_test(remote SOURCES remote_http_test.cpp remote_options_test.cpp remote_redis_test.cpp
                         remote_test.cpp
          LINK hstu_remote_transports TIMEOUT 120)
add_dependencies(test_remote hstu_jit_remote)

# A build host, nginx, Redis and nodes on this machine.
add_test(NAME fleet COMMAND ${PROJECT_SOURCE_DIR}/tools/test-fleet.sh ${CMAKE_BINARY_DIR})
set_tests_properties(fleet PROPERTIES TIMEOUT 300)
