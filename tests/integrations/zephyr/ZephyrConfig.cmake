# Stands for Zephyr's own package: what the sample's CMakeLists.txt and the module's use of it. Kconfig is left out: CONFIG_ variables are those of
# prj.conf. AOT_BUNDLES, AOT_STAND_INS: the board's start-up code, and printk.
cmake_minimum_required(VERSION 3.20)
project(Zephyr-Kernel C)

file(STRINGS "${CMAKE_SOURCE_DIR}/prj.conf" settings REGEX "^CONFIG_[A-Z0-9_]+=.")
foreach(setting IN LISTS settings)
  string(REGEX MATCH "^([A-Z0-9_]+)=(.*)$" _ "${setting}")
  set(${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
endforeach()

add_library(zephyr_interface INTERFACE)
target_include_directories(zephyr_interface INTERFACE "${AOT_STAND_INS}" "${AOT_BUNDLES}/firmware" "${AOT_BUNDLES}/firmware/boards")
target_compile_options(zephyr_interface INTERFACE -O2 -ffreestanding)
add_library(app STATIC)
add_executable(zephyr "${AOT_BUNDLES}/firmware/startup.c" "${AOT_BUNDLES}/firmware/print.c" "${AOT_BUNDLES}/firmware/boards/stm32f405.c"
  "${AOT_STAND_INS}/print_format.c")
target_link_libraries(app PUBLIC zephyr_interface)
target_link_libraries(zephyr PRIVATE app)
target_link_options(zephyr PRIVATE -nostdlib -Wl,-e,Reset_Handler
  -T "${AOT_BUNDLES}/firmware/boards/stm32f405.ld" -T "${AOT_BUNDLES}/firmware/sections.ld")

function(zephyr_include_directories)
  target_include_directories(zephyr_interface INTERFACE ${ARGV})
endfunction()

function(zephyr_library_import name path)
  add_library(${name} STATIC IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION "${path}")
  target_link_libraries(app PUBLIC ${name})
endfunction()

macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC)
  target_link_libraries(${name} PUBLIC zephyr_interface)
  target_link_libraries(app PUBLIC ${name})
endmacro()

function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGV})
endfunction()

foreach(module IN LISTS EXTRA_ZEPHYR_MODULES)
  get_filename_component(name "${module}" NAME)
  add_subdirectory("${module}/zephyr" "${CMAKE_BINARY_DIR}/modules")
endforeach()
target_link_libraries(app PUBLIC gcc)
