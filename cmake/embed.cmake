# Files as string literals. sentinel_embed(TARGET FILE...) defines, in namespace sentinel::embedded, one
# `extern const std::string_view NAME` a file and a header "embedded/TARGET.h" that declares them; NAME is the
# file's name with an underscore for each character that no identifier has. A changed file is embedded anew.
function(sentinel_embed target)
  set(folder ${CMAKE_BINARY_DIR}/embedded/${target})
  set(header ${folder}/embedded/${target}.h)
  set(declarations "")
  foreach(file ${ARGN})
    get_filename_component(name ${file} NAME)
    string(MAKE_C_IDENTIFIER ${name} identifier)
    set(source ${folder}/${identifier}.cpp)
    add_custom_command(OUTPUT ${source} DEPENDS ${file} ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
      COMMAND ${CMAKE_COMMAND} -D FILE=${file} -D NAME=${identifier} -D TO=${source}
              -P ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
      COMMENT "Embedding ${name}" VERBATIM)
    target_sources(${target} PRIVATE ${source})
    string(APPEND declarations "extern const std::string_view ${identifier};\n")
  endforeach()
  file(CONFIGURE OUTPUT ${header} @ONLY CONTENT
       "#pragma once\n#include <string_view>\nnamespace sentinel::embedded {\n@declarations@}\n")
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
