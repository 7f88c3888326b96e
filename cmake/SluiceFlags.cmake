# Flags of a build of Sluice itself. None of them reaches a project that uses the library.

# g++ checks them all, in the preset dev and in that of the thread sanitizer. clang has its own idea of
# -Wconversion and -Wshadow, and is not asked.
if(SLUICE_DEVELOPER_WARNINGS)
  set(warnings -Wall -Wextra -Werror)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # g++ 12 needs some captures that clang can do without
    list(APPEND warnings -Wno-unused-lambda-capture)
  else()
    list(APPEND warnings -Wshadow -Wconversion)
  endif()
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
    "$<$<COMPILE_LANGUAGE:C>:${warnings};-pedantic>"
    # nvcc's generated host code does not pass -Wconversion.
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Wshadow>")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release")
  # What no other preset compiles with g++, the tests and the command, is checked here for those that do
  # not depend on what is optimised.
  set(sluice_own_warnings -Wall -Wextra -Wshadow -Wconversion -Werror=shadow -Werror=conversion
      -Werror=unused -Werror=sign-compare)
endif()

# For what has a sanitizer: a test of the server is linked in 0.6 s of CPU with lld, in 1.2 with GNU
# ld 2.40.
find_program(SLUICE_LLD ld.lld)

if(SLUICE_SANITIZE)
  # One finding ends the test: a report that scrolls by is a report that nobody reads.
  set(sanitize -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${sanitize}>")
  add_link_options(${sanitize})
  if(SLUICE_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_compile_definitions(__SANITIZE_ADDRESS__=1)  # as g++ says it
  endif()
  if(SLUICE_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# Of clang 14, what few tests wait for is not optimised with sanitizers: the server's largest file takes 15 s
# to compile instead of 24, the links' 10 instead of 21. Of g++ 12 they take as long either way. Not so the
# command, whose tests start it hundreds of times: cli.rows takes 45 s instead of 25.
if(SLUICE_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(sluice_cold_code_flags $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endif()

if(SLUICE_FUZZ)
  # The library is what the fuzzer wants to see into; main comes with the fuzz target alone, and
  # other programs have no use for the counters.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>")
endif()
