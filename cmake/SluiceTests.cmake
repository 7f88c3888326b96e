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
  find_package(simdjson CONFIG QUIET)
  if(TARGET simdjson::simdjson)
    sluice_add_test_headers(NAME sluice_json_test_headers LIBRARIES simdjson::simdjson
                            HEADERS <simdjson.h>)
  endif()
endif()

# All fuzz targets, and of the libraries only what they are made of.
add_custom_target(sluice_fuzz_targets)
# The tests with the label `threads`, likewise: they are for the thread sanitizer.
add_custom_target(sluice_thread_tests)

# sluice_tests_together(GROUP name...)
#
# These tests are compiled as one file into one executable, under the names that they have alone: most of
# the time to compile a test goes to what it has in common with others. Six files of tests/select take
# 6.0 s instead of 15.3 (g++ 12), and each executable less is one link less. Names of a file's own are
# then unique in the group; files that have some of another's are in sluice_tests_apart. The preset dev
# has all files apart.
function(sluice_tests_together group)
  foreach(name IN LISTS ARGN)
    set_property(GLOBAL PROPERTY sluice_group_of_${name} ${group})
  endforeach()
endfunction()
function(sluice_tests_apart)
  set_property(GLOBAL PROPERTY sluice_tests_apart ${ARGN})
endfunction()

# sluice_tests_first(name...): those that take long with a sanitizer. ctest begins with them where it has
# no times of an earlier run, so that none of them runs alone at the end.
function(sluice_tests_first)
  set_property(GLOBAL PROPERTY sluice_tests_first ${ARGN})
endfunction()

# sluice_filter_of(VARIABLE file...): of GoogleTest, for the tests that are written in these files.
function(sluice_filter_of variable)
  set(filter)
  foreach(file IN LISTS ARGN)
    file(STRINGS ${file} tests REGEX "^(TYPED_)?TEST(_F|_P)?\\(")
    foreach(test IN LISTS tests)
      string(REGEX REPLACE "^([A-Z_]+)\\( *([A-Za-z0-9_]+), *([A-Za-z0-9_]*).*" "\\1;\\2;\\3" parts "${test}")
      list(POP_FRONT parts macro suite name)
      if(NOT name)
        message(FATAL_ERROR "${file}: the name of the test is in another line than ${test}")
      endif()
      if(macro STREQUAL "TYPED_TEST_P")
        list(APPEND filter */${suite}/*.${name})
      elseif(macro STREQUAL "TYPED_TEST")
        list(APPEND filter ${suite}/*.${name})
      elseif(macro STREQUAL "TEST_P")
        list(APPEND filter */${suite}.${name}/*)
      else()
        list(APPEND filter ${suite}.${name})
      endif()
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  list(REMOVE_DUPLICATES filter)
  list(JOIN filter ":" filter)
  set(${variable} ${filter} PARENT_SCOPE)
endfunction()

# sluice_add_test(NAME name [CUDA] SOURCES file... [LABELS label...] [LIBRARIES target...]
#                 [THREADED filter])
#
# One executable, or a part of its group's; every TEST in it becomes the ctest test
# <name>.<Suite>.<Test>, labelled with the folder of its first source and with LABELS. `long` keeps a
# test out of the sanitizer runs, `slow` out of `make test`; `threads` are the tests that the thread
# sanitizer runs; `cost` are those that measure the test's code.
# THREADED is GoogleTest's filter of those that the thread sanitizer runs, where the others have one
# thread each.
# With CUDA it gets the label `cuda` and is left out where CUDA is off; only a file with a kernel of
# its own is a .cu, since nvcc takes four times as long for the others. The main is GoogleTest's own.
#
# The executables depend on nothing but the C library, so that they can be copied to a GPU machine
# that has no package manager.
function(sluice_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "CUDA" "NAME;THREADED" "SOURCES;LABELS;LIBRARIES")
  if(NOT GTest_FOUND)
    return()  # said once by tests/CMakeLists.txt
  endif()
  if(arg_CUDA AND NOT SLUICE_CUDA)
    return()
  endif()
  list(GET arg_SOURCES 0 first_source)
  cmake_path(GET first_source PARENT_PATH folder)

  set(target ${arg_NAME})
  get_property(group GLOBAL PROPERTY sluice_group_of_${arg_NAME})
  if(group)
    set(target ${group})
  endif()
  if(NOT TARGET ${target})
    sluice_add_test_executable(${target} ${folder} "${arg_LABELS}" "${arg_LIBRARIES}")
  endif()
  foreach(source IN LISTS arg_SOURCES)
    get_target_property(sources ${target} SOURCES)
    if(NOT source IN_LIST sources)  # what several have, such as support/counting_allocator.cc
      target_sources(${target} PRIVATE ${source})
    endif()
  endforeach()
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES})

  list(LENGTH arg_SOURCES count)
  if(NOT DEFINED CMAKE_UNITY_BUILD AND NOT arg_CUDA AND (group OR count GREATER 1))
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    get_property(apart GLOBAL PROPERTY sluice_tests_apart)
    foreach(source IN LISTS arg_SOURCES)
      if(source MATCHES "_test\\.cc$" AND NOT IS_ABSOLUTE ${source} AND NOT source IN_LIST apart)
        set_property(SOURCE ${source} PROPERTY UNITY_GROUP tests)
      endif()
    endforeach()
  endif()

  set(labels ${folder} ${arg_LABELS})
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(sluice_thread_tests ${target})
  endif()
  if(arg_CUDA)
    list(APPEND labels cuda)
    target_link_libraries(${target} PRIVATE sluice_cuda)
    add_dependencies(sluice_cuda_code ${target})
  endif()
  set(filter "*")
  if(group)
    sluice_filter_of(filter ${arg_SOURCES})
  endif()
  # With a sanitizer 20 ms of CPU go to start a process: there all of them are one ctest test, <name>.
  if(SLUICE_SANITIZE)
    if(arg_THREADED AND SLUICE_SANITIZE STREQUAL "thread")
      set(filter ${arg_THREADED})
    endif()
    add_test(NAME ${arg_NAME} COMMAND ${target} --gtest_filter=${filter})
    set_tests_properties(${arg_NAME} PROPERTIES LABELS "${labels}")
    get_property(first GLOBAL PROPERTY sluice_tests_first)
    if(arg_NAME IN_LIST first)
      set_tests_properties(${arg_NAME} PROPERTIES COST 50)
    endif()
    return()
  endif()
  gtest_discover_tests(${target} TEST_PREFIX ${arg_NAME}. TEST_FILTER ${filter} TEST_LIST ${arg_NAME}_TESTS
                       NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60)
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

# sluice_add_test_executable(TARGET FOLDER LABELS LIBRARIES): without its sources.
function(sluice_add_test_executable target folder labels libraries)
  add_executable(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE sluice_core sluice_semantics)
  target_link_libraries(${target} PRIVATE GTest::gtest GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE
    SLUICE_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures"
    SLUICE_MODEL_FIXTURES="${PROJECT_SOURCE_DIR}/tests/model/fixtures"
    SLUICE_DEFAULT_MODEL="${PROJECT_SOURCE_DIR}/models/default"
    SLUICE_GOLDEN="${PROJECT_SOURCE_DIR}/tests/server/api/golden")
  if(NOT folder STREQUAL "semantics")
    target_compile_options(${target} PRIVATE ${sluice_test_code_flags})
    if("simdjson::simdjson" IN_LIST libraries)
      target_precompile_headers(${target} REUSE_FROM sluice_json_test_headers)
    else()
      target_precompile_headers(${target} REUSE_FROM sluice_test_headers)
    endif()
    # Behind a precompiled header g++ 12 warns, when it optimises, of the library's own strings.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT SLUICE_SANITIZE)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>)
    endif()
  endif()
  # The library is optimised as users have it, but for inline functions that a test has as well. Of
  # the tests' own code only what has the rules themselves in it, or measures something, is
  # optimised: without, it compiles in two thirds of the time.
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT folder STREQUAL "semantics" AND
     NOT "cost" IN_LIST labels)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${sluice_own_warnings}>")
  if(NOT SLUICE_SANITIZE)  # the sanitizers' own run-time libraries want the shared ones
    # Not by lld: beside a shared library that has an unwinder of its own it mixes the two, and an
    # exception aborts.
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
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
# A libFuzzer target and a ctest test, labelled `fuzz`, that runs it for as long as
# SLUICE_FUZZ_SECONDS says. Seeds are read from corpus/<name> beside the list; what the fuzzer finds
# worth keeping goes to the build folder.
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
  add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} -max_total_time=${SLUICE_FUZZ_SECONDS} -timeout=5 ${found} ${seeds})
  math(EXPR timeout "${SLUICE_FUZZ_SECONDS} + 50")
  set_tests_properties(${arg_NAME} PROPERTIES LABELS fuzz TIMEOUT ${timeout})
endfunction()
