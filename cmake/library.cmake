# The library, once as objects, then shared (symbol map, hidden by default) and static. The pure folders are a target of their own:
# they must build where there is no operating system to speak of (aarch64 under qemu, later a browser).
file(GLOB FB_PURE_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/base/*.c ${PROJECT_SOURCE_DIR}/src/scan/*.c ${PROJECT_SOURCE_DIR}/src/evidence/*.c
  ${PROJECT_SOURCE_DIR}/src/policy/*.c ${PROJECT_SOURCE_DIR}/src/search/*.c ${PROJECT_SOURCE_DIR}/src/diagnose/*.c)
file(GLOB FB_REST_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/os/*.c ${PROJECT_SOURCE_DIR}/src/log/*.c ${PROJECT_SOURCE_DIR}/src/ckpt/*.c
  ${PROJECT_SOURCE_DIR}/src/guard/*.c ${PROJECT_SOURCE_DIR}/src/registry/*.c ${PROJECT_SOURCE_DIR}/src/bundle/*.c
  ${PROJECT_SOURCE_DIR}/src/report/*.c)

add_library(fb_objects OBJECT ${FB_PURE_SOURCES} ${FB_REST_SOURCES})
set_target_properties(fb_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(fb_objects PRIVATE fb_flags)

add_library(firstbad_static STATIC $<TARGET_OBJECTS:fb_objects>)
set_target_properties(firstbad_static PROPERTIES OUTPUT_NAME firstbad EXPORT_NAME firstbad_static)
target_include_directories(firstbad_static PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_libraries(firstbad_static PUBLIC Threads::Threads m)

add_library(firstbad SHARED $<TARGET_OBJECTS:fb_objects>)
set_target_properties(firstbad PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/firstbad.map)
target_link_options(firstbad PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/firstbad.map -Wl,--no-undefined)
target_include_directories(firstbad PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_libraries(firstbad PRIVATE Threads::Threads m)
if(FB_SANITIZE)
  target_link_options(firstbad PRIVATE -fsanitize=${FB_SANITIZE})
  target_link_options(firstbad_static PUBLIC -fsanitize=${FB_SANITIZE})
  get_target_property(_opts firstbad LINK_OPTIONS)
endif()
