# Filled in below when the public library stands.
