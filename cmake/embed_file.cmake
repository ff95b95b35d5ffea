# Writes FILE into TO as the string NAME of sentinel::embedded. A literal may hold 64 KiB by the standard.
file(READ ${FILE} text)
string(LENGTH "${text}" length)
if(length GREATER 65000)
  message(FATAL_ERROR "${FILE} is too long for one string literal")
endif()
string(FIND "${text}" ")embedded\"" at)
if(NOT at EQUAL -1)
  message(FATAL_ERROR "${FILE} holds the end of its own literal")
endif()
file(WRITE ${TO} "#include <string_view>\nnamespace sentinel::embedded {\nextern const std::string_view ${NAME};\n"
                 "const std::string_view ${NAME} = R\"embedded(${text})embedded\";\n}\n")
