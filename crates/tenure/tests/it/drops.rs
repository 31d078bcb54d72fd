//! Dropped guards and programs that end.
