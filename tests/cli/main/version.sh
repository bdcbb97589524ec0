[ "$(firstbad --version)" = "firstbad $(sed -n 's/^#define FB_VERSION_TEXT "\(.*\)"/\1/p' "$FIRSTBAD_SOURCE/include/firstbad/firstbad.h")" ]
