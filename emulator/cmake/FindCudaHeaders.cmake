# Sets LADDER_CUDA_INCLUDE: the directory of cuda_runtime_api.h, from which the runtime takes its prototypes and the
# layout of its structs. Looked for in the variable or environment variable of that name, in the Python environment that
# builds (packages nvidia-cuda-runtime and nvidia-cuda-crt), in the toolkit.
if(NOT LADDER_CUDA_INCLUDE AND DEFINED ENV{LADDER_CUDA_INCLUDE})
  set(LADDER_CUDA_INCLUDE $ENV{LADDER_CUDA_INCLUDE})
endif()
if(NOT LADDER_CUDA_INCLUDE)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import sys; print(';'.join(p + '/nvidia/cu13/include' for p in sys.path if p))"
    OUTPUT_VARIABLE ladder_site_includes OUTPUT_STRIP_TRAILING_WHITESPACE)
  find_path(LADDER_CUDA_HEADERS cuda_runtime_api.h
            PATHS ${ladder_site_includes} /usr/local/cuda-13.0/include /usr/local/cuda/include NO_DEFAULT_PATH)
  set(LADDER_CUDA_INCLUDE ${LADDER_CUDA_HEADERS})
endif()
foreach(header cuda_runtime_api.h crt/host_defines.h)
  if(NOT EXISTS ${LADDER_CUDA_INCLUDE}/${header})
    message(FATAL_ERROR "${header} of CUDA 13.0 is not in '${LADDER_CUDA_INCLUDE}'. "
                        "Set LADDER_CUDA_INCLUDE, or: pip install nvidia-cuda-runtime==13.0.* nvidia-cuda-crt==13.0.*")
  endif()
endforeach()
