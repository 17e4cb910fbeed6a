# SPDX-License-Identifier: Apache-2.0
# The remote layer: its policy in the library, libcurl and hiredis in a module that is loaded when
# HSTU_JIT_REMOTE is set.
target_sources(hstu_kernel_cache PRIVATE
  remote.cpp remote_module.cpp remote_queue.cpp remote_secrets.cpp remote_url.cpp)
target_link_libraries(hstu_kernel_cache PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
set_property(SOURCE remote_module.cpp remote_module_entry.cpp APPEND PROPERTY COMPILE_DEFINITIONS
             HSTU_JIT_VERSION="${PROJECT_VERSION}")

add_library(hstu_remote_transports STATIC
  remote_redis.cpp remote_resolve.cpp remote_transport.cpp)
target_link_libraries(hstu_remote_transports PUBLIC hstu_kernel_cache PRIVATE fmt::fmt)
target_compile_options(hstu_remote_transports PRIVATE -Wall -Wextra -Wpedantic)

set(transports)
find_package(CURL 7.68 QUIET)
if(CURL_FOUND)
  list(APPEND transports http https)
  target_sources(hstu_remote_transports PRIVATE remote_http.cpp)
  target_compile_definitions(hstu_remote_transports PRIVATE HSTU_JIT_HAVE_CURL)
  target_link_libraries(hstu_remote_transports PRIVATE CURL::libcurl)
else()
  message(STATUS "libcurl not found: the remote cache will not speak http and https")
endif()
find_path(HSTU_HIREDIS_INCLUDE hiredis/hiredis.h)
find_library(HSTU_HIREDIS_LIBRARY hiredis)
find_library(HSTU_HIREDIS_SSL_LIBRARY hiredis_ssl)
if(HSTU_HIREDIS_INCLUDE AND HSTU_HIREDIS_LIBRARY)
  list(APPEND transports redis)
  target_include_directories(hstu_remote_transports SYSTEM PRIVATE ${HSTU_HIREDIS_INCLUDE})
  target_compile_definitions(hstu_remote_transports PRIVATE HSTU_JIT_HAVE_HIREDIS)
  target_link_libraries(hstu_remote_transports PRIVATE ${HSTU_HIREDIS_LIBRARY})
  if(HSTU_HIREDIS_SSL_LIBRARY AND EXISTS ${HSTU_HIREDIS_INCLUDE}/hiredis/hiredis_ssl.h)
    list(APPEND transports rediss)
    target_compile_definitions(hstu_remote_transports PRIVATE HSTU_JIT_HAVE_HIREDIS_SSL)
    target_link_libraries(hstu_remote_transports PRIVATE ${HSTU_HIREDIS_SSL_LIBRARY} OpenSSL::SSL)
  else()
    message(STATUS "this hiredis has no TLS: the remote cache will not speak rediss")
  endif()
else()
  message(STATUS "hiredis not found: the remote cache will not speak redis")
endif()
list(JOIN transports " " transports)
set_property(SOURCE remote_module_entry.cpp APPEND PROPERTY COMPILE_DEFINITIONS
             HSTU_JIT_REMOTE_TRANSPORTS="${transports}")

# Looked for beside the program or library that loads it, as the compile worker is.
add_library(hstu_jit_remote MODULE remote_module_entry.cpp)
target_link_libraries(hstu_jit_remote PRIVATE hstu_remote_transports)
target_compile_options(hstu_jit_remote PRIVATE -Wall -Wextra -Wpedantic)
set_target_properties(hstu_jit_remote PROPERTIES
  PREFIX "" OUTPUT_NAME hstu-jit-remote SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
