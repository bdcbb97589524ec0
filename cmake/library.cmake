# The library, once as objects, then shared (symbol map, hidden by default) and static. Files are found by folder: a new source needs
# no line here. The pure folders must build where there is no operating system to speak of (aarch64 under qemu, later a browser), and
# are kept apart for that reason.
file(GLOB FB_PURE_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/base/*.c ${PROJECT_SOURCE_DIR}/src/scan/*.c ${PROJECT_SOURCE_DIR}/src/evidence/*.c
  ${PROJECT_SOURCE_DIR}/src/policy/*.c ${PROJECT_SOURCE_DIR}/src/search/*.c ${PROJECT_SOURCE_DIR}/src/diagnose/*.c)
file(GLOB FB_REST_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/os/*.c ${PROJECT_SOURCE_DIR}/src/log/*.c ${PROJECT_SOURCE_DIR}/src/ckpt/*.c
  ${PROJECT_SOURCE_DIR}/src/guard/*.c ${PROJECT_SOURCE_DIR}/src/registry/*.c ${PROJECT_SOURCE_DIR}/src/bundle/*.c ${PROJECT_SOURCE_DIR}/src/locate/*.c
  ${PROJECT_SOURCE_DIR}/src/report/*.c)
fb_break_promise(${FB_PURE_SOURCES} ${FB_REST_SOURCES})

add_library(fb_objects OBJECT ${FB_PURE_SOURCES} ${FB_REST_SOURCES})
set_target_properties(fb_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(fb_objects PRIVATE fb_flags ZLIB::ZLIB)

add_library(firstbad_static STATIC $<TARGET_OBJECTS:fb_objects>)
set_target_properties(firstbad_static PROPERTIES OUTPUT_NAME firstbad)
target_include_directories(firstbad_static PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(firstbad_static PUBLIC Threads::Threads ZLIB::ZLIB m)

add_library(firstbad SHARED $<TARGET_OBJECTS:fb_objects>)
set_target_properties(firstbad PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/firstbad.map)
target_link_options(firstbad PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/firstbad.map)
target_include_directories(firstbad PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(firstbad PRIVATE Threads::Threads ZLIB::ZLIB m)
if(FB_SANITIZE)
  # clang's runtime lives in the program and not in a library, so undefined symbols are right here.
  target_link_options(firstbad PRIVATE -fsanitize=${FB_SANITIZE})
  target_link_options(firstbad_static PUBLIC $<BUILD_INTERFACE:-fsanitize=${FB_SANITIZE}>)
else()
  target_link_options(firstbad PRIVATE -Wl,--no-undefined)
endif()

# The names that users write, the same inside this build and after find_package(firstbad).
add_library(firstbad::firstbad ALIAS firstbad)
add_library(firstbad::firstbad_static ALIAS firstbad_static)

# Includes point one way. Part of every build: a rule that nothing compiles against drifts. It reads some 100 files, in milliseconds.
add_custom_target(fb_includes ALL
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/check-includes --quiet
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM COMMENT "include order")
