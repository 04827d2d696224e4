# find_package(aot): aot_add_bundle, which makes a library of models, again whenever one of them changes.
#
#   find_package(aot REQUIRED)                     # -Daot_DIR="$(aot where cmake)", or that folder in CMAKE_PREFIX_PATH
#   aot_add_bundle(digits digits.tflite CPU cortex-m4)
#   target_link_libraries(firmware PRIVATE digits)
#
# What runs is AOT_COMMAND: by default the `aot` beside this folder's Python, else one in the PATH, else `python3 -m aot`.

cmake_minimum_required(VERSION 3.13)

get_filename_component(AOT_PACKAGE_DIR "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

if(NOT AOT_COMMAND)
  find_program(AOT_EXECUTABLE aot
    HINTS "${AOT_PACKAGE_DIR}/../../../../bin" "${AOT_PACKAGE_DIR}/../../../Scripts"
    NO_CMAKE_FIND_ROOT_PATH)
  find_program(AOT_PYTHON NAMES python3 python NO_CMAKE_FIND_ROOT_PATH)
  mark_as_advanced(AOT_EXECUTABLE AOT_PYTHON)
  if(AOT_EXECUTABLE)
    set(AOT_COMMAND "${AOT_EXECUTABLE}")
  elseif(AOT_PYTHON)
    get_filename_component(_aot_path "${AOT_PACKAGE_DIR}/.." ABSOLUTE)
    set(AOT_COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${_aot_path}" "${AOT_PYTHON}" -m aot)
    unset(_aot_path)
  else()
    set(aot_FOUND FALSE)
    set(aot_NOT_FOUND_MESSAGE "neither aot nor Python was found: set AOT_COMMAND")
    return()
  endif()
endif()

# aot_add_bundle(TARGET MODEL... [NAME name] [BACKEND backend] [CPU cpu] [TRIPLE triple] [EMIT object|c|both]
#                [OUTPUT_DIRECTORY folder] [OPTIONS option...] [DEPENDS file...])
#
# Adds a static library TARGET, whose header NAME.h its users can include. NAME is by default TARGET, made a C identifier. OPTIONS are passed
# to `aot bundle` as they are. The property AOT_WEIGHTS of TARGET is the file of weights, where they are separate or come in pages; AOT_JSON is
# what aot says of the bundle.
function(aot_add_bundle target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME;BACKEND;CPU;TRIPLE;EMIT;OUTPUT_DIRECTORY" "OPTIONS;DEPENDS")
  if(NOT arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "aot_add_bundle(${target}): name a model")
  endif()
  if(NOT arg_NAME)
    string(MAKE_C_IDENTIFIER "${target}" arg_NAME)
    string(REGEX REPLACE "_+" "_" arg_NAME "${arg_NAME}")
    string(REGEX REPLACE "^_|_$" "" arg_NAME "${arg_NAME}")
  endif()
  if(NOT arg_NAME MATCHES "^[A-Za-z]([A-Za-z0-9]|_[A-Za-z0-9])*$")
    message(FATAL_ERROR "aot_add_bundle(${target}): NAME '${arg_NAME}' is no C identifier of letters, digits and single underscores")
  endif()
  if(NOT arg_EMIT)
    set(arg_EMIT object)
  endif()
  if(NOT arg_EMIT MATCHES "^(object|c|both)$")
    message(FATAL_ERROR "aot_add_bundle(${target}): EMIT is object, c or both")
  endif()
  foreach(option IN ITEMS --emit --name -o --output --cpu --backend --target)
    if(option IN_LIST arg_OPTIONS)
      message(FATAL_ERROR "aot_add_bundle(${target}): ${option} has a keyword of its own, outside OPTIONS")
    endif()
  endforeach()
  if(NOT arg_OUTPUT_DIRECTORY)
    set(arg_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/${target}-bundle")
  endif()
  get_filename_component(folder "${arg_OUTPUT_DIRECTORY}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")

  set(models "")
  foreach(model IN LISTS arg_UNPARSED_ARGUMENTS)
    get_filename_component(model "${model}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND models "${model}")
  endforeach()
  set(options --name "${arg_NAME}" --emit "${arg_EMIT}" -o "${folder}")
  foreach(keyword IN ITEMS BACKEND CPU)
    if(arg_${keyword})
      string(TOLOWER "--${keyword}" option)
      list(APPEND options "${option}" "${arg_${keyword}}")
    endif()
  endforeach()
  if(arg_TRIPLE)
    list(APPEND options --target "${arg_TRIPLE}")
  endif()

  set(outputs "${folder}/${arg_NAME}.h" "${folder}/${arg_NAME}.json")
  set(code "")
  if(arg_EMIT STREQUAL "c")
    set(code "${folder}/${arg_NAME}.c" "${folder}/${arg_NAME}_weights.c")
  else()
    set(code "${folder}/${arg_NAME}.o")
  endif()
  set(weights "")
  if("--page-weights" IN_LIST arg_OPTIONS OR "separate" IN_LIST arg_OPTIONS OR "--weights=separate" IN_LIST arg_OPTIONS
     OR "glow" IN_LIST arg_OPTIONS OR "glow-dynamic" IN_LIST arg_OPTIONS)
    set(weights "${folder}/${arg_NAME}.weights.bin")
  endif()
  add_custom_command(
    OUTPUT ${code} ${outputs} ${weights}
    COMMAND ${AOT_COMMAND} bundle ${models} ${options} ${arg_OPTIONS}
    DEPENDS ${models} ${arg_DEPENDS} "${AOT_PACKAGE_DIR}/version.py"
    COMMENT "Compiling ${arg_NAME} with aot"
    VERBATIM)
  set_source_files_properties(${code} PROPERTIES GENERATED TRUE)
  if(NOT arg_EMIT STREQUAL "c")
    set_source_files_properties(${code} PROPERTIES EXTERNAL_OBJECT TRUE)
  endif()
  add_library("${target}" STATIC ${code} ${outputs})
  set_target_properties("${target}" PROPERTIES
    LINKER_LANGUAGE C C_STANDARD 99 C_EXTENSIONS OFF
    AOT_JSON "${folder}/${arg_NAME}.json" AOT_WEIGHTS "${weights}")
  target_include_directories("${target}" PUBLIC "${folder}")
endfunction()
