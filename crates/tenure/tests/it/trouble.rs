//! Bad input and servers in trouble: the error, its text, and what remains.
