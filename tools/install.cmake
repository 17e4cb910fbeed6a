# SPDX-License-Identifier: Apache-2.0
# cmake --install build --prefix DIR: the program, the library with its headers and package files
# (CMake and pkg-config), what both start or load (libexec/hstu-jit), manifests and documents.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS hstu-jit RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Looked for there by the program and by the library; see src/compile/locate.hpp.
install(TARGETS hstu-jit-worker RUNTIME DESTINATION libexec/hstu-jit)
install(TARGETS hstu_jit_remote LIBRARY DESTINATION libexec/hstu-jit)

install(TARGETS hstu_jit EXPORT hstu_jit LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/hstu_jit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/hstu_jit)
install(EXPORT hstu_jit NAMESPACE hstu_jit:: DESTINATION ${package} FILE hstu_jitConfig.cmake)
# While the major version is 0 a minor one may change the interface.
write_basic_package_version_file(hstu_jitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hstu_jitConfigVersion.cmake DESTINATION ${package})
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/hstu_jit.pc CONTENT
"libdir=\${pcfiledir}/..
prefix=\${libdir}/$<IF:$<STREQUAL:${CMAKE_INSTALL_LIBDIR},lib>,..,../..>
Name: hstu_jit
Description: HSTU attention kernels, compiled at run time
Version: ${PROJECT_VERSION}
Cflags: -I\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
Libs: -L\${libdir} -lhstu_jit
")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hstu_jit.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY cache/manifests DESTINATION ${CMAKE_INSTALL_DATADIR}/hstu-jit)
install(FILES README.md cache/BUNDLES.md cache/FORMAT.md cache/MANIFESTS.md cache/REMOTE.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
