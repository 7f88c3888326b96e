# Run by ctest, see CMakeLists.txt in this folder: installs `build` below `work`, and looks for what is
# not in it.
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${work})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${build} --config ${config} --prefix ${prefix}
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

# expect(ARGUMENTS TEXT): what find_package(Sluice ARGUMENTS) says instead of finding it.
function(expect arguments text)
  file(WRITE ${work}/project/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\n"
       "project(consumer LANGUAGES CXX)\nfind_package(Sluice ${arguments})\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${work}/project -B ${work}/build -G ${generator}
                          -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix}
                  RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  string(FIND "${said}" "${text}" place)
  if(result EQUAL 0 OR place EQUAL -1)
    message(FATAL_ERROR "find_package(Sluice ${arguments}) says: ${said}")
  endif()
endfunction()

expect("REQUIRED COMPONENTS core nonsense" "Sluice has no component nonsense. It has core, c, c_static,")
expect("REQUIRED COMPONENTS research" "research is installed by its name only: cmake --install BUILD --component research")
if(NOT has_cuda)
  expect("REQUIRED COMPONENTS core cuda"
         "this Sluice was built without CUDA: build it with the preset install-cuda.")
endif()
# Before 1.0 a minor version may change the interface.
expect("0.1 REQUIRED" "compatible with requested version \"0.1\"")
expect("9.0 REQUIRED" "compatible with requested version \"9.0\"")
