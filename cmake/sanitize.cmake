# A build that checks itself: SENTINEL_SANITIZE is `address` (with undefined behaviour), `thread`, or `fuzzer` (address
# as libFuzzer wants it, for clang). tests/sanitize.sh and tests/fuzz/run.sh build so, each into a folder of its own.
set(SENTINEL_SANITIZE "" CACHE STRING "Sanitizer that everything is built with: address, thread, fuzzer or none")
set(checks_of_address -fsanitize=address,undefined)
set(checks_of_thread -fsanitize=thread)
# A number of a file that does not fit its type is undefined behaviour, too.
set(checks_of_fuzzer -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow)

if(SENTINEL_SANITIZE)
  if(NOT DEFINED checks_of_${SENTINEL_SANITIZE})
    message(FATAL_ERROR "SENTINEL_SANITIZE=${SENTINEL_SANITIZE} is not address, thread or fuzzer")
  endif()
  add_compile_options(${checks_of_${SENTINEL_SANITIZE}} -O1 -g1 -fno-omit-frame-pointer)
  add_link_options(${checks_of_${SENTINEL_SANITIZE}})
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  if(NOT SENTINEL_SANITIZE STREQUAL thread)
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  # ccache finds an object only where the precompiled header of clang has no time in it.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()
