# Run by ctest, see CMakeLists.txt in this folder: installs `build` below `work`, then builds and runs
# `consumer` against what was installed and nothing else. `way` is find_package or pkg_config,
# `component` core, text, engine, link, server, research or cuda (C++), c or c_static.
set(prefix ${work}/prefix)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endfunction()

file(REMOVE_RECURSE ${work})
run(${CMAKE_COMMAND} --install ${build} --config ${config} --prefix ${prefix})

# Research is installed by its name only.
file(GLOB_RECURSE installed RELATIVE ${prefix} ${prefix}/*)
list(FILTER installed INCLUDE REGEX research)
if(installed)
  message(FATAL_ERROR "installed without its name: ${installed}")
endif()
if(component STREQUAL "research")
  run(${CMAKE_COMMAND} --install ${build} --config ${config} --prefix ${prefix}
      --component research)
endif()

set(language C)
set(source ${consumer}/main.c)
set(options -std=c99 -pedantic -Wall -Wextra -Werror)
set(package sluice-c)
if(component MATCHES "core|text|engine|link|server|research|cuda")
  set(language CXX)
  set(source ${consumer}/main.cc)
  set(options -std=c++20)
  set(package sluice)
endif()

if(way STREQUAL find_package)
  run(${CMAKE_COMMAND} -S ${consumer} -B ${work}/build -G ${generator}
      -D CMAKE_${language}_COMPILER=${compiler} -D CMAKE_BUILD_TYPE=${config}
      -D CMAKE_PREFIX_PATH=${prefix} -D component=${component} -D version=${version})
  run(${CMAKE_COMMAND} --build ${work}/build)
  set(program ${work}/build/consumer)
else()
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${libdir}/pkgconfig)
  set(ENV{LD_LIBRARY_PATH} ${prefix}/${libdir})
  set(static)
  if(component STREQUAL c_static)
    # Where both are there, the linker takes the shared one: leave it the archives.
    file(GLOB shared ${prefix}/${libdir}/libsluice_c.so*)
    file(REMOVE ${shared})
    set(static --static)
  endif()
  execute_process(COMMAND ${pkg_config} --cflags --libs ${static} ${package}
                  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(program ${work}/consumer)
  run(${compiler} ${options} ${source} -o ${program} ${flags})
endif()

run(${program} ${version})
if(component STREQUAL "core" AND has_command)
  run(${prefix}/bin/sluice --version)
endif()
