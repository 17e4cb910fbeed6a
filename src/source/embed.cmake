# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=file.cpp -DROOT=templates "-DFILES=a.h,b.h" -P embed.cmake
# Writes the template texts as one table of raw strings.
string(REPLACE "," ";" FILES "${FILES}")
set(text "// Generated from templates/. Do not edit.\n#include \"source/embedded.hpp\"\n\n")
string(APPEND text "namespace hstu::jit {\n\nconst EmbeddedFile kEmbeddedFiles[] = {\n")
foreach(file IN LISTS FILES)
  file(READ "${ROOT}/${file}" content)
  string(APPEND text "{\"${file}\", R\"HSTUFILE(${content})HSTUFILE\"},\n")
endforeach()
string(APPEND text "};\nconst int kEmbeddedFileCount = sizeof(kEmbeddedFiles) / sizeof(kEmbeddedFiles[0]);\n\n")
string(APPEND text "}  // namespace hstu::jit\n")
file(WRITE "${OUTPUT}" "${text}")
