"""Methods that exist to be compared with: none of them is in the library."""
