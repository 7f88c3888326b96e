# Helpers that turn a line in a list into a test.
include(GoogleTest)

find_package(GTest QUIET)

# What tests call is checked for undefined behaviour, their own code is not: that takes 40 % of the
# time to compile it with sanitizers. The rules of src/semantics are headers, so their tests are.
if(SLUICE_SANITIZE MATCHES "undefined")
  set(sluice_test_code_flags -fno-sanitize=undefined)
endif()
if(SLUICE_FUZZ)
  list(APPEND sluice_test_code_flags -fno-sanitize=fuzzer-no-link)
endif()
# clang 14 compiles sampler_test with sanitizers in 9.6 s of CPU, without optimising in 4.3; for g++ 12
# it makes no difference.
if(SLUICE_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND sluice_test_code_flags $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endif()

# sluice_add_test_headers(NAME target [LIBRARIES target...] [HEADERS <header>...])
#
# What nearly all tests include, compiled once a preset: 2 of some 7 s of each file, 12 of 16 of the
# small ones (g++ 12). A test includes what it uses all the same.
function(sluice_add_test_headers)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "LIBRARIES;HEADERS")
  add_executable(${arg_NAME} ${PROJECT_SOURCE_DIR}/tests/support/test_headers.cc)
  target_link_libraries(${arg_NAME} PRIVATE GTest::gtest GTest::gtest_main ${arg_LIBRARIES})
  target_precompile_headers(${arg_NAME} PRIVATE <gtest/gtest.h> <algorithm> <functional> <map>
                            <memory> <random> <span> <sstream> <string> <thread> <vector>
                            ${arg_HEADERS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${arg_NAME} PRIVATE -fpch-preprocess)  # for ccache
  endif()
  target_compile_options(${arg_NAME} PRIVATE ${sluice_test_code_flags})
endfunction()
if(GTest_FOUND)
  sluice_add_test_headers(NAME sluice_test_headers)
  # Of the tests that read JSON: simdjson's header is another 3 s.
  find_package(simdjson 3.0 CONFIG QUIET)
  if(TARGET simdjson::simdjson)
    sluice_add_test_headers(NAME sluice_json_test_headers LIBRARIES simdjson::simdjson
                            HEADERS <simdjson.h>)
  endif()
endif()

# All fuzz targets, and of the libraries only what they are made of.
add_custom_target(sluice_fuzz_targets)
# The tests with the label `threads`, likewise: they are for the thread sanitizer.
add_custom_target(sluice_thread_tests)

# sluice_add_test(NAME name [CUDA] SOURCES file... [LABELS label...] [LIBRARIES target...])
#
# One executable; every TEST in it becomes the ctest test <name>.<Suite>.<Test>, labelled with the
# folder of its first source and with LABELS. `long` keeps a test out of the sanitizer runs, `slow` out
# of `make test`; `threads` are the tests that the thread sanitizer runs; `cost` are those that measure
# the test's code.
# With CUDA it gets the label `cuda` and is left out where CUDA is off; only a file with a kernel of
# its own is a .cu, since nvcc takes four times as long for the others. The main is GoogleTest's own.
#
# The executables depend on nothing but the C library, so that they can be copied to a GPU machine
# that has no package manager.
function(sluice_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "CUDA" "NAME" "SOURCES;LABELS;LIBRARIES")
  if(NOT GTest_FOUND)
    return()  # said once by tests/CMakeLists.txt
  endif()
  if(arg_CUDA AND NOT SLUICE_CUDA)
    return()
  endif()

  add_executable(${arg_NAME} ${arg_SOURCES})
  target_include_directories(${arg_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${arg_NAME} PRIVATE sluice_core sluice_semantics ${arg_LIBRARIES})
  target_link_libraries(${arg_NAME} PRIVATE GTest::gtest GTest::gtest_main)
  list(GET arg_SOURCES 0 first_source)
  cmake_path(GET first_source PARENT_PATH folder)
  if(NOT folder STREQUAL "semantics")
    target_compile_options(${arg_NAME} PRIVATE ${sluice_test_code_flags})
    if("simdjson::simdjson" IN_LIST arg_LIBRARIES)
      target_precompile_headers(${arg_NAME} REUSE_FROM sluice_json_test_headers)
    else()
      target_precompile_headers(${arg_NAME} REUSE_FROM sluice_test_headers)
    endif()
    # Behind a precompiled header g++ 12 warns, when it optimises, of the library's own strings.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT SLUICE_SANITIZE)
      target_compile_options(${arg_NAME} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>)
    endif()
  endif()
  # The library is optimised as users have it, but for inline functions that a test has as well. Of
  # the tests' own code only what has the rules themselves in it, or measures something, is
  # optimised: without, it compiles in two thirds of the time.
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT folder STREQUAL "semantics" AND
     NOT "cost" IN_LIST arg_LABELS)
    target_compile_options(${arg_NAME} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
  target_compile_options(${arg_NAME} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${sluice_own_warnings}>")
  if(NOT SLUICE_SANITIZE)  # the sanitizers' own run-time libraries want the shared ones
    target_link_options(${arg_NAME} PRIVATE -static-libstdc++ -static-libgcc)
  endif()

  set(labels ${folder} ${arg_LABELS})
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(sluice_thread_tests ${arg_NAME})
  endif()
  if(arg_CUDA)
    list(APPEND labels cuda)
    target_link_libraries(${arg_NAME} PRIVATE sluice_cuda)
    add_dependencies(sluice_cuda_code ${arg_NAME})
  endif()
  gtest_discover_tests(${arg_NAME} TEST_PREFIX ${arg_NAME}. NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60)
  # gtest_discover_tests takes no list as the value of a property, so the labels follow in a script
  # that ctest reads after the one with the tests.
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}_labels.cmake)
  file(CONFIGURE OUTPUT ${script} @ONLY CONTENT [[
foreach(test IN LISTS @arg_NAME@_TESTS)
  set_tests_properties("${test}" PROPERTIES LABELS "@labels@")
endforeach()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()

# Every public header, alone and twice in a row: it includes what it uses and has its guard. Those of
# the C interface as C99 and as two ages of C++. The one glob of the build, because a header that is
# missing from a list would not be noticed.
function(sluice_add_header_tests)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include
       ${PROJECT_SOURCE_DIR}/include/sluice/*.h ${PROJECT_SOURCE_DIR}/include/sluice/*.hpp)
  foreach(header IN LISTS headers)
    string(MAKE_C_IDENTIFIER ${header} name)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/header_alone/${name})
    set(content "#include \"@header@\"\n#include \"@header@\"\n")
    file(CONFIGURE OUTPUT ${source}.cc CONTENT "${content}" @ONLY)
    list(APPEND sources ${source}.cc)
    if(header MATCHES "\\.h$")
      file(CONFIGURE OUTPUT ${source}.c CONTENT "${content}extern int ${name};\n" @ONLY)
      list(APPEND c_sources ${source}.c)
      list(APPEND c_as_cxx_sources ${source}.cc)
    endif()
  endforeach()
  add_library(sluice_header_alone OBJECT ${sources})
  add_library(sluice_c_header_alone OBJECT ${c_sources})
  target_compile_options(sluice_c_header_alone PRIVATE
    -pedantic -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Werror)
  add_library(sluice_c_header_alone_cxx11 OBJECT ${c_as_cxx_sources})
  set_target_properties(sluice_c_header_alone_cxx11 PROPERTIES CXX_STANDARD 11)
  target_compile_options(sluice_c_header_alone_cxx11 PRIVATE -pedantic -Wall -Wextra -Werror)
  foreach(target IN ITEMS sluice_header_alone sluice_c_header_alone sluice_c_header_alone_cxx11)
    target_include_directories(${target} PRIVATE
                               ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
  endforeach()
endfunction()

# sluice_add_fuzz_test(NAME name SOURCES file... [LIBRARIES target...])
#
# A libFuzzer target and a ctest test, labelled `fuzz`, that runs it for ten seconds. Seeds are read
# from corpus/<name> beside the list; what the fuzzer finds worth keeping goes to the build folder.
function(sluice_add_fuzz_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBRARIES")
  add_executable(${arg_NAME} ${arg_SOURCES})
  add_dependencies(sluice_fuzz_targets ${arg_NAME})
  target_include_directories(${arg_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_options(${arg_NAME} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${arg_NAME} PRIVATE sluice_core sluice_semantics ${arg_LIBRARIES})

  set(found ${CMAKE_CURRENT_BINARY_DIR}/corpus/${arg_NAME})
  set(seeds ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${arg_NAME})
  file(MAKE_DIRECTORY ${found})
  if(NOT EXISTS ${seeds})
    set(seeds)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} -max_total_time=10 -timeout=5 ${found} ${seeds})
  set_tests_properties(${arg_NAME} PROPERTIES LABELS fuzz TIMEOUT 60)
endfunction()
