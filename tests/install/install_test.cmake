# Run by ctest, see CMakeLists.txt beside it: installs `build` below `work`, then builds and runs
# the consumer against what was installed and nothing else. `way` is find_package or pkg_config.
set(prefix ${work}/prefix)
set(consumer ${CMAKE_CURRENT_LIST_DIR}/consumer)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endfunction()

file(REMOVE_RECURSE ${work})
run(${CMAKE_COMMAND} --install ${build} --config ${config} --prefix ${prefix})

if(way STREQUAL find_package)
  run(${CMAKE_COMMAND} -S ${consumer} -B ${work}/build -G ${generator}
      -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_BUILD_TYPE=${config}
      -D CMAKE_PREFIX_PATH=${prefix})
  run(${CMAKE_COMMAND} --build ${work}/build)
  set(program ${work}/build/consumer)
else()
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${libdir}/pkgconfig)
  execute_process(COMMAND ${pkg_config} --cflags --libs sluice OUTPUT_VARIABLE flags
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(program ${work}/consumer)
  run(${compiler} -std=c++20 ${consumer}/main.cc -o ${program} ${flags})
endif()

run(${program} ${version})
