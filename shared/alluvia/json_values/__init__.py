"""Values in JSON: their text, and columns of a declared type that hold them."""
