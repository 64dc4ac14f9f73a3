# What a wheel carries besides the package and the emulator. ladder/stages/places.py finds it there.
foreach(folder stages examples exercises notebooks)
  install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/../../${folder}/ DESTINATION ladder/_${folder}
          PATTERN "__pycache__" EXCLUDE PATTERN ".*" EXCLUDE)
endforeach()
install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/../../results/ DESTINATION ladder/_results FILES_MATCHING PATTERN "*.csv")
