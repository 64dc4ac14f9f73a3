# Sets LADDER_CUDA_INCLUDE: the directory of CUDA 13.0's cuda_runtime_api.h, from which the runtime takes its prototypes
# and struct layouts. Searches the variable or environment variable of that name, the Python environment of the build
# (packages nvidia-cuda-runtime and nvidia-cuda-crt), then the toolkit.
function(ladder_check_cuda_headers directory result)
  set(${result} FALSE PARENT_SCOPE)
  if(EXISTS ${directory}/cuda_runtime_api.h AND EXISTS ${directory}/crt/host_defines.h)
    file(STRINGS ${directory}/cuda_runtime_api.h version REGEX "^#define CUDART_VERSION +130")
    if(version)
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

if(NOT LADDER_CUDA_INCLUDE AND DEFINED ENV{LADDER_CUDA_INCLUDE})
  set(LADDER_CUDA_INCLUDE $ENV{LADDER_CUDA_INCLUDE})
endif()
if(LADDER_CUDA_INCLUDE)
  set(ladder_candidates ${LADDER_CUDA_INCLUDE})
else()
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import sys; print(';'.join(p + '/nvidia/cu13/include' for p in sys.path if p))"
    OUTPUT_VARIABLE ladder_candidates OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND ladder_candidates /usr/local/cuda-13.0/include /usr/local/cuda/include)
endif()

set(ladder_found FALSE)
foreach(candidate IN LISTS ladder_candidates)
  ladder_check_cuda_headers(${candidate} ladder_found)
  if(ladder_found)
    set(LADDER_CUDA_INCLUDE ${candidate})
    break()
  endif()
endforeach()
if(NOT ladder_found)
  string(REPLACE ";" ", " ladder_candidates "${ladder_candidates}")
  message(FATAL_ERROR "The headers of the CUDA 13.0 runtime are not in ${ladder_candidates}. "
                      "Set LADDER_CUDA_INCLUDE, or: pip install nvidia-cuda-runtime==13.0.* nvidia-cuda-crt==13.0.*")
endif()
