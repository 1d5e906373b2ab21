# Finds libtorch by explicit paths and makes the target `torch`; its own CMake package fails on
# wheels and silently mixes installations. First found is taken: TORCH_ROOT (a variable or of the
# environment: a folder with include/ and lib/), the wheel of `npm run engine`, the torch of
# `python3`, Debian's libtorch-dev.
# Sets VANTAGE_TORCH_VERSION, VANTAGE_TORCH_SOURCE, VANTAGE_TORCH_LIBRARIES, VANTAGE_TORCH_CUDA,
# VANTAGE_CXX_STANDARD.

set(TORCH_ROOT "$ENV{TORCH_ROOT}" CACHE PATH "Folder with include/ATen and lib/libtorch.so")
set(_root "${TORCH_ROOT}")
if(NOT _root)
  file(GLOB _root "${CMAKE_CURRENT_LIST_DIR}/../.vantage/engine/lib/python3.*/site-packages/torch")
endif()
if(NOT _root)
  # Looked up, not imported: importing takes seconds.
  execute_process(
    COMMAND python3 -c
            "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE _python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _failed)
  if(_failed EQUAL 0 AND EXISTS "${_python}/lib/libtorch.so"
     AND EXISTS "${_python}/include/ATen/ATen.h")
    set(_root "${_python}")
  else()
    set(_root /usr)
  endif()
endif()

# The compiler tells the multiarch folder of Debian.
set(_include "${_root}/include")
set(VANTAGE_TORCH_LIBRARIES "")
foreach(_folder "${_root}/lib" "${_root}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
  if(EXISTS "${_folder}/libtorch_cpu.so")
    set(VANTAGE_TORCH_LIBRARIES "${_folder}")
  endif()
endforeach()
if(NOT VANTAGE_TORCH_LIBRARIES OR NOT EXISTS "${_include}/ATen/ATen.h")
  message(FATAL_ERROR "No libtorch in ${_root}. To have it: apt-get install "
                      "--no-install-recommends libtorch-dev libopenblas0-pthread, "
                      "or set TORCH_ROOT.")
endif()

set(_api "${_include}/torch/csrc/api/include")
foreach(_header "${_include}/torch/headeronly/version.h" "${_api}/torch/version.h")
  if(EXISTS "${_header}" AND NOT VANTAGE_TORCH_VERSION)
    file(STRINGS "${_header}" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3"
                         VANTAGE_TORCH_VERSION "${_lines}")
  endif()
endforeach()
if(NOT VANTAGE_TORCH_VERSION MATCHES "^[0-9.]+$")
  message(FATAL_ERROR "The headers in ${_include} do not tell torch's version.")
endif()
# Debian's 1.13 is C++17; the headers of newer ones refuse it.
set(VANTAGE_CXX_STANDARD 17)
if(VANTAGE_TORCH_VERSION VERSION_GREATER_EQUAL 2.4)
  set(VANTAGE_CXX_STANDARD 20)
endif()
set(VANTAGE_TORCH_CUDA OFF)
set(_cuda "${VANTAGE_TORCH_LIBRARIES}/libtorch_cuda.so")
if(VANTAGE_CUDA AND EXISTS "${_cuda}")
  # The CPU part of a wheel has the library, and not those that it links.
  execute_process(COMMAND ldd "${_cuda}" OUTPUT_VARIABLE _links ERROR_QUIET)
  if(NOT _links MATCHES "=> not found")
    set(VANTAGE_TORCH_CUDA ON)
  endif()
endif()
set(VANTAGE_TORCH_SOURCE system)
if(EXISTS "${VANTAGE_TORCH_LIBRARIES}/../version.py")
  set(VANTAGE_TORCH_SOURCE wheel)
endif()
# Wheels before 2.7 have the old ABI of C++'s library, and their CMake package says so.
set(_abi 1)
set(_config "${_root}/share/cmake/Torch/TorchConfig.cmake")
if(EXISTS "${_config}")
  file(STRINGS "${_config}" _flags REGEX "_GLIBCXX_USE_CXX11_ABI=0")
  if(_flags)
    set(_abi 0)
  endif()
endif()

add_library(torch INTERFACE)
# /usr/include among the system folders would break the compiler's own #include_next.
if(NOT _include STREQUAL "/usr/include")
  target_include_directories(torch SYSTEM INTERFACE "${_include}")
endif()
target_include_directories(torch SYSTEM INTERFACE "${_api}")
target_compile_definitions(torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${_abi})
target_compile_options(torch INTERFACE -Wno-unknown-pragmas)
# Libraries that only register kernels are kept though nothing names them.
target_link_options(torch INTERFACE "LINKER:--no-as-needed,--allow-shlib-undefined")
set(_libraries c10 torch_cpu)
if(VANTAGE_TORCH_CUDA)
  # libtorch itself links nothing but the parts, of which a wheel without CUDA has one.
  list(APPEND _libraries c10_cuda torch_cuda torch)
endif()
foreach(_library ${_libraries})
  target_link_libraries(torch INTERFACE "${VANTAGE_TORCH_LIBRARIES}/lib${_library}.so")
endforeach()
if(VANTAGE_TORCH_VERSION VERSION_LESS 2)
  # Debian's headers log through it.
  find_library(VANTAGE_GLOG glog)
  if(VANTAGE_GLOG)
    target_link_libraries(torch INTERFACE "${VANTAGE_GLOG}")
  endif()
endif()
